// A thread's place in the grid, barriers of threads, and clocks.
#pragma once
#include <fusewire/platform/amd/vendor.hpp>

namespace fusewire::platform {

/// Number of this block in the grid, 0 to grid_blocks() - 1.
__device__ inline int block_index() { return int(__builtin_amdgcn_workgroup_id_x()); }
/// Number of this thread in its block.
__device__ inline int thread_index() { return int(__builtin_amdgcn_workitem_id_x()); }
/// Threads of a block.
__device__ inline int block_threads() { return int(__builtin_amdgcn_workgroup_size_x()); }
/// Blocks of the grid. All have the same size, so the runtime's count of full blocks is all of them; gridDim would also
/// ask whether a smaller one is left, in a load that waits for memory.
__device__ inline int grid_blocks() {
  return int(*(unsigned const __attribute__((address_space(4)))*)__builtin_amdgcn_implicitarg_ptr());
}

/// The most XCDs that a device has, each with its own L2.
inline constexpr int max_xcds = 8;

/// The XCD that this wave runs on, 0 to max_xcds - 1.
__device__ inline int xcd_index() { return int(__builtin_amdgcn_s_getreg(20 | 31 << 11)) & (max_xcds - 1); }  // XCC_ID

/// All threads of the block sync. What they stored to LDS and to memory is then visible to the block.
__device__ inline void block_sync() { __syncthreads(); }
/// The lanes of a wave see what they have stored. They run in step already.
__device__ inline void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
/// Pauses between two polls of a flag.
__device__ inline void backoff() { __builtin_amdgcn_s_sleep(1); }
/// A wall clock that is the same on every device of a host, in nanoseconds.
__device__ inline std::uint64_t clock_ns() { return __builtin_amdgcn_s_memrealtime() * 10; }

/// Begins a span. It writes the address of its name, in two words, to the wave's trace data, for a tool that records
/// these; it does nothing else.
__device__ inline void begin_span(char const* name) {
  auto const at = std::uint64_t(name);
  __builtin_amdgcn_s_ttracedata(int(at));
  __builtin_amdgcn_s_ttracedata(int(at >> 32));
}
/// Ends the span that was begun last. Its address is 0.
__device__ inline void end_span() { begin_span(nullptr); }

/// Whether launch_shape::programmatic has an effect.
inline constexpr bool has_pdl = false;
/// Returns when earlier work on the stream is complete and visible. Here a kernel does not start before that.
__device__ inline void wait_prior_grid() {}
/// Lets the next launch on the stream start, if it is early.
__device__ inline void launch_dependents() {}

}  // namespace fusewire::platform
