// Kernels whose simulated time is known from the machine's rates.
//
//   fusewire-sim --time timed NAME: prints "NAME value", in the unit that the case says
#include "check.hpp"

#include <atomic>
#include <cstring>
#include <fusewire/device/trace_span.hpp>
#include <numeric>
#include <thread>
#include <vector>

using f32x4 = __attribute__((ext_vector_type(4))) float;
using s16x4 = __attribute__((ext_vector_type(4))) short;
using u32x4 = __attribute__((ext_vector_type(4))) unsigned;

__device__ unsigned long long cycles() {
  __builtin_amdgcn_s_waitcnt(0);
  unsigned long long const t = __builtin_readcyclecounter();
  __builtin_amdgcn_s_waitcnt(0);
  return t;
}

constexpr int few = 64, many = 128;  // instructions; what the others take is the difference

/// Runs the same code twice, first to bring it into the instruction cache, and measures the second time.
template <class F>
__device__ void measure(unsigned long long* took, F&& code) {
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    unsigned long long const from = cycles();
    code();
    unsigned long long const to = cycles();
    if (threadIdx.x == 0) *took = to - from;
  }
}

/// Products of which each adds to what the one before it made, or, with four chains, the fourth before it.
template <int Chains, int Repeats>
__global__ void products(unsigned long long* took, float* out) {
  s16x4 const a{0x3f80, 0x3f80, 0x3f80, 0x3f80};
  f32x4 w{}, x{}, y{}, z{};
  measure(took, [&] {
    if constexpr (Chains == 4)
      asm volatile(
          ".rept %c5\n"
          "v_mfma_f32_16x16x16_bf16 %0, %4, %4, %0\nv_mfma_f32_16x16x16_bf16 %1, %4, %4, %1\n"
          "v_mfma_f32_16x16x16_bf16 %2, %4, %4, %2\nv_mfma_f32_16x16x16_bf16 %3, %4, %4, %3\n.endr\ns_nop 15\ns_nop 15"
          : "+v"(w), "+v"(x), "+v"(y), "+v"(z)
          : "v"(a), "i"(Repeats / 4));
    else
      asm volatile(".rept %c2\nv_mfma_f32_16x16x16_bf16 %0, %1, %1, %0\n.endr\ns_nop 15\ns_nop 15"
                   : "+v"(w)
                   : "v"(a), "i"(Repeats));
  });
  out[threadIdx.x] = w[0] + x[0] + y[0] + z[0];
}

/// Products of which each multiplies with what the one before it made.
template <int Repeats>
__global__ void dependent_products(unsigned long long* took, float* out) {
  measure(took, [&] {
    asm volatile(".rept %c0\nv_mfma_f32_16x16x16_bf16 v[104:107], v[100:101], v[100:101], 0\nv_mfma_f32_16x16x16_bf16 "
                 "v[100:103], v[104:105], v[104:105], 0\n.endr\n"
                 "s_nop 15\ns_nop 15" ::"i"(Repeats / 2)
                 : "v100", "v101", "v102", "v103", "v104", "v105", "v106", "v107");
  });
  out[threadIdx.x] = 0;
}

template <int Repeats>
__global__ void adds(unsigned long long* took, float* out) {
  float x = 0;
  measure(took, [&] { asm volatile(".rept %c1\nv_add_f32 %0, 1.0, %0\n.endr" : "+v"(x) : "i"(Repeats)); });
  out[threadIdx.x] = x;
}

/// Measures four additions of the first wave of each SIMD, behind a barrier to which the second one comes last. That
/// one goes on with `Repeats` additions.
template <int Repeats>
__global__ void adds_behind_a_barrier(unsigned long long* took, float* out) {
  float x = 0;
  bool const last = __builtin_amdgcn_readfirstlane(threadIdx.x) >= 256;
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    asm volatile("s_barrier");
    if (last) {
      asm volatile(".rept 64\nv_add_f32 %0, 1.0, %0\n.endr\ns_barrier\n.rept %c1\nv_add_f32 %0, 1.0, %0\n.endr"
                   : "+v"(x)
                   : "i"(Repeats));
    } else {
      unsigned long long const from = cycles();
      asm volatile("s_barrier\n.rept 4\nv_add_f32 %0, 1.0, %0\n.endr" : "+v"(x));
      unsigned long long const to = cycles();
      if (threadIdx.x == 192) *took = to - from;  // on the SIMD of the last wave of all
    }
  }
  out[threadIdx.x] = x;
}

