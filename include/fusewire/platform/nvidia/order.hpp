// Memory order: fences, and what drains a wave's stores.
#pragma once
#include <fusewire/platform/nvidia/vendor.hpp>
#include <fusewire/platform/order.hpp>

namespace fusewire::platform {

// Enumerators, because nvcc's atomics take no constexpr variables.
template <order O>
struct order_of {
  enum {
    value = O == order::relaxed   ? __NV_ATOMIC_RELAXED
            : O == order::acquire ? __NV_ATOMIC_ACQUIRE
            : O == order::release ? __NV_ATOMIC_RELEASE
                                  : __NV_ATOMIC_ACQ_REL,
    failure = O == order::acquire || O == order::acq_rel ? __NV_ATOMIC_ACQUIRE : __NV_ATOMIC_RELAXED,
  };
};

template <scope S>
struct scope_of {
  enum {
    value = S == scope::block    ? __NV_THREAD_SCOPE_BLOCK
            : S == scope::device ? __NV_THREAD_SCOPE_DEVICE
                                 : __NV_THREAD_SCOPE_SYSTEM,
  };
};

/// PTX has no fence weaker than acq_rel.
template <order O, scope S>
__device__ inline void fence() {
  if constexpr (S == scope::block) asm volatile("fence.acq_rel.cta;" ::: "memory");
  else if constexpr (S == scope::device) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  else asm volatile("fence.acq_rel.sys;" ::: "memory");
}
/// Makes what this thread has acquired visible to asynchronous copies (TMA) that it starts afterwards.
__device__ inline void order_async_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// Nothing to wait for: fences are cumulative, so a release after a barrier covers the stores of every thread that
/// synced there.
__device__ inline void drain_stores() {}

}  // namespace fusewire::platform
