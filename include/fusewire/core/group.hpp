// Who works together: a group is passed as an argument, never spelled in a function's name.
#pragma once
#include <concepts>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// rank() of size() cooperating threads; leader() is true for one of them; sync() makes their accesses to block-shared
/// and device memory visible to each other. In a loop with sync() ask leader(), not rank() == 0: see
/// platform::is_first().
template <class G>
concept group = requires(G g) {
  { g.rank() } -> std::same_as<int>;
  { g.size() } -> std::same_as<int>;
  { g.leader() } -> std::same_as<bool>;
  g.sync();
};

struct thread {
  __device__ int rank() const { return 0; }
  __device__ int size() const { return 1; }
  __device__ bool leader() const { return true; }
  __device__ void sync() const {}
};

/// Requires: a full wave, so a block of whole waves.
struct wave {
  static constexpr int width = platform::wave_size;

  __device__ int rank() const { return platform::thread_index() % width; }
  __device__ int size() const { return width; }
  __device__ bool leader() const { return platform::is_first(rank()); }
  __device__ void sync() const { platform::wave_sync(); }
  __device__ int index() const { return platform::thread_index() / width; }  // within the block
};

/// All threads of a one-dimensional block.
struct block {
  __device__ int rank() const { return platform::thread_index(); }
  __device__ int size() const { return platform::block_threads(); }
  __device__ bool leader() const { return platform::is_first(rank()); }
  __device__ void sync() const { platform::block_sync(); }
  __device__ int index() const { return platform::block_index(); }  // within the grid
  __device__ int count() const { return platform::grid_blocks(); }
};

}  // namespace fusewire
