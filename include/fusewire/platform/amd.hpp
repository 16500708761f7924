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

// CUDA's word for a parameter that a kernel reads in place, as every kernel here does
#ifndef __grid_constant__
#define __grid_constant__
#endif

namespace fusewire {

/// HIP's names, where they are not global already (see nvidia.hpp).
namespace hip {}

namespace platform {

inline constexpr char const* name = "amd";      // of the vendor
inline constexpr int wave_size = 64;            // lanes
inline constexpr int max_shared_bytes = 65536;  // LDS of one CU

/// 16 bytes that travel through registers as one value.
using native16 = std::uint32_t __attribute__((ext_vector_type(4)));

// ------------------------------------------------------------------------------------------------------------- indices
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

/// The most parts that a device has: its XCDs, each with an L2 of its own.
inline constexpr int max_parts = 8;
/// The part that this wave runs on, 0 to max_parts - 1.
__device__ inline int part_index() {
  return int(__builtin_amdgcn_s_getreg(20 | 31 << 11)) & (max_parts - 1);
}  // XCC_ID

// ------------------------------------------------------------------------------------------------ execution and clocks
/// All threads of the block meet. What they stored to LDS and to memory is then visible to the block.
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

/// The value of lane `lane ^ mask`.
template <class T>
__device__ T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
/// The value of a lane in the other half of the 2 << Step lanes around this one, if all lanes of a half have the same.
template <int Step>
__device__ float of_other_half(float x) {
  static_assert(Step < 4);
  // By data-parallel primitives, without LDS: lane ^ 1, lane ^ 2, lane ^ 7, lane ^ 15
  constexpr int how[] = {0xb1, 0x4e, 0x141, 0x140};
  return __builtin_bit_cast(float, __builtin_amdgcn_mov_dpp(__builtin_bit_cast(int, x), how[Step], 0xf, 0xf, true));
}
/// The value of another lane of the wave.
template <class T>
__device__ T shuffle(T value, int lane) {
  return __shfl(value, lane);
}
/// The value of lane `lane`, which is the same number in all lanes of the wave.
__device__ inline int readlane(int value, int lane) { return __builtin_amdgcn_readlane(value, lane); }
/// A bit for each lane for which `x` holds.
__device__ inline std::uint64_t ballot(bool x) { return __ballot(x); }
/// 1 + the first lane for which `x` holds; 0 if there is none.
__device__ inline int first_lane_of(bool x) { return __builtin_ffsll(std::int64_t(__ballot(x))); }
/// `x`, which is the same in every lane of the wave. The compiler may keep it, and what follows from it, once per wave.
__device__ inline int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
/// The same of a pointer. The compiler does not fetch it from a kernel's arguments again.
template <class T>
__device__ T* uniform(T* p) {
  auto const x = reinterpret_cast<std::uint64_t>(p);
  std::uint64_t const high = std::uint32_t(uniform(int(x >> 32))), low = std::uint32_t(uniform(int(x)));
  return reinterpret_cast<T*>(high << 32 | low);
}
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
/// The low or the high 16 bits of each, those of `even` in the low half.
__device__ inline std::uint32_t low_halves(std::uint32_t even, std::uint32_t odd) {
  return __builtin_amdgcn_perm(odd, even, 0x05040100);
}
/// See low_halves().
__device__ inline std::uint32_t high_halves(std::uint32_t even, std::uint32_t odd) {
  return __builtin_amdgcn_perm(odd, even, 0x07060302);
}
/// Whether `rank` is 0, written so that the optimiser does not see through it. Otherwise the optimiser may thread
/// jumps: lanes for which one test fails skip the next test of the same condition, even across barriers. They then
/// enter a loop of their own, while the other lanes of their wave wait to draw the next piece (llvm/llvm-project, pull
/// request 204958). s_barrier counts waves, so it lets them pass.
__device__ inline bool is_first(int rank) { return opaque(rank) == 0; }
/// Returns when x, which is not 0, has been loaded. Until then its load may be under way, even past a barrier.
__device__ inline void settle(std::uint64_t x) { asm volatile("" ::"v"(x)); }

/// Brings the first `Bytes` bytes of the kernel's arguments into the scalar cache, all lines at once. Without it, a
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

/// Begins a span. It writes the address of its name, in two words, to the wave's trace data, for a tool that records
/// these; it does nothing else.
__device__ inline void begin_span(char const* name) {
  auto const at = std::uint64_t(name);
  __builtin_amdgcn_s_ttracedata(int(at));
  __builtin_amdgcn_s_ttracedata(int(at >> 32));
}
/// Ends the span that was begun last. Its address is 0.
__device__ inline void end_span() { begin_span(nullptr); }

// ------------------------------------------------------------------------------------------------------- memory order
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
/// their own wait where they know of no access that is under way, because they do not count the writeback as an access
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

/// An atomic operation that releases is a fence, which waits, and then the operation with the rest of its order.
template <order O, scope S>
__device__ inline void release_before() {
  if constexpr (O == order::release || O == order::acq_rel) fence<order::release, S>();
}
/// The order of an operation itself when release_before() comes before it.
template <order O>
inline constexpr int order_after_release =
    O == order::relaxed || O == order::release ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;

/// Whether this lane is in `lanes`, which is the same in all lanes.
__device__ inline bool is_in(std::uint64_t lanes) {
#if __has_builtin(__builtin_amdgcn_inverse_ballot_w64)
  return __builtin_amdgcn_inverse_ballot_w64(lanes);
#else
  return lanes >> __lane_id() & 1;  // clang 19
#endif
}

/// For each lane in `lanes` the word that lies `at` bytes behind `data`, as by a relaxed load at system scope; for
/// others 0, and they load nothing. There is no branch, so the compiler knows how many loads are under way.
/// Called by: every lane of a wave.
/// Requires: `data` and `lanes` are the same in all lanes; 0 <= at < 2^31 - 2^16.
__device__ inline std::uint64_t poll_lanes(void const* data, int at, std::uint64_t lanes) {
  constexpr int beyond = 0x7fff0000, raw_32_bit = 0x00020000, system_scope = 17;
  auto const memory = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(data), 0, beyond, raw_32_bit);
  auto const word = __builtin_amdgcn_raw_buffer_load_b64(memory, is_in(lanes) ? at : beyond, 0, system_scope);
  return __builtin_bit_cast(std::uint64_t, word);
}

/// Orders what an acquire load of *p would order. Called after relaxed loads of *p have found the awaited value.
template <scope S, class T>
__device__ inline void acquire_polled(T const*) {
  fence<order::acquire, S>();
}

/// The same, where this thread has used the value of such a load, so that the load is complete. Unlike a fence, it does
/// not wait for other loads that are under way, and it orders only later loads.
template <scope S>
__device__ inline void acquire_loaded() {
  static_assert(S == scope::system);
  asm volatile("buffer_inv sc0 sc1" ::: "memory");
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

/// An aligned load of 4 or 8 bytes in one piece. Order: relaxed or acquire.
template <order O, scope S, class T>
__device__ T atomic_load(T const* p) {
  return __hip_atomic_load(p, order_of<O>, scope_of<S>);
}
/// An aligned store of 4 or 8 bytes in one piece. Order: relaxed or release.
template <order O, scope S, class T>
__device__ void atomic_store(T* p, T value) {
  release_before<O, S>();
  __hip_atomic_store(p, value, __ATOMIC_RELAXED, scope_of<S>);
}
/// Stores `value`; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_exchange(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_exchange(p, value, order_after_release<O>, scope_of<S>);
}
/// True when *p was `expected` and is now `desired`; otherwise `expected` becomes what *p was.
template <order O, scope S, class T>
__device__ bool atomic_compare_exchange(T* p, T& expected, T desired) {
  release_before<O, S>();
  return __hip_atomic_compare_exchange_strong(p, &expected, desired, order_after_release<O>, order_after_release<O>,
                                              scope_of<S>);
}
/// Adds; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_add(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_add(p, value, order_after_release<O>, scope_of<S>);
}
/// Adds 1 to *p, relaxed, at device scope; returns what *p was. Called by one lane, which waits for the result where it
/// uses it. p is hidden from the compiler: where it knows that all lanes have the same p, one lane adds for all, and
/// the wave waits at once for the result and for every load before it.
__device__ inline unsigned take_ticket(unsigned* p) {
  unsigned none = 0;
  asm volatile("" : "+v"(none));
  auto* const readlane = reinterpret_cast<unsigned*>(reinterpret_cast<char*>(p) + none);
  return __hip_atomic_fetch_add(readlane, 1u, __ATOMIC_RELAXED, scope_of<scope::device>);
}
/// Stores *p & value; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_and(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_and(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores *p | value; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_or(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_or(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores *p ^ value; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_xor(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_xor(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores the smaller of *p and `value`; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_min(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_min(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores the larger of *p and `value`; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_max(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_max(p, value, order_after_release<O>, scope_of<S>);
}

