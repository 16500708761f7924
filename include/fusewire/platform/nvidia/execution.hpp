// A thread's place in the grid, barriers of threads, and clocks.
#pragma once
#include <fusewire/platform/nvidia/vendor.hpp>

namespace fusewire::platform {

__device__ inline int block_index() { return int(blockIdx.x); }
__device__ inline int thread_index() { return int(threadIdx.x); }
__device__ inline int block_threads() { return int(blockDim.x); }
__device__ inline int grid_blocks() { return int(gridDim.x); }

/// The device counts as one XCD, with one L2.
inline constexpr int max_xcds = 1;

__device__ inline int xcd_index() { return 0; }

__device__ inline void block_sync() { __syncthreads(); }
__device__ inline void wave_sync() { __syncwarp(); }
/// Pauses between two polls of a flag.
__device__ inline void backoff() { __nanosleep(20); }
/// A wall clock that is the same on every device of a host, in nanoseconds.
__device__ inline std::uint64_t clock_ns() {
  std::uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

/// The beginning of a span. No tool records it here.
__device__ inline void begin_span(char const*) {}
/// The end of the span that was begun last.
__device__ inline void end_span() {}

/// Whether launch_shape::programmatic has an effect: such a launch may start before earlier work on the stream is over,
/// if that work allows it.
inline constexpr bool has_pdl = true;
/// Returns when earlier work on the stream is complete and visible. A kernel that is launched early must not read what
/// that work writes, nor write what it reads, before this returns.
__device__ inline void wait_prior_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Lets the next kernel on the stream start in the room that this one leaves, if it is one that is launched early.
__device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace fusewire::platform
