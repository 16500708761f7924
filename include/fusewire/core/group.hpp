// Groups of threads that act together. A group is passed as an argument and never spelled in a function's name.
#pragma once
#include <concepts>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// size() threads that act together; rank() is this thread's number among them, and leader() is true for one of them.
/// sync() makes their accesses to shared and device memory visible to each other. In a loop with sync(), ask leader()
/// and not rank() == 0: platform::opaque_is_zero() says why.
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
  __device__ bool leader() const { return platform::opaque_is_zero(rank()); }
  __device__ void sync() const { platform::wave_sync(); }
  __device__ int index() const { return platform::thread_index() / width; }  // within the block
};

/// A group: all threads of a one-dimensional block.
struct block {
  __device__ int rank() const { return platform::thread_index(); }
  __device__ int size() const { return platform::block_threads(); }
  __device__ bool leader() const { return platform::opaque_is_zero(rank()); }
  __device__ void sync() const { platform::block_sync(); }
  __device__ int index() const { return platform::block_index(); }  // within the grid
  /// Blocks of the grid.
  __device__ int count() const { return platform::grid_blocks(); }
};

namespace detail {

/// Calls f() in the leader alone and returns its result to every thread of the group; the threads sync. `word`: in the
/// block's shared memory, for this group alone; a thread and a wave need none.
template <group Group, class F>
__device__ int from_leader(Group g, int* word, F const& f) {
  if constexpr (std::is_same_v<Group, thread>) {
    return f();
  } else if constexpr (std::is_same_v<Group, wave>) {
    int x = 0;
    if (g.leader()) x = f();
    g.sync();
    return platform::uniform(platform::shuffle(x, 0));
  } else {
    if (g.leader()) *word = f();
    g.sync();
    int const x = *word;
    g.sync();  // the next one may write it
    return std::is_same_v<Group, block> ? platform::uniform(x) : x;
  }
}
/// Whether `yes` holds in every thread of the group. All threads get the same answer; they sync. `word`: as for
/// from_leader().
template <group Group>
__device__ bool all_agree(Group g, int* word, bool yes) {
  g.sync();
  if constexpr (std::is_same_v<Group, thread>) {
    return yes;
  } else if constexpr (std::is_same_v<Group, wave>) {
    return platform::first_lane_of(!yes) == 0;
  } else {
    if (g.leader()) *word = 1;
    g.sync();
    if (platform::opaque(yes) == 0) *word = 0;  // opaque as in leader()
    g.sync();
    int const all = *word;
    g.sync();
    return (std::is_same_v<Group, block> ? platform::uniform(all) : all) != 0;
  }
}

}  // namespace detail

}  // namespace fusewire
