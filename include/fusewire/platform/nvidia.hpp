// sm_90 (H100, H200) through nvcc. Mirrors amd.hpp call by call.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <fusewire/platform/hip_on_cuda.hpp>
#include <fusewire/platform/nvidia_shared_memory.hpp>
#include <fusewire/platform/order.hpp>

#if CUDART_VERSION < 12080
#error "fusewire needs CUDA 12.8 or newer"
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "fusewire needs sm_90a: nvcc -gencode arch=compute_90a,code=sm_90a, or CMAKE_CUDA_ARCHITECTURES=90a"
#endif

namespace fusewire {
namespace platform {

inline constexpr char const* name = "nvidia";
inline constexpr int wave_size = 32;
inline constexpr int max_shared_bytes = 232448;  // 227 KB of one SM

/// 16 bytes that travel through registers as one value.
using native16 = uint4;

// ------------------------------------------------------------------------------------------------------------- indices
__device__ inline int block_index() { return int(blockIdx.x); }
__device__ inline int thread_index() { return int(threadIdx.x); }
__device__ inline int block_threads() { return int(blockDim.x); }
__device__ inline int grid_blocks() { return int(gridDim.x); }

/// The device is one part, with one L2.
inline constexpr int max_parts = 1;
__device__ inline int part_index() { return 0; }

// ------------------------------------------------------------------------------------------------ execution and clocks
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

template <class T>
__device__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
/// The value of a lane in the other half of the 2 << Step lanes around this one, if all lanes of a half have the same.
template <int Step>
__device__ float of_other_half(float x) {
  return shuffle_xor(x, 1 << Step);
}
/// The value of another lane of the wave.
template <class T>
__device__ T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ inline int readlane(int value, int lane) { return shuffle(value, lane); }
/// A bit for each lane for which `x` holds.
__device__ inline std::uint64_t ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
/// 1 + the first lane for which `x` holds; 0 if there is none.
__device__ inline int first_lane_of(bool x) { return __ffs(int(__ballot_sync(0xffffffffu, x))); }
/// `x`, which is the same in every lane of the wave. The compiler may keep it, and what follows from it, once per wave.
__device__ inline int uniform(int x) { return x; }
/// The same of a pointer.
template <class T>
__device__ T* uniform(T* p) {
  return p;
}
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
/// The low or the high 16 bits of each, those of `even` in the low half.
__device__ inline std::uint32_t low_halves(std::uint32_t even, std::uint32_t odd) {
  return (even & 0xffffu) | odd << 16;
}
/// See low_halves().
__device__ inline std::uint32_t high_halves(std::uint32_t even, std::uint32_t odd) {
  return even >> 16 | (odd & 0xffff0000u);
}
/// Whether `rank` is 0.
__device__ inline bool is_first(int rank) { return rank == 0; }
/// Returns when x, which is not 0, has been loaded. Until then its load may be under way, even past a barrier.
__device__ inline void settle(std::uint64_t x) {
  asm volatile("{.reg .pred p; setp.eq.u64 p, %0, 0; @p trap;}" ::"l"(x));
}

/// Nothing to do: arguments are constants, with a cache of their own.
template <int>
__device__ inline void fetch_arguments() {}

/// `p`, which points into memory and not into shared memory.
template <class T>
__device__ T* to_memory(T* p) {
  return p;
}

/// The beginning of a span. No tool records it here.
__device__ inline void begin_span(char const*) {}
/// The end of the span that was begun last.
__device__ inline void end_span() {}

// ------------------------------------------------------------------------------------------------------- memory order
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

/// Nothing to wait for: fences are cumulative, so a release after a barrier covers the stores of every thread that met
/// there.
__device__ inline void drain_stores() {}

template <order O, scope S, class T>
__device__ T atomic_load(T const* p) {
  T value;
  __nv_atomic_load(const_cast<T*>(p), &value, order_of<O>::value, scope_of<S>::value);
  return value;
}
/// For each lane in `lanes` the word that lies `at` bytes behind `data`, as by a relaxed load at system scope; for
/// others 0, and they load nothing.
/// Called by: every lane of a wave.
/// Requires: `data` and `lanes` are the same in all lanes; 0 <= at.
__device__ inline std::uint64_t poll_lanes(void const* data, int at, std::uint64_t lanes) {
  auto const* const word = reinterpret_cast<std::uint64_t const*>(static_cast<char const*>(data) + at);
  return (lanes >> thread_index() % wave_size & 1) != 0 ? atomic_load<order::relaxed, scope::system>(word) : 0;
}

/// Orders what an acquire load of *p would order, by such a load, which costs less than a fence. Called after relaxed
/// loads of *p have found the awaited value. That value must not be overwritten while it is waited for.
template <scope S, class T>
__device__ inline void acquire_polled(T const* p) {
  (void)atomic_load<order::acquire, S>(p);
}
/// The same, where this thread has used the value of such a load.
template <scope S>
__device__ inline void acquire_loaded() {
  fence<order::acquire, S>();
}
template <order O, scope S, class T>
__device__ void atomic_store(T* p, T value) {
  __nv_atomic_store(p, &value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_exchange(T* p, T value) {
  T old;
  __nv_atomic_exchange(p, &value, &old, order_of<O>::value, scope_of<S>::value);
  return old;
}
template <order O, scope S, class T>
__device__ bool atomic_compare_exchange(T* p, T& expected, T desired) {
  return __nv_atomic_compare_exchange(p, &expected, &desired, false, order_of<O>::value, order_of<O>::failure,
                                      scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_add(T* p, T value) {
  if constexpr (std::is_integral_v<T>) {  // nvcc adds no signed 64 bit integers
    using bits = std::make_unsigned_t<T>;
    return T(__nv_atomic_fetch_add(reinterpret_cast<bits*>(p), bits(value), order_of<O>::value, scope_of<S>::value));
  } else {
    return __nv_atomic_fetch_add(p, value, order_of<O>::value, scope_of<S>::value);
  }
}
/// Adds 1 to *p, relaxed, at device scope; returns what *p was. Called by one lane.
__device__ inline unsigned take_ticket(unsigned* p) { return atomic_fetch_add<order::relaxed, scope::device>(p, 1u); }
template <order O, scope S, class T>
__device__ T atomic_fetch_and(T* p, T value) {
  return __nv_atomic_fetch_and(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_or(T* p, T value) {
  return __nv_atomic_fetch_or(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_xor(T* p, T value) {
  return __nv_atomic_fetch_xor(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_min(T* p, T value) {
  return __nv_atomic_fetch_min(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_max(T* p, T value) {
  return __nv_atomic_fetch_max(p, value, order_of<O>::value, scope_of<S>::value);
}

// ------------------------------------------------------------------------------------------------------ element types
__host__ __device__ inline std::uint16_t bf16_from(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
__host__ __device__ inline float float_from_bf16(std::uint16_t bits) {
  return __bfloat162float(__ushort_as_bfloat16(bits));
}
__host__ __device__ inline std::uint16_t f16_from(float x) { return __half_as_ushort(__float2half_rn(x)); }
__host__ __device__ inline float float_from_f16(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ inline float exp2(float x) { return exp2f(x); }
__device__ inline float log2(float x) { return __log2f(x); }
__device__ inline float quick_reciprocal(float x) { return __fdividef(1.0f, x); }  // within 2 ulp

// --------------------------------------------------------------------------------------------------------------- host
/// Memory that peers write and kernels poll. Device memory is coherent in its owner's L2 for all devices.
inline cudaError_t malloc_signal(void** p, std::size_t bytes) { return cudaMalloc(p, bytes); }

/// Nothing to try: there is one memory type, for which PTX's memory model holds in every mapping.
inline constexpr bool tries_flags = false;

/// Whether kernels of several processes run on a device at once, so that they may wait for each other.
inline cudaError_t processes_share_device(int* yes, int device) {
  cudaError_t const e = cudaDeviceGetAttribute(yes, cudaDevAttrMpsEnabled, device);
  if (e == cudaSuccess) return cudaSuccess;
  if (cudaPeekAtLastError() == e) (void)cudaGetLastError();
  *yes = 0;  // a driver without this attribute
  return cudaSuccess;
}

/// Sets the runtime up before its first use. Code is loaded before the first launch instead of during it, because a
/// load can block on a device that is itself blocked on this rank. Where ranks are threads, each of many ranks on one
/// device gets a queue of its own.
inline void prepare_runtime(bool threads) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (threads) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/// The number of parts of a device that take the blocks of a launch in turn, even where another part has room. Here a
/// block goes wherever it fits.
inline cudaError_t xcd_count(int* n, int) {
  *n = 1;
  return cudaSuccess;
}

/// The multiprocessors of the current device that blocks on the stream can fill.
inline cudaError_t usable_cus(int* n, cudaStream_t, int) {
  int device = 0;
  if (cudaError_t const e = cudaGetDevice(&device); e != cudaSuccess) return e;
  return cudaDeviceGetAttribute(n, cudaDevAttrMultiProcessorCount, device);
}

/// The environment variable that makes a device give blocks fewer multiprocessors than CUDA says: there is none.
inline char const* unsupported_mask_variable() { return nullptr; }

/// An id that distinguishes devices with one PCI address: none is needed.
inline cudaError_t device_uuid(char (&)[16], int) { return cudaSuccess; }
inline cudaError_t may_be_partition(int* yes, int) {
  *yes = 0;
  return cudaSuccess;
}

inline cudaError_t allow_shared_bytes(void const* kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/// Attributes of a launch in clusters (blocks that start together and reach each other's shared memory), or an early
/// one.
struct extended_launch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};

  extended_launch(int cluster, bool early, int blocks, int threads, int shared_bytes, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {unsigned(cluster), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = early;
    config = {dim3(unsigned(blocks)), dim3(unsigned(threads)), std::size_t(shared_bytes), stream, attributes,
              early ? 2u : 1u};
  }
};
inline cudaError_t resident_clusters(int* n, void const* kernel, int cluster, int threads, int shared_bytes) {
  extended_launch const l(cluster, false, cluster, threads, shared_bytes, nullptr);
  return cudaOccupancyMaxActiveClusters(n, kernel, &l.config);
}
/// Whether launch_shape::programmatic has an effect: such a launch may start before earlier work on the stream is over,
/// if that work allows it.
inline constexpr bool has_pdl = true;
/// Returns when earlier work on the stream is complete and visible. A kernel that is launched early must not read what
/// that work writes, nor write what it reads, before this returns.
__device__ inline void wait_prior_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Lets the next kernel on the stream start in the room that this one leaves, if it is one that is launched early.
__device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Launches in clusters, or early. `arguments`: the address of each.
inline cudaError_t launch_extended(void const* kernel, int cluster, bool early, int blocks, int threads,
                                   int shared_bytes, cudaStream_t stream, void** arguments) {
  extended_launch const l(cluster, early, blocks, threads, shared_bytes, stream);
  return cudaLaunchKernelExC(&l.config, kernel, arguments);
}

}  // namespace platform
}  // namespace fusewire