/// Reads of LDS, `stride` words from lane to lane.
template <int Repeats>
__global__ void lds_reads(unsigned long long* took, float* out, int stride) {
  __shared__ float data[64 * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += 64) data[i] = 1;
  unsigned const at = threadIdx.x * stride * 4;
  float x = 0;
  __syncthreads();
  measure(took, [&] {
    asm volatile(".rept %c2\nds_read_b32 %0, %1\n.endr\ns_waitcnt lgkmcnt(0)" : "=v"(x) : "v"(at), "i"(Repeats));
  });
  out[threadIdx.x] = x + data[threadIdx.x];
}

__global__ void copy(u32x4* to, u32x4 const* from, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    to[i] = from[i];
}

__global__ __launch_bounds__(256) void copy_wide(u32x4* to, u32x4 const* from, size_t n) {
  for (size_t i = blockIdx.x * size_t{1024} + threadIdx.x; i < n; i += gridDim.x * size_t{1024}) {
    u32x4 x[4];
    for (int j = 0; j < 4; ++j) x[j] = from[i + j * 256];
    for (int j = 0; j < 4; ++j) to[i + j * 256] = x[j];
  }
  __threadfence_system();
}

/// A dependent chain of loads: each gives the index of the next.
/// Goes around twice, and measures the second time.
__global__ void chase(unsigned long long* took, unsigned const* next, int n, unsigned* out) {
  unsigned at = threadIdx.x;
  asm volatile("" : "+v"(at));
  for (int i = 0; i < n; ++i) at = next[at];
  asm volatile("" : "+v"(at));
  unsigned long long const from = cycles();
  for (int i = 0; i < n; ++i) at = next[at];
  asm volatile("" : "+v"(at));
  unsigned long long const to = cycles();
  *out = at;
  *took = (to - from) / n;
}

