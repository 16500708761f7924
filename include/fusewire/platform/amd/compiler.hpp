// What the compiler must not know, move or keep.
#pragma once
#include <fusewire/platform/amd/execution.hpp>
#include <fusewire/platform/amd/lanes.hpp>

namespace fusewire::platform {

/// `x`, hidden from the compiler: what follows from it in a loop is computed in every iteration instead of being kept
/// in registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+v"(x));
  return x;
}
/// As opaque(), of this thread's index, which is not negative.
__device__ inline int opaque_thread_index() {
  int const x = opaque(thread_index());
  __builtin_assume(x >= 0 && x < 1024);
  return x;
}
/// `x`, the same in all lanes: what follows from it in a loop is not computed ahead of the loop, where it would hold up
/// the first loads.
__device__ inline int no_hoist(int x) {
  x = uniform(x);
  asm volatile("" : "+s"(x));
  return x;
}
/// The same of what lanes may have different.
__device__ inline int no_hoist_lane(int x) { return opaque(x); }
/// The compiler moves no instruction past it: neither arithmetic with what is loaded ahead of other loads, nor a load
/// behind what waits for another one.
__device__ inline void sched_barrier() { __builtin_amdgcn_sched_barrier(0); }
/// Whether `rank` is 0, written so that the optimiser does not see through it. Otherwise the optimiser may thread
/// jumps: lanes for which one test fails skip the next test of the same condition, even across barriers. They then
/// enter their own loop, while the other lanes of their wave wait to claim the next item (llvm/llvm-project, pull
/// request 204958). s_barrier counts waves, so it lets them pass.
__device__ inline bool opaque_is_zero(int rank) { return opaque(rank) == 0; }
/// Returns when x, which is not 0, has been loaded. Until then its load may be in flight, even past a barrier.
__device__ inline void wait_loaded(std::uint64_t x) { asm volatile("" ::"v"(x)); }
/// Brings the first `Bytes` bytes of the kernel's arguments into the scalar cache, all lines together. Without it, a
/// kernel waits for each line where it first uses it, one line after the other.
template <int Bytes>
__device__ inline void fetch_arguments() {
  constexpr int line = 64;
  auto const* const words = (unsigned const*)__builtin_amdgcn_kernarg_segment_ptr();
  unsigned any = 0;
#pragma unroll
  for (int i = 0; i < Bytes; i += line) any |= words[i / 4];
  asm volatile("" ::"s"(any));
}
/// `p`, which points into memory and not into LDS. The compiler knows that by itself of a kernel's arguments alone.
template <class T>
__device__ T* to_memory(T* p) {
  auto q = (__attribute__((address_space(1))) T*)p;
  asm("" : "+v"(q));  // a cast there and back would vanish
  return (T*)q;
}

}  // namespace fusewire::platform