// ------------------------------------------------------------------------------------------------------ element types
/// The bits of x as bfloat16.
__host__ __device__ inline std::uint16_t bf16_from(float x) {  // round to nearest even; NaN stays NaN
  std::uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  std::uint32_t const quiet = u | 0x400000, rounded = u + 0x7fff + (u >> 16 & 1);  // before the choice: no branch
  return std::uint16_t((x != x ? quiet : rounded) >> 16);
}
/// The value of these bits of a bfloat16.
__host__ __device__ inline float float_from_bf16(std::uint16_t bits) {
  std::uint32_t const u = std::uint32_t(bits) << 16;
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
/// The bits of x as IEEE binary16: round to nearest even.
__host__ __device__ inline std::uint16_t f16_from(float x) {
  _Float16 const h = _Float16(x);
  std::uint16_t bits;
  __builtin_memcpy(&bits, &h, 2);
  return bits;
}
/// The value of these bits of an IEEE binary16.
__host__ __device__ inline float float_from_f16(std::uint16_t bits) {
  _Float16 h;
  __builtin_memcpy(&h, &bits, 2);
  return float(h);
}
/// 2^x by the hardware, about 1 ulp; denormal results are 0.
__device__ inline float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
/// Logarithm to the base 2 by the hardware, about 1 ulp.
__device__ inline float log2(float x) { return __builtin_amdgcn_logf(x); }
__device__ inline float quick_reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }  // within 1 ulp