__global__ void ping(unsigned* mine, unsigned* theirs, int first, int rounds, unsigned long long* took) {
  unsigned long long const from = wall_clock64();
  for (int i = 1; i <= rounds; ++i) {
    if (first) __hip_atomic_store(theirs, i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    while (__hip_atomic_load(mine, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) != static_cast<unsigned>(i)) {}
    if (!first) __hip_atomic_store(theirs, i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  *took = wall_clock64() - from;
}

namespace {

unsigned long long* took;
float* out;
hipEvent_t begin_, end_;

void setup() {
  HIP(hipMalloc(&took, 64));
  HIP(hipMalloc(&out, 1 << 16));
  HIP(hipEventCreate(&begin_));
  HIP(hipEventCreate(&end_));
}
unsigned long long cycles_taken() {
  unsigned long long t = 0;
  HIP(hipMemcpy(&t, took, 8, hipMemcpyDeviceToHost));
  return t;
}
template <class F>
double microseconds(F&& launch) {
  HIP(hipEventRecord(begin_));
  launch();
  HIP(hipEventRecord(end_));
  HIP(hipEventSynchronize(end_));
  float ms = 0;
  HIP(hipEventElapsedTime(&ms, begin_, end_));
  return ms * 1e3;
}
/// Cycles of one of the instructions that the second has more of.
template <class F, class G>
void print_cycles(F&& fewer, G&& more) {
  fewer();
  auto const short_one = cycles_taken();
  more();
  std::printf("%.2f\n", static_cast<double>(cycles_taken() - short_one) / (many - few));
}

template <class T>
T* device(size_t bytes, int value = 0) {
  T* p;
  HIP(hipMalloc(&p, bytes));
  HIP(hipMemset(p, value, bytes));
  return p;
}

/// GB/s of the bytes that are read and written.
void copy_bandwidth(size_t megabytes, bool wide) {
  size_t const bytes = megabytes << 20;
  auto* const from = device<u32x4>(bytes, 1);
  auto* const to = device<u32x4>(bytes, 2);
  copy<<<1, 64>>>(to, from, 64);
  double const us = microseconds(
      [&] { wide ? copy_wide<<<1216, 256>>>(to, from, bytes / 16) : copy<<<2432, 256>>>(to, from, bytes / 16); });
  std::vector<char> back(bytes);
  HIP(hipMemcpy(back.data(), to, bytes, hipMemcpyDeviceToHost));
  for (char c : back) CHECK(c == 1);
  std::printf("%.1f\n", 2.0 * static_cast<double>(bytes) / us / 1e3);
}

/// GB/s over one link.
void push(size_t megabytes, bool pull) {
  size_t const bytes = megabytes << 20;
  auto* const here = device<u32x4>(bytes, 1);
  HIP(hipSetDevice(1));
  auto* const there = device<u32x4>(bytes, 1);
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  copy<<<1, 64>>>(here, there, 64);
  double const us = microseconds([&] {
    pull ? copy_wide<<<304, 256>>>(here, there, bytes / 16) : copy_wide<<<304, 256>>>(there, here, bytes / 16);
  });
  std::printf("%.2f\n", static_cast<double>(bytes) / us / 1e3);
}

__global__ void to_both(u32x4* one, u32x4* other, u32x4 const* from, size_t n) {
  u32x4* const to = blockIdx.x % 2 ? one : other;
  size_t const step = gridDim.x / 2 * blockDim.x;
  for (size_t i = blockIdx.x / 2 * blockDim.x + threadIdx.x; i < n; i += step) to[i] = from[i];
  __threadfence_system();
}

/// GB/s over each of two links that a GPU sends over at the same time.
void push_to_two(size_t megabytes) {
  size_t const bytes = megabytes << 20;
  u32x4* at[3];
  for (int g : {2, 1, 0}) {
    HIP(hipSetDevice(g));
    at[g] = device<u32x4>(bytes);
  }
  for (int peer : {1, 2}) HIP(hipDeviceEnablePeerAccess(peer, 0));
  to_both<<<2, 64>>>(at[1], at[2], at[0], 64);
  double const us = microseconds([&] { to_both<<<304, 256>>>(at[1], at[2], at[0], bytes / 16); });
  std::printf("%.2f\n", static_cast<double>(bytes) / us / 1e3);
}

/// Cycles of a load from `n` lines, `step` bytes apart, that have all been loaded once.
void latency(int n, size_t step) {
  size_t const bytes = n * step;
  std::vector<unsigned> next(bytes / 4);
  for (int i = 0; i < n; ++i) next[i * step / 4] = static_cast<unsigned>((i + 1) % n * step / 4);
  auto* const p = device<unsigned>(bytes);
  HIP(hipMemcpy(p, next.data(), bytes, hipMemcpyHostToDevice));
  chase<<<1, 1>>>(took, p, n, reinterpret_cast<unsigned*>(out));
  std::printf("%llu\n", cycles_taken());
}

/// Nanoseconds from GPU to GPU.
__global__ void spans(unsigned long long* took) {
  fusewire::trace_span<true> const all("all of it");
  {
    fusewire::trace_span<true> const quiet("a \"quiet\" while");
    __builtin_amdgcn_s_sleep(100);
  }
  *took = 0;
}

void flag_latency() {
  unsigned* flag[2];
  unsigned long long* times[2];
  int const rounds = 50;
  for (int d = 0; d < 2; ++d) {
    HIP(hipSetDevice(d));
    HIP(hipDeviceEnablePeerAccess(1 - d, 0));
    HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&flag[d]), 4096, hipDeviceMallocUncached));
    HIP(hipMemset(flag[d], 0, 4096));
    times[d] = device<unsigned long long>(8);
    HIP(hipDeviceSynchronize());
  }
  std::vector<std::thread> threads;
  for (int d = 0; d < 2; ++d)
    threads.emplace_back([&, d] {
      HIP(hipSetDevice(d));
      ping<<<1, 1>>>(flag[d], flag[1 - d], d == 0, rounds, times[d]);
      HIP(hipDeviceSynchronize());
    });
  for (auto& t : threads) t.join();
  unsigned long long t = 0;
  HIP(hipMemcpy(&t, times[1], 8, hipMemcpyDeviceToHost));
  std::printf("%.0f\n", static_cast<double>(t) * 10 / rounds / 2);
}

/// A thread for each GPU reads what GPU 0 has. They create their streams and launch one after the other, in either
/// order. Prints the sum of their times in microseconds.
void pulls_of_all(bool last_first) {
  int gpus = 0;
  HIP(hipGetDeviceCount(&gpus));
  size_t const bytes = 256 << 10;
  auto* const source = device<u32x4>(bytes, 1);
  HIP(hipDeviceSynchronize());
  std::atomic<int> streams = 0, launches = 0;
  std::vector<float> ms(static_cast<size_t>(gpus));
  auto const rank = [&](int gpu) {
    int const place = last_first ? gpus - 1 - gpu : gpu;
    HIP(hipSetDevice(gpu));
    auto* const to = device<u32x4>(bytes);
    hipStream_t stream;
    hipEvent_t begin, end;
    HIP(hipEventCreate(&begin));
    HIP(hipEventCreate(&end));
    while (streams != place) std::this_thread::yield();
    HIP(hipStreamCreate(&stream));
    ++streams;
    while (launches != place) std::this_thread::yield();
    HIP(hipEventRecord(begin, stream));
    copy_wide<<<32, 256, 0, stream>>>(to, source, bytes / 16);
    HIP(hipEventRecord(end, stream));
    ++launches;
    HIP(hipStreamSynchronize(stream));
    HIP(hipEventElapsedTime(&ms[static_cast<size_t>(gpu)], begin, end));
  };
  std::vector<std::thread> ranks;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    HIP(hipSetDevice(gpu));
    if (gpu) HIP(hipDeviceEnablePeerAccess(0, 0));
    ranks.emplace_back(rank, gpu);
  }
  for (auto& r : ranks) r.join();
  std::printf("%.3f\n", std::accumulate(ms.begin(), ms.end(), 0.) * 1e3);
}

