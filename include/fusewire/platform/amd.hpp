// gfx942 (MI300X, MI325X) through ROCm's clang. nvidia.hpp mirrors this file call by call.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <fusewire/platform/order.hpp>

#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx942__)
#error "fusewire needs gfx942: --offload-arch=gfx942, or CMAKE_HIP_ARCHITECTURES=gfx942"
#endif

namespace fusewire {

/// HIP's names, where they are not global already (see nvidia.hpp).
namespace hip {}

namespace platform {

inline constexpr char const* name = "amd";
inline constexpr int wave_size = 64;
inline constexpr int max_shared_bytes = 65536;  // LDS of one CU

/// 16 bytes that travel through registers as one value.
using native16 = std::uint32_t __attribute__((ext_vector_type(4)));

// ------------------------------------------------------------------------------------------------------------- indices
__device__ inline int block_index() { return int(__builtin_amdgcn_workgroup_id_x()); }
__device__ inline int thread_index() { return int(__builtin_amdgcn_workitem_id_x()); }
__device__ inline int block_threads() { return int(__builtin_amdgcn_workgroup_size_x()); }
__device__ inline int grid_blocks() { return int(gridDim.x); }

// ------------------------------------------------------------------------------------------------ execution and clocks
__device__ inline void block_sync() { __syncthreads(); }
__device__ inline void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
/// Between two looks at a flag.
__device__ inline void backoff() { __builtin_amdgcn_s_sleep(1); }
/// The same wall clock on every device of a host, in nanoseconds.
__device__ inline std::uint64_t clock_ns() { return __builtin_amdgcn_s_memrealtime() * 10; }

template <class T>
__device__ T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
/// The value of another lane of the wave.
template <class T>
__device__ T shuffle(T value, int lane) {
  return __shfl(value, lane);
}
/// `x`, which is the same in every lane of the wave: the compiler may keep it, and what follows from it, once per wave.
__device__ inline int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
/// `x`, of which the compiler knows nothing: what follows from it in a loop is computed in every turn, not kept in registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+v"(x));
  return x;
}
/// Returns when x, which is not 0, is there: until then a load may be under way, also past a barrier.
__device__ inline void settle(std::uint64_t x) { asm volatile("" ::"v"(x)); }

// ------------------------------------------------------------------------------------------------------- memory order
template <order O>
inline constexpr int order_of = O == order::relaxed   ? __ATOMIC_RELAXED
                                : O == order::acquire ? __ATOMIC_ACQUIRE
                                : O == order::release ? __ATOMIC_RELEASE
                                                      : __ATOMIC_ACQ_REL;
template <scope S>
inline constexpr int scope_of = S == scope::block    ? __HIP_MEMORY_SCOPE_WORKGROUP
                                : S == scope::device ? __HIP_MEMORY_SCOPE_AGENT
                                                     : __HIP_MEMORY_SCOPE_SYSTEM;

template <order O, scope S>
__device__ inline void fence() {
  if constexpr (S == scope::block) __builtin_amdgcn_fence(order_of<O>, "workgroup");
  else if constexpr (S == scope::device) __builtin_amdgcn_fence(order_of<O>, "agent");
  else __builtin_amdgcn_fence(order_of<O>, "");
}

/// What an acquire load of *p would order, after relaxed loads of it have found the value waited for.
template <scope S, class T>
__device__ inline void acquire_polled(T const*) {
  fence<order::acquire, S>();
}

/// Returns once this wave's own stores have reached its L2, from where a later release of any wave of the block carries them on.
/// __syncthreads() alone does not wait for them: it emits no vmcnt(0).
__device__ inline void drain_stores() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
}

