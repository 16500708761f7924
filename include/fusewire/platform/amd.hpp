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

// CUDA's word for a parameter that a kernel reads where it was passed, as every kernel does here
#ifndef __grid_constant__
#define __grid_constant__
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

/// The part of the device that this wave runs on: its XCD, which has an L2 of its own. 0 to max_parts - 1.
inline constexpr int max_parts = 8;
__device__ inline int part_index() {
  return int(__builtin_amdgcn_s_getreg(20 | 31 << 11)) & (max_parts - 1);
}  // XCC_ID

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
/// 1 + the first lane for which `x` holds, 0 if there is none.
__device__ inline int first_lane(bool x) { return __builtin_ffsll(std::int64_t(__ballot(x))); }
/// `x`, which is the same in every lane of the wave: the compiler may keep it, and what follows from it, once per wave.
__device__ inline int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
/// `x`, of which the compiler knows nothing: what follows from it in a loop is computed in every turn, not kept in
/// registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+v"(x));
  return x;
}
/// Whether `rank` is 0, in words that the optimiser does not see through. It threads the lanes for which one test fails
/// past the next test of the same thing, barriers or not: past a loop's head into a loop of their own, while the others
/// of their wave wait to draw the next piece (llvm/llvm-project, pull request 204958). s_barrier counts waves, so it
/// lets them pass.
__device__ inline bool is_first(int rank) { return opaque(rank) == 0; }
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

/// Returns once this wave's loads and stores are done, and the writeback of a release. The compiler keeps this wait,
/// whatever it knows.
__device__ inline void wait_for_memory() { __builtin_amdgcn_s_waitcnt(0x0f70); }  // vmcnt(0)

/// A release beyond the block writes back the L2, and that is over at the next wait. LLVM 18 to 22 leave out their own
/// wait where they know of no access that is under way, because they do not count the writeback as one
/// (llvm/llvm-project, pull request 178316).
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

/// An atomic operation that releases is a fence, which waits, and then the operation with what is left of its order.
template <order O, scope S>
__device__ inline void release_before() {
  if constexpr (O == order::release || O == order::acq_rel) fence<order::release, S>();
}
template <order O>
inline constexpr int order_after_release =
    O == order::relaxed || O == order::release ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;

/// What an acquire load of *p would order, after relaxed loads of it have found the value waited for.
template <scope S, class T>
__device__ inline void acquire_polled(T const*) {
  fence<order::acquire, S>();
}

/// What this thread has acquired, copies that it starts next see, too: no asynchronous copy reads past it here.
__device__ inline void order_async_copies() {}

/// Returns once this wave's own stores have reached its L2, from where a later release of any wave of the block carries
/// them on. __syncthreads() alone does not wait for them: it emits no vmcnt(0).
__device__ inline void drain_stores() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  wait_for_memory();
}

