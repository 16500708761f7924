// Programs with one mistake each. Every case must end with a report.
#include "check.hpp"

#include <cassert>
#include <chrono>
#include <thread>

__global__ void fill(int* p, int n) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = i;  // fill's store
}
__global__ void read_at(int const* p, long i, int* out) { *out = p[i]; }
__global__ void add_at(char* p, long offset) { atomicAdd(reinterpret_cast<unsigned*>(p + offset), 1u); }
__global__ void add_agent(unsigned* p) { __hip_atomic_fetch_add(p, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
__global__ void early_exit(int* p) {
  if (threadIdx.x >= 128) return;
  p[threadIdx.x] = 1;
  __syncthreads();
  p[threadIdx.x] = p[127 - threadIdx.x];
}
__global__ void wait_for(unsigned* flag, unsigned value) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) != value) __builtin_amdgcn_s_sleep(1);
}
// A barrier over a grid that may not be resident at once
__global__ __launch_bounds__(256) void meet_all(unsigned* count) {
  __shared__ int room[12 * 1024];
  room[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    __hip_atomic_fetch_add(count, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    while (__hip_atomic_load(count, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) != gridDim.x)
      __builtin_amdgcn_s_sleep(1);
  }
  __syncthreads();
  if (room[threadIdx.x]) *count = 0;
}
__global__ void wait_then_meet(unsigned* flag) {
  if (threadIdx.x == 0)
    while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) {}
  __syncthreads();
}
__global__ void raise_plain(unsigned* flag, unsigned* answer) {  // stays in the L2: no release, no system scope
  *flag = 1;
  while (__hip_atomic_load(answer, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) __builtin_amdgcn_s_sleep(1);
}
__global__ void wait_in_lds() {
  __shared__ unsigned flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x >= 64)
    while (__hip_atomic_load(&flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP) == 0) {}
}
// No deadlock: it works, and looks at a flag that nobody raises
__global__ void count_and_look(unsigned* flag, unsigned n) {
  unsigned x = threadIdx.x;
  for (unsigned i = 0; i < n && __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0; ++i)
    for (int j = 0; j < 16; ++j) x = x * 1664525 + 1013904223;
  flag[1] = x;
}
__global__ void check(int const* p) { assert(*p == 5); }
__global__ void allocate(int** p) { p[threadIdx.x] = static_cast<int*>(malloc(4 + 4 * threadIdx.x)); }
__global__ void trap() { __builtin_trap(); }

template <class T>
T* device(int gpu, std::size_t n) {
  T* p;
  HIP(hipSetDevice(gpu));
  HIP(hipMalloc(&p, n * sizeof(T)));
  HIP(hipMemset(p, 0, n * sizeof(T)));
  HIP(hipDeviceSynchronize());
  return p;
}
void finish() { HIP(hipDeviceSynchronize()); }