template <order O, scope S, class T>
__device__ T atomic_load(T const* p) {
  return __hip_atomic_load(p, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ void atomic_store(T* p, T value) {
  __hip_atomic_store(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_exchange(T* p, T value) {
  return __hip_atomic_exchange(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ bool atomic_compare_exchange(T* p, T& expected, T desired) {
  constexpr int failure = O == order::acq_rel || O == order::acquire ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
  return __hip_atomic_compare_exchange_strong(p, &expected, desired, order_of<O>, failure, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_add(T* p, T value) {
  return __hip_atomic_fetch_add(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_and(T* p, T value) {
  return __hip_atomic_fetch_and(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_or(T* p, T value) {
  return __hip_atomic_fetch_or(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_xor(T* p, T value) {
  return __hip_atomic_fetch_xor(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_min(T* p, T value) {
  return __hip_atomic_fetch_min(p, value, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_max(T* p, T value) {
  return __hip_atomic_fetch_max(p, value, order_of<O>, scope_of<S>);
}

// ------------------------------------------------------------------------------------------------------ element types
__host__ __device__ inline std::uint16_t bf16_from(float x) {  // round to nearest even; NaN stays NaN
  std::uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return x != x ? std::uint16_t(u >> 16 | 0x40) : std::uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
__host__ __device__ inline float float_from_bf16(std::uint16_t bits) {
  std::uint32_t const u = std::uint32_t(bits) << 16;
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
__host__ __device__ inline std::uint16_t f16_from(float x) {
  _Float16 const h = _Float16(x);
  std::uint16_t bits;
  __builtin_memcpy(&bits, &h, 2);
  return bits;
}
__host__ __device__ inline float float_from_f16(std::uint16_t bits) {
  _Float16 h;
  __builtin_memcpy(&h, &bits, 2);
  return float(h);
}
__device__ inline float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
__device__ inline float log2(float x) { return __builtin_amdgcn_logf(x); }

// --------------------------------------------------------------------------------------------------------------- host
/// Memory that peers write and kernels poll: never cached by a peer, coherent in the owner's cache.
inline hipError_t malloc_signal(void** p, std::size_t bytes) { return hipExtMallocWithFlags(p, bytes, hipDeviceMallocUncached); }

/// Whether kernels of several processes run on a device at once, so that they may wait for each other.
inline hipError_t processes_share_device(int* yes, int) {
  *yes = 1;  // every process has hardware queues of its own
  return hipSuccess;
}

/// Memory that other processes of the host map through a file descriptor; nvidia only.
inline hipError_t malloc_shared(void**, std::size_t*, int) { return hipErrorNotSupported; }
inline hipError_t export_shared(int*, void*) { return hipErrorNotSupported; }
inline hipError_t import_shared(void**, std::size_t, int, int) { return hipErrorNotSupported; }
inline void free_shared(void*, std::size_t) {}

/// Sets the runtime up before its first use: code is loaded before the first launch instead of during it, because a load can wait
/// for a device that is busy waiting for us. Where ranks are threads, each of many on one device gets a queue.
inline void prepare_runtime(bool threads) {
  if (threads) setenv("GPU_MAX_HW_QUEUES", "32", 0);
}

/// How many parts of a device (XCDs) take the blocks of a launch in turn: block i goes to part i modulo their number, and waits there
/// even when another part has room.
inline hipError_t dispatch_parts(int* n, int device) { return hipDeviceGetAttribute(n, hipDeviceAttributeNumberOfXccs, device); }

template <class F>
hipError_t allow_shared_bytes(F, int) { return hipSuccess; }  // LDS needs no opt-in

/// There are no clusters of blocks.
template <class F>
hipError_t resident_clusters(int* n, F, int, int, int) {
  *n = 0;
  return hipSuccess;
}
inline constexpr bool launches_early = false;
__device__ inline void wait_for_stream() {}
__device__ inline void release_stream() {}
template <class... P>
hipError_t launch_extended(void (*)(P...), int, bool, int, int, int, hipStream_t, P...) {
  return hipErrorNotSupported;
}

}  // namespace platform
}  // namespace fusewire