template <order O, scope S, class T>
__device__ T atomic_load(T const* p) {
  return __hip_atomic_load(p, order_of<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ void atomic_store(T* p, T value) {
  release_before<O, S>();
  __hip_atomic_store(p, value, __ATOMIC_RELAXED, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_exchange(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_exchange(p, value, order_after_release<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ bool atomic_compare_exchange(T* p, T& expected, T desired) {
  release_before<O, S>();
  return __hip_atomic_compare_exchange_strong(p, &expected, desired, order_after_release<O>, order_after_release<O>,
                                              scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_add(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_add(p, value, order_after_release<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_and(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_and(p, value, order_after_release<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_or(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_or(p, value, order_after_release<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_xor(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_xor(p, value, order_after_release<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_min(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_min(p, value, order_after_release<O>, scope_of<S>);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_max(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_max(p, value, order_after_release<O>, scope_of<S>);
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
__device__ inline float quick_reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }  // within 1 ulp

// --------------------------------------------------------------------------------------------------------------- host
/// Memory that peers write and kernels poll: never cached by a peer, coherent in the owner's cache.
inline hipError_t malloc_signal(void** p, std::size_t bytes) {
  return hipExtMallocWithFlags(p, bytes, hipDeviceMallocUncached);
}

/// Whether polled memory works is a matter of the memory type that each mapping got, and is tried when a heap is made.
inline constexpr bool tries_flags = true;

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

/// Sets the runtime up before its first use: code is loaded before the first launch instead of during it, because a
/// load can wait for a device that is busy waiting for us. Where ranks are threads, each of many on one device gets a
/// queue.
inline void prepare_runtime(bool threads) {
  if (threads) setenv("GPU_MAX_HW_QUEUES", "32", 0);
}

/// The XCDs of a device with this many compute units, for a HIP that does not say. Those of MI300X, MI325X and MI300A
/// have 38 each, and a partition of such a GPU (DPX, QPX, CPX) is whole XCDs. Other devices count as 8: what is counted
/// in eighths is even on 1, 2, 4 and 8 XCDs.
constexpr int xcds_of(int units) { return units > 0 && units % 38 == 0 ? units / 38 : units < 8 ? units : 8; }

/// How many parts of a device (XCDs) take the blocks of a launch in turn: block i goes to part i modulo their number,
/// and waits there even when another part has room.
inline hipError_t dispatch_parts(int* n, int device) {
#if HIP_VERSION_MAJOR >= 7
  return hipDeviceGetAttribute(n, hipDeviceAttributeNumberOfXccs, device);
#else
  int units = 0;
  hipError_t const e = hipDeviceGetAttribute(&units, hipDeviceAttributePhysicalMultiProcessorCount, device);
  *n = xcds_of(units);
  return e;
#endif
}

/// How many of a mask's compute units blocks can fill: parts take blocks in turn, so every part counts as the one with
/// the fewest. Bit i is a compute unit of part i modulo their number [Linux, mqd_symmetrically_map_cu_mask].
template <std::size_t Words>
constexpr int fillable(std::uint32_t const (&mask)[Words], int parts) {
  int fewest = int(32 * Words);
  for (int p = 0; p < parts; ++p) {
    int units = 0;
    for (int i = p; i < int(32 * Words); i += parts) units += int(mask[i / 32] >> i % 32 & 1);
    fewest = units < fewest ? units : fewest;
  }
  return parts * fewest;
}

/// The compute units of the current device, which has `parts` parts, that blocks on the stream can fill: those that a
/// mask leaves, of the stream (hipExtStreamCreateWithCUMask) or of all streams (ROC_GLOBAL_CU_MASK).
inline hipError_t fillable_units(int* n, hipStream_t stream, int parts) {
  std::uint32_t mask[32] = {};
  hipError_t e = hipExtStreamGetCUMask(stream, 32, mask);
  /// HIP writes nothing for a stream without a mask where there is one of all streams
  bool const none = fillable(mask, 1) == 0;
  if (e == hipSuccess && none) e = hipExtStreamGetCUMask(nullptr, 32, mask);
  *n = fillable(mask, parts);
  return e;
}

/// The environment variable, if one is set, by which a device gives blocks fewer compute units than HIP says; else
/// null.
inline char const* hidden_mask() {
  char const* const mask = std::getenv("HSA_CU_MASK");
  return mask && *mask ? "HSA_CU_MASK" : nullptr;
}

/// What tells devices with one PCI address apart, as partitions of a GPU may have: as far as the driver gives them
/// different ones.
inline hipError_t device_uuid(char (&id)[16], int device) {
  hipUUID uuid;
  hipError_t const e = hipDeviceGetUuid(&uuid, device);
  if (e == hipSuccess) std::memcpy(id, uuid.bytes, sizeof id);
  return e;
}

/// Whether a device may be a partition of a GPU: it has as many compute units as 1, 2 or 4 XCDs.
inline hipError_t may_be_partition(int* yes, int device) {
  int units = 0;
  hipError_t const e = hipDeviceGetAttribute(&units, hipDeviceAttributePhysicalMultiProcessorCount, device);
  *yes = units == 38 || units == 2 * 38 || units == 4 * 38;
  return e;
}

template <class F>
hipError_t allow_shared_bytes(F, int) {
  return hipSuccess;
}  // LDS needs no opt-in

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