// --------------------------------------------------------------------------------------------------------------- host
/// Memory that peers write and kernels poll: never cached by a peer, coherent in the owner's cache.
inline hipError_t malloc_signal(void** p, std::size_t bytes) {
  return hipExtMallocWithFlags(p, bytes, hipDeviceMallocUncached);
}

/// Whether polled memory works depends on the memory type of each mapping. So it is tried when a heap is made.
inline constexpr bool tries_flags = true;

/// Whether kernels of several processes run on a device at once, so that they may wait for each other.
inline hipError_t processes_share_device(int* yes, int) {
  *yes = 1;  // every process has hardware queues of its own
  return hipSuccess;
}

/// Memory that other processes of the host map through a file descriptor; nvidia only.
inline hipError_t malloc_shared(void**, std::size_t*, int) { return hipErrorNotSupported; }
/// See malloc_shared().
inline hipError_t export_shared(int*, void*) { return hipErrorNotSupported; }
/// See malloc_shared().
inline hipError_t import_shared(void**, std::size_t, int, int) { return hipErrorNotSupported; }
/// See malloc_shared().
inline void free_shared(void*, std::size_t) {}

/// Sets the runtime up before its first use: where ranks are threads, up to 32 hardware queues, so that each of many
/// ranks on one device gets one.
inline void prepare_runtime(bool threads) {
  if (threads) setenv("GPU_MAX_HW_QUEUES", "32", 0);
}

/// The number of XCDs of a device with this many compute units, for a HIP that does not say it. XCDs of MI300X, MI325X
/// and MI300A have 38 units each, and a partition of such a GPU (DPX, QPX, CPX) consists of whole XCDs. Other devices
/// count as 8 XCDs, because what is divided evenly by 8 is even on 1, 2 and 4 as well.
constexpr int xcds_of(int units) { return units > 0 && units % 38 == 0 ? units / 38 : units < 8 ? units : 8; }

/// How many parts of a device (XCDs) take the blocks of a launch in turn: block i goes to part i modulo their number,
/// and waits there even when another part has room.
inline hipError_t xcd_count(int* n, int device) {
#if HIP_VERSION_MAJOR >= 7
  return hipDeviceGetAttribute(n, hipDeviceAttributeNumberOfXccs, device);
#else
  int units = 0;
  hipError_t const e = hipDeviceGetAttribute(&units, hipDeviceAttributePhysicalMultiProcessorCount, device);
  *n = xcds_of(units);
  return e;
#endif
}

/// The number of a mask's compute units that blocks can fill. Parts take blocks in turn, so every part counts as the
/// part with the fewest units. Bit i is a compute unit of part i modulo the number of parts [Linux,
/// mqd_symmetrically_map_cu_mask].
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

/// The compute units of the current device, which has `parts` parts, that blocks on the stream can fill. A mask of the
/// stream (hipExtStreamCreateWithCUMask), or of all streams (ROC_GLOBAL_CU_MASK), may take some away.
inline hipError_t usable_cus(int* n, hipStream_t stream, int parts) {
  std::uint32_t mask[32] = {};
  hipError_t e = hipExtStreamGetCUMask(stream, 32, mask);
  // For a stream without a mask HIP writes nothing, even if there is a mask of all streams
  bool const none = fillable(mask, 1) == 0;
  if (e == hipSuccess && none) e = hipExtStreamGetCUMask(nullptr, 32, mask);
  *n = fillable(mask, parts);
  return e;
}

/// The environment variable, if it is set, that makes a device give blocks fewer compute units than HIP says; else
/// null.
inline char const* unsupported_mask_variable() {
  char const* const mask = std::getenv("HSA_CU_MASK");
  return mask && *mask ? "HSA_CU_MASK" : nullptr;
}

/// An id that distinguishes devices with one PCI address, as partitions of a GPU may have, where the driver gives them
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

/// Allows a kernel that much dynamic shared memory.
inline hipError_t allow_shared_bytes(void const*, int) { return hipSuccess; }  // LDS needs no opt-in

/// There are no clusters of blocks here.
inline hipError_t resident_clusters(int* n, void const*, int, int, int) {
  *n = 0;
  return hipSuccess;
}
/// Whether launch_shape::programmatic has an effect.
inline constexpr bool has_pdl = false;
/// Returns when earlier work on the stream is complete and visible. Here a kernel does not start before that.
__device__ inline void wait_prior_grid() {}
/// Lets the next launch on the stream start, if it is early.
__device__ inline void launch_dependents() {}
/// Launches in clusters, or early. Called by: launch(), where the device has clusters.
inline hipError_t launch_extended(void const*, int, bool, int, int, int, hipStream_t, void**) {
  return hipErrorNotSupported;
}

}  // namespace platform
}  // namespace fusewire
