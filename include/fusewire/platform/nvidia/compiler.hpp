// What the compiler must not know, move or keep.
#pragma once
#include <fusewire/platform/nvidia/execution.hpp>

namespace fusewire::platform {

/// `x`, hidden from the compiler: what follows from it in a loop is computed in every iteration instead of being kept
/// in registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
/// As opaque(), of this thread's index.
__device__ inline int opaque_thread_index() { return opaque(thread_index()); }
/// `x`. ptxas computes it where it likes.
__device__ inline int no_hoist(int x) { return x; }
/// The same of what lanes may have different.
__device__ inline int no_hoist_lane(int x) { return x; }
/// ptxas orders instructions by what waits.
__device__ inline void sched_barrier() {}
/// Whether `rank` is 0.
__device__ inline bool opaque_is_zero(int rank) { return rank == 0; }
/// Returns when x, which is not 0, has been loaded. Until then its load may be in flight, even past a barrier.
__device__ inline void wait_loaded(std::uint64_t x) {
  asm volatile("{.reg .pred p; setp.eq.u64 p, %0, 0; @p trap;}" ::"l"(x));
}
/// Nothing to do: arguments are constants, with their own cache.
template <int>
__device__ inline void fetch_arguments() {}
/// `p`, which points into memory and not into shared memory.
template <class T>
__device__ T* to_memory(T* p) {
  return p;
}

}  // namespace fusewire::platform
