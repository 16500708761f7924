// What an observer outside of all GPUs, a thread of the host that stands for a network, sees while kernels run.
//   fusewire-sim outside to_host RELEASE MEMORY      a kernel writes, then stores a word of the host; the thread reads
//   fusewire-sim outside to_kernel ACQUIRE MEMORY    the thread writes, then stores that word; a kernel reads
//   fusewire-sim outside unreleased RELEASE          the kernel has written the bytes before; memory of hipMalloc
//   fusewire-sim --time outside device               a device of the clock answers a store 7 us later; it prints how
//                                                    many us that takes, how many a kernel waits for it, and
//                                                    one that finds it; or "no clock"
//   RELEASE, ACQUIRE: system, device, none; MEMORY: host, device, uncached. It prints how many runs of 40 were wrong.
#include <dlfcn.h>

#include <string>
#include <thread>

#include "check.hpp"

constexpr int words = 2048, runs = 40;
constexpr unsigned has_looked = 0x40000000u;

enum scope { system_scope, device_scope, no_scope };

__device__ void release(scope s) {
  if (s == system_scope) __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  if (s == device_scope) __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
}
__device__ void acquire(scope s) {
  if (s == system_scope) __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}
__device__ unsigned poll(unsigned const* flag) {
  return __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

__global__ void write(unsigned* x, unsigned value, scope s, unsigned* flag) {
  for (int i = threadIdx.x; i < words; i += 64) x[i] = value;
  release(s);
  if (threadIdx.x == 0) __hip_atomic_store(flag, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (poll(flag) != has_looked) __builtin_amdgcn_s_sleep(1);  // the end of a kernel may release
}
__global__ void read(unsigned const* x, unsigned value, scope s, unsigned* flag, unsigned* wrong) {
  unsigned before = 0;
  // Caches have it then
  for (int i = threadIdx.x; i < words; i += 64) before += static_cast<unsigned const volatile*>(x)[i];
  if (threadIdx.x == 0) __hip_atomic_store(flag, before | 0x80000000u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (poll(flag) != value) __builtin_amdgcn_s_sleep(1);
  acquire(s);
  for (int i = threadIdx.x; i < words; i += 64)
    if (x[i] != value) atomicAdd(wrong, 1u);
}
__global__ void write_and_read(unsigned* x, unsigned value, scope s, unsigned* flag, unsigned* wrong) {
  for (int i = threadIdx.x; i < words; i += 64) x[i] = 0x1234;
  release(s);
  if (threadIdx.x == 0) __hip_atomic_store(flag, 0x80000000u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (poll(flag) != value) __builtin_amdgcn_s_sleep(1);
  acquire(system_scope);
  for (int i = threadIdx.x; i < words; i += 64)
    if (x[i] != value) atomicAdd(wrong, 1u);
}

__global__ void ask(unsigned* words, unsigned long long* took) {
  unsigned long long const begin = wall_clock64();
  __hip_atomic_store(words, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (poll(words + 1) != 1) {}
  *took = wall_clock64() - begin;
}

/// Answers: one word behind the one that was stored to.
struct answering_device {
  static inline auto const watch = reinterpret_cast<int (*)(void const*, unsigned long, void (*)(void*), void*)>(
      dlsym(RTLD_DEFAULT, "fusewireSimWatch"));
  static inline auto const after =
      reinterpret_cast<void (*)(double, void (*)(void*), void*)>(dlsym(RTLD_DEFAULT, "fusewireSimAfter"));
  static inline auto const now = reinterpret_cast<double (*)()>(dlsym(RTLD_DEFAULT, "fusewireSimNow"));
  unsigned* words;
  double asked_at = 0, answered_at = 0;

  static void asked(void* d) {
    static_cast<answering_device*>(d)->asked_at = now();
    after(7, answer, d);
  }
  static void answer(void* d) {
    auto& self = *static_cast<answering_device*>(d);
    self.answered_at = now();
    self.words[1] = self.words[0];
  }
};

int ask_device() {
  unsigned* words;
  unsigned long long *took, ticks[2] = {};
  HIP(hipHostMalloc(&words, 128, hipHostMallocMapped | hipHostMallocCoherent));
  HIP(hipMalloc(&took, 8));
  words[0] = words[1] = 0;
  answering_device d{words};
  if (d.watch(words, 4, answering_device::asked, &d) != 0) return std::printf("no clock\n"), 0;
  ask<<<1, 1>>>(words, took);
  HIP(hipMemcpy(&ticks[0], took, 8, hipMemcpyDeviceToHost));
  (void)d.watch(words, 4, nullptr, nullptr);
  ask<<<1, 1>>>(words, took);  // the word is there: nobody is asked
  HIP(hipMemcpy(&ticks[1], took, 8, hipMemcpyDeviceToHost));
  std::printf("%.3f %.2f %.2f\n", d.answered_at - d.asked_at, double(ticks[0]) / 100, double(ticks[1]) / 100);
  return 0;
}

scope scope_of(std::string const& s) { return s == "system" ? system_scope : s == "device" ? device_scope : no_scope; }

int main(int argc, char** argv) {
  std::string const what = argc > 1 ? argv[1] : "", memory = argc > 3 ? argv[3] : "device";
  if (what == "device") return ask_device();
  scope const s = scope_of(argc > 2 ? argv[2] : "");
  unsigned *x, *flag, *wrong;
  if (memory == "host") HIP(hipHostMalloc(&x, words * 4, hipHostMallocMapped | hipHostMallocCoherent));
  else if (memory == "uncached")
    HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&x), words * 4, hipDeviceMallocUncached));
  else HIP(hipMalloc(&x, words * 4));
  HIP(hipHostMalloc(&flag, 128, hipHostMallocMapped | hipHostMallocCoherent));
  HIP(hipMalloc(&wrong, 4));
  int wrong_runs = 0;
  for (unsigned run = 1; run <= runs; ++run) {
    *flag = 0;
    HIP(hipMemset(wrong, 0, 4));
    HIP(hipDeviceSynchronize());
    bool host_is_wrong = false;
    std::thread outside([&] {
      auto const seen = [&] { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); };
      if (what == "to_host") {
        while (seen() != run) {}
        for (int i = 0; i < words; ++i) host_is_wrong |= __atomic_load_n(x + i, __ATOMIC_RELAXED) != run;
        __atomic_store_n(flag, has_looked, __ATOMIC_RELEASE);
      } else {
        while ((seen() & 0x80000000u) == 0) {}
        for (int i = 0; i < words; ++i) __atomic_store_n(x + i, run, __ATOMIC_RELAXED);
        __atomic_store_n(flag, run, __ATOMIC_RELEASE);
      }
    });
    if (what == "to_host") write<<<1, 64>>>(x, run, s, flag);
    else if (what == "to_kernel") read<<<1, 64>>>(x, run, s, flag, wrong);
    else if (what == "unreleased") write_and_read<<<1, 64>>>(x, run, s, flag, wrong);
    else return 2;
    HIP(hipDeviceSynchronize());
    outside.join();
    unsigned seen;
    HIP(hipMemcpy(&seen, wrong, 4, hipMemcpyDeviceToHost));
    wrong_runs += host_is_wrong || seen != 0;
  }
  std::printf("%d\n", wrong_runs);
}
