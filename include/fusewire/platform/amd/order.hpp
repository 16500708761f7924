// Memory order: fences, and what drains a wave's stores.
#pragma once
#include <fusewire/platform/amd/vendor.hpp>
#include <fusewire/platform/order.hpp>

namespace fusewire::platform {

/// The compilers' word for an order.
template <order O>
inline constexpr int order_of = O == order::relaxed   ? __ATOMIC_RELAXED
                                : O == order::acquire ? __ATOMIC_ACQUIRE
                                : O == order::release ? __ATOMIC_RELEASE
                                                      : __ATOMIC_ACQ_REL;

/// The compilers' word for a scope.
template <scope S>
inline constexpr int scope_of = S == scope::block    ? __HIP_MEMORY_SCOPE_WORKGROUP
                                : S == scope::device ? __HIP_MEMORY_SCOPE_AGENT
                                                     : __HIP_MEMORY_SCOPE_SYSTEM;

/// Returns once this wave's loads and stores are done, and so is the writeback of a release. The compiler always keeps
/// this wait.
__device__ inline void wait_for_memory() { __builtin_amdgcn_s_waitcnt(0x0f70); }  // vmcnt(0)
/// A release beyond the block writes back the L2; the writeback is complete at the next wait. LLVM 18 to 22 leave out
/// their own wait where they know of no access that is in flight, because they do not count the writeback as an access
/// (llvm/llvm-project, pull request 178316). So a wait is added here.
template <order O, scope S>
__device__ inline void fence() {
  if constexpr (S == scope::block) {
    __builtin_amdgcn_fence(order_of<O>, "workgroup");
  } else if constexpr (O == order::acq_rel) {
    fence<order::release, S>();
    fence<order::acquire, S>();
  } else {
    if constexpr (S == scope::device) __builtin_amdgcn_fence(order_of<O>, "agent");
    else __builtin_amdgcn_fence(order_of<O>, "");
    if constexpr (O == order::release) wait_for_memory();
  }
}
/// Makes what this thread has acquired visible to asynchronous copies that it starts afterwards. Here no copy bypasses
/// an acquire.
__device__ inline void order_async_copies() {}
/// Returns once this wave's own stores have reached its L2. From there a later release by any wave of the block carries
/// them on. __syncthreads() alone does not wait for them: it emits no vmcnt(0).
__device__ inline void drain_stores() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  wait_for_memory();
}

}  // namespace fusewire::platform
