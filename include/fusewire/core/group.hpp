// Groups of threads that act together. A group is passed as an argument and never spelled in a function's name.
#pragma once
#include <concepts>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// size() threads that act together; rank() is this thread's number among them, and leader() is true for one of them.
/// sync() makes their accesses to shared and device memory visible to each other. In a loop with sync(), ask leader()
/// and not rank() == 0: platform::is_first() says why.
template <class G>
concept group = requires(G g) {
  { g.rank() } -> std::same_as<int>;
  { g.size() } -> std::same_as<int>;
  { g.leader() } -> std::same_as<bool>;
  g.sync();
};

/// A group: one thread by itself.
struct thread {
  __device__ int rank() const { return 0; }
  __device__ int size() const { return 1; }
  __device__ bool leader() const { return true; }
  __device__ void sync() const {}
};

/// A group: the lanes of a wave.
/// Requires: a full wave, so every block consists of whole waves.
struct wave {
  /// Lanes: 64 on gfx942, 32 on sm_90.
  static constexpr int width = platform::wave_size;

  __device__ int rank() const { return platform::thread_index() % width; }
  __device__ int size() const { return width; }
  __device__ bool leader() const { return platform::is_first(rank()); }
  __device__ void sync() const { platform::wave_sync(); }
  __device__ int index() const { return platform::thread_index() / width; }  // within the block
};

/// A group: all threads of a one-dimensional block.
struct block {
  __device__ int rank() const { return platform::thread_index(); }
  __device__ int size() const { return platform::block_threads(); }
  __device__ bool leader() const { return platform::is_first(rank()); }
  __device__ void sync() const { platform::block_sync(); }
  __device__ int index() const { return platform::block_index(); }  // within the grid
  /// Blocks of the grid.
  __device__ int count() const { return platform::grid_blocks(); }
};

}  // namespace fusewire