constexpr test_case cases[] = {
    {"independent_products",
     [] {
       print_cycles([] { products<4, few><<<1, 64>>>(took, out); }, [] { products<4, many><<<1, 64>>>(took, out); });
     }},
    {"accumulated_products",
     [] {
       print_cycles([] { products<1, few><<<1, 64>>>(took, out); }, [] { products<1, many><<<1, 64>>>(took, out); });
     }},
    {"dependent_products",
     [] {
       print_cycles([] { dependent_products<few><<<1, 64>>>(took, out); },
                    [] { dependent_products<many><<<1, 64>>>(took, out); });
     }},
    {"adds", [] { print_cycles([] { adds<few><<<1, 64>>>(took, out); }, [] { adds<many><<<1, 64>>>(took, out); }); }},
    {"adds_behind_a_barrier",
     [] {
       print_cycles([] { adds_behind_a_barrier<few><<<1, 512>>>(took, out); },
                    [] { adds_behind_a_barrier<many><<<1, 512>>>(took, out); });
     }},
    {"adds_two_waves_a_simd",
     [] { print_cycles([] { adds<few><<<1, 512>>>(took, out); }, [] { adds<many><<<1, 512>>>(took, out); }); }},
    {"lds_reads",
     [] {
       print_cycles([] { lds_reads<few><<<1, 64>>>(took, out, 1); }, [] { lds_reads<many><<<1, 64>>>(took, out, 1); });
     }},
    {"lds_conflicts_4",
     [] {
       print_cycles([] { lds_reads<few><<<1, 64>>>(took, out, 4); }, [] { lds_reads<many><<<1, 64>>>(took, out, 4); });
     }},
    {"lds_conflicts_32",
     [] {
       print_cycles([] { lds_reads<few><<<1, 64>>>(took, out, 32); },
                    [] { lds_reads<many><<<1, 64>>>(took, out, 32); });
     }},
    {"copy", [] { copy_bandwidth(64, false); }},
    {"copy_wide", [] { copy_bandwidth(64, true); }},
    {"push", [] { push(16, false); }},
    {"pull", [] { push(16, true); }},
    {"push_to_two", [] { push_to_two(16); }},
    {"l1_latency", [] { latency(64, 128); }},
    {"l2_latency", [] { latency(4096, 128); }},
    {"mall_latency", [] { latency(65536, 128); }},
    {"flag", [] { flag_latency(); }},
    {"pulls_of_all", [] { pulls_of_all(false); }},
    {"pulls_of_all_last_first", [] { pulls_of_all(true); }},
    {"spans",
     [] {
       spans<<<2, 128>>>(took);
       HIP(hipDeviceSynchronize());
       std::puts("0");
     }},
    {"empty",
     [] {
       copy<<<1, 64>>>(nullptr, nullptr, 0);
       std::printf("%.2f\n", microseconds([] { copy<<<1, 64>>>(nullptr, nullptr, 0); }));
     }},
};

}  // namespace

int main(int argc, char** argv) {
  setup();
  return run_case(cases, argc, argv);
}
