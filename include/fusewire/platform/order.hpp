// Memory order and scope, in the words of std::memory_order. The platform headers translate them.
#pragma once

namespace fusewire {

enum class order { relaxed, acquire, release, acq_rel };

/// Who takes part: the threads of one block, of one device, or of every device and the host.
enum class scope { block, device, system };

}  // namespace fusewire
