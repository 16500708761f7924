// How processes get access to a rank's memory.
#pragma once

namespace fusewire {

/// How processes map each other's memory. Threads of one process always share pointers.
enum class sharing {
  handle,  // hipIpcMemHandle_t, cudaIpcMemHandle_t
  // POSIX file descriptor; nvidia. The memory exists until its last mapping is gone, even if its owner has ended
  descriptor,
};

}  // namespace fusewire