void out_of_bounds_write() {
  int* p = device<int>(0, 1000);
  fill<<<4, 256>>>(p, 1001);
  finish();
}
void out_of_bounds_read() {
  int *p = device<int>(0, 1000), *out = device<int>(0, 1);
  read_at<<<1, 1>>>(p, -1, out);
  finish();
}
void wild_read() {
  int* out = device<int>(0, 1);
  read_at<<<1, 1>>>(nullptr, 4, out);
  finish();
}
void host_pointer() {
  int local = 0, *out = device<int>(0, 1);
  read_at<<<1, 1>>>(&local, 0, out);
  finish();
}
void use_after_free() {
  int *p = device<int>(0, 1000), *out = device<int>(0, 1);
  HIP(hipFree(p));
  read_at<<<1, 1>>>(p, 10, out);
  finish();
}
void no_peer_access() {
  int* p = device<int>(1, 1000);
  HIP(hipSetDevice(0));
  fill<<<1, 64>>>(p, 64);
  finish();
}
void misaligned_atomic() {
  char* p = device<char>(0, 64);
  add_at<<<1, 1>>>(p, 2);
  finish();
}
void agent_atomic_on_peer() {
  unsigned* p = device<unsigned>(1, 1);
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  add_agent<<<1, 1>>>(p);
  finish();
}
void barrier_left() {
  int* p = device<int>(0, 256);
  early_exit<<<1, 256>>>(p);
  finish();
}
void nobody_raises() {
  unsigned* f = device<unsigned>(1, 64);
  wait_for<<<2, 256>>>(f + 8, 7);
  finish();
}
void waits_behind_a_barrier() {
  unsigned* f = device<unsigned>(0, 1);
  wait_then_meet<<<1, 256>>>(f);
  finish();
}
void not_co_resident() {  // 48 KB of LDS: one workgroup per CU
  unsigned* count = device<unsigned>(0, 1);
  meet_all<<<6, 256>>>(count);
  finish();
}
void co_resident() {
  unsigned* count = device<unsigned>(0, 1);
  meet_all<<<4, 256>>>(count);
  finish();
}
/// Run with --cus 16, two on each XCD.
void meet_masked(std::uint32_t mask, unsigned workgroups) {
  unsigned* count = device<unsigned>(0, 1);
  hipStream_t stream;
  HIP(hipExtStreamCreateWithCUMask(&stream, 1, &mask));
  meet_all<<<workgroups, 256, 0, stream>>>(count);
  finish();
}
void masked_out() { meet_masked(0xff00, 9); }
void masked_out_of_an_xcd() { meet_masked(0x0101, 2); }
void co_resident_in_mask() { meet_masked(0xff00, 8); }
void never_written_back() {
  unsigned* f = device<unsigned>(1, 1);
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  HIP(hipSetDevice(1));
  wait_for<<<1, 64>>>(f, 1);
  HIP(hipSetDevice(0));
  unsigned* g = device<unsigned>(0, 1);
  raise_plain<<<1, 1>>>(f, g);
  finish();
}
void waits_in_lds() {
  wait_in_lds<<<1, 128>>>();
  finish();
}
void works_long() {
  unsigned* f = device<unsigned>(0, 2);
  count_and_look<<<1, 64>>>(f, 10000);
  finish();
}
void threads_wait() {  // a host thread per GPU, each in a wait of its own
  unsigned* f = device<unsigned>(0, 64);
  std::thread other([=] {
    HIP(hipSetDevice(1));
    HIP(hipDeviceEnablePeerAccess(0, 0));
    wait_for<<<1, 64>>>(f, 1);
    finish();
  });
  wait_for<<<1, 64>>>(f + 1, 1);
  finish();
  other.join();
}
void sleeper_does_not_help() {
  std::thread([] { std::this_thread::sleep_for(std::chrono::seconds(30)); }).detach();
  wait_for<<<1, 64>>>(device<unsigned>(0, 1), 1);
  finish();
}
void late_help() {  // another host thread raises the flag after a while: no deadlock
  unsigned* f;
  HIP(hipHostMalloc(reinterpret_cast<void**>(&f), 128, hipHostMallocDefault));
  *f = 0;
  std::thread other([=] {
    auto const start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {}
    __atomic_store_n(f, 1u, __ATOMIC_RELEASE);
  });
  wait_for<<<1, 64>>>(f, 1);
  finish();
  other.join();
}
void failed_assert() {
  check<<<1, 1>>>(device<int>(0, 1));
  finish();
}
void device_malloc() {
  allocate<<<1, 64>>>(device<int*>(0, 64));
  finish();
}
void trapped() {
  trap<<<1, 64>>>();
  finish();
}
void not_implemented() { (void)hipMemAdvise(nullptr, 0, hipMemAdviseSetReadMostly, 0); }

int main(int argc, char** argv) {
  test_case const cases[] = {{"out_of_bounds_write", out_of_bounds_write},
                             {"out_of_bounds_read", out_of_bounds_read},
                             {"wild_read", wild_read},
                             {"host_pointer", host_pointer},
                             {"use_after_free", use_after_free},
                             {"no_peer_access", no_peer_access},
                             {"misaligned_atomic", misaligned_atomic},
                             {"agent_atomic_on_peer", agent_atomic_on_peer},
                             {"barrier_left", barrier_left},
                             {"nobody_raises", nobody_raises},
                             {"waits_behind_a_barrier", waits_behind_a_barrier},
                             {"not_co_resident", not_co_resident},
                             {"co_resident", co_resident},
                             {"masked_out", masked_out},
                             {"masked_out_of_an_xcd", masked_out_of_an_xcd},
                             {"co_resident_in_mask", co_resident_in_mask},
                             {"never_written_back", never_written_back},
                             {"trapped", trapped},
                             {"failed_assert", failed_assert},
                             {"device_malloc", device_malloc},
                             {"waits_in_lds", waits_in_lds},
                             {"works_long", works_long},
                             {"threads_wait", threads_wait},
                             {"sleeper_does_not_help", sleeper_does_not_help},
                             {"late_help", late_help},
                             {"not_implemented", not_implemented}};
  return run_case(cases, argc, argv);
}
