// HIP calls about order: streams, events, graphs, several GPUs and host threads. Run under fusewire-sim with --gpus 4.
#include "check.hpp"

#include <dlfcn.h>
#include <fusewire_sim.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

__global__ void add(int const* a, int const* b, int* c, int n) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
__global__ void increment(int* p, int n) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
}
__global__ void wait_for(unsigned* flag, unsigned value) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) != value) __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}
__global__ void raise(unsigned* flag, unsigned value) {
  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
__global__ void spin_for(long ticks, unsigned long long* seen) {
  auto const start = wall_clock64();
  while (static_cast<long>(wall_clock64() - start) < ticks) {}
  *seen = wall_clock64() - start;
}
__global__ void poll_until_late(unsigned* flag, long ticks, int* late) {
  auto const start = wall_clock64();
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0)
    if (static_cast<long>(wall_clock64() - start) > ticks) {
      *late = 1;
      return;
    }
}

template <class T>
T* device(std::size_t n) {
  T* p;
  HIP(hipMalloc(&p, n * sizeof(T)));
  return p;
}
unsigned* make_flag() {
  unsigned* f;
  HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&f), 128, hipDeviceMallocUncached));
  HIP(hipMemset(f, 0, 128));
  HIP(hipDeviceSynchronize());
  return f;
}

void streams() {
  unsigned* f = make_flag();
  hipStream_t a, b;
  HIP(hipStreamCreateWithFlags(&a, hipStreamNonBlocking));
  HIP(hipStreamCreateWithPriority(&b, hipStreamNonBlocking, -1));
  int priority;
  HIP(hipStreamGetPriority(b, &priority));
  CHECK(priority == -1);
  wait_for<<<1, 1, 0, a>>>(f, 1);  // runs until the other stream's kernel has run
  CHECK_ERROR(hipStreamQuery(a), hipErrorNotReady);
  raise<<<1, 1, 0, b>>>(f, 1);
  HIP(hipStreamSynchronize(a));
  HIP(hipStreamQuery(b));
  hipEvent_t e;
  HIP(hipEventCreate(&e));
  HIP(hipEventQuery(e));
  wait_for<<<1, 1, 0, a>>>(f, 2);
  HIP(hipEventRecord(e, a));
  CHECK_ERROR(hipEventQuery(e), hipErrorNotReady);
  int* p = device<int>(1);
  HIP(hipMemsetAsync(p, 0, 4, b));
  hipStream_t c;
  HIP(hipStreamCreateWithFlags(&c, hipStreamNonBlocking));
  HIP(hipStreamWaitEvent(b, e, 0));
  increment<<<1, 1, 0, b>>>(p, 1);
  CHECK_ERROR(hipStreamQuery(b), hipErrorNotReady);
  raise<<<1, 1, 0, c>>>(f, 2);
  HIP(hipStreamSynchronize(b));
  HIP(hipEventQuery(e));
  int got;
  HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
  for (hipStream_t s : {a, b, c}) HIP(hipStreamDestroy(s));
  HIP(hipEventDestroy(e));
}

void default_stream() {
  unsigned* f = make_flag();
  hipStream_t blocking, other;
  HIP(hipStreamCreate(&blocking));
  HIP(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  int* p = device<int>(1);
  HIP(hipMemset(p, 0, 4));
  wait_for<<<1, 1, 0, blocking>>>(f, 1);
  increment<<<1, 1>>>(p, 1);  // waits for the blocking stream
  CHECK_ERROR(hipStreamQuery(nullptr), hipErrorNotReady);
  raise<<<1, 1, 0, other>>>(f, 1);
  HIP(hipStreamSynchronize(nullptr));
  wait_for<<<1, 1>>>(f, 2);
  increment<<<1, 1, 0, blocking>>>(p, 1);  // waits for the default stream
  for (int i = 0; i < 20; ++i) CHECK_ERROR(hipStreamQuery(blocking), hipErrorNotReady);
  raise<<<1, 1, 0, other>>>(f, 2);
  HIP(hipDeviceSynchronize());
  increment<<<1, 1, 0, hipStreamPerThread>>>(p, 1);
  HIP(hipStreamSynchronize(hipStreamPerThread));
  int got;
  HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
  CHECK(got == 3);
}

void events() {
  unsigned long long *seen = device<unsigned long long>(1), got;
  hipEvent_t start, stop, untimed;
  HIP(hipEventCreate(&start));
  HIP(hipEventCreate(&stop));
  HIP(hipEventCreateWithFlags(&untimed, hipEventDisableTiming));
  HIP(hipEventRecord(start));
  spin_for<<<1, 1>>>(100000, seen);  // 1 ms
  HIP(hipEventRecord(stop));
  HIP(hipEventRecord(untimed));
  HIP(hipEventSynchronize(stop));
  float ms = 0;
  HIP(hipEventElapsedTime(&ms, start, stop));
  CHECK(ms > 0.9f && ms < 5);
  CHECK_ERROR(hipEventElapsedTime(&ms, start, untimed), hipErrorInvalidHandle);
  HIP(hipMemcpy(&got, seen, 8, hipMemcpyDeviceToHost));
  CHECK(got >= 100000 && got < 200000);
}

void host_functions() {
  hipStream_t s;
  HIP(hipStreamCreate(&s));
  int *p = device<int>(1), calls = 0;
  HIP(hipMemsetAsync(p, 0, 4, s));
  increment<<<1, 1, 0, s>>>(p, 1);
  HIP(hipLaunchHostFunc(s, [](void* n) { ++*static_cast<int*>(n); }, &calls));
  HIP(hipStreamAddCallback(
      s, [](hipStream_t, hipError_t e, void* n) { *static_cast<int*>(n) += e == hipSuccess ? 10 : 0; }, &calls, 0));
  HIP(hipStreamSynchronize(s));
  CHECK(calls == 11);
}

void async_memory() {
  hipStream_t s;
  HIP(hipStreamCreate(&s));
  int* p;
  HIP(hipMallocAsync(reinterpret_cast<void**>(&p), 256, s));
  HIP(hipMemsetAsync(p, 0, 256, s));
  increment<<<1, 64, 0, s>>>(p, 64);
  HIP(hipFreeAsync(p, s));
  HIP(hipStreamSynchronize(s));
  CHECK_ERROR(hipFree(p), hipErrorInvalidValue);
}

void graphs() {
  hipStream_t s, t;
  HIP(hipStreamCreate(&s));
  HIP(hipStreamCreate(&t));
  int *a = device<int>(64), *b = device<int>(64), *c = device<int>(64);
  hipEvent_t fork, join;
  HIP(hipEventCreate(&fork));
  HIP(hipEventCreate(&join));
  int host_calls = 0;
  hipStreamCaptureStatus status;
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  HIP(hipMemsetAsync(b, 0, 256, s));
  HIP(hipEventRecord(fork, s));
  HIP(hipStreamWaitEvent(t, fork, 0));
  HIP(hipStreamIsCapturing(t, &status));
  CHECK(status == hipStreamCaptureStatusActive);
  increment<<<1, 64, 0, t>>>(a, 64);
  increment<<<1, 64, 0, s>>>(b, 64);
  HIP(hipEventRecord(join, t));
  HIP(hipStreamWaitEvent(s, join, 0));
  add<<<1, 64, 0, s>>>(a, b, c, 64);
  HIP(hipLaunchHostFunc(s, [](void* n) { ++*static_cast<int*>(n); }, &host_calls));
  hipGraph_t g;
  HIP(hipStreamEndCapture(s, &g));
  size_t n = 0;
  HIP(hipGraphGetNodes(g, nullptr, &n));
  CHECK(n == 5);
  std::vector<hipGraphNode_t> nodes(n);
  HIP(hipGraphGetNodes(g, nodes.data(), &n));
  int kernels = 0;
  for (hipGraphNode_t node : nodes) {
    hipGraphNodeType type;
    HIP(hipGraphNodeGetType(node, &type));
    kernels += type == hipGraphNodeTypeKernel;
  }
  CHECK(kernels == 3);
  hipGraphExec_t exec;
  HIP(hipGraphInstantiate(&exec, g, nullptr, nullptr, 0));
  HIP(hipGraphDestroy(g));
  for (int round = 0; round < 5; ++round) {  // with data that changes
    std::vector<int> in(64, 10 * round), out(64);
    HIP(hipMemcpy(a, in.data(), 256, hipMemcpyHostToDevice));
    HIP(hipGraphLaunch(exec, s));
    HIP(hipStreamSynchronize(s));
    HIP(hipMemcpy(out.data(), c, 256, hipMemcpyDeviceToHost));
    CHECK(out[63] == 10 * round + 2 && host_calls == round + 1);
  }
  HIP(hipGraphExecDestroy(exec));

  HIP(hipGraphCreate(&g, 0));
  hipGraphNode_t first, second;
  hipMemsetParams clear{};
  clear.dst = a, clear.elementSize = 4, clear.value = 5, clear.width = 64, clear.height = 1;
  HIP(hipGraphAddMemsetNode(&first, g, nullptr, 0, &clear));
  int count = 64;
  void* arguments[] = {&a, &count};
  hipKernelNodeParams k{};
  k.func = reinterpret_cast<void*>(increment), k.gridDim = dim3(1), k.blockDim = dim3(64), k.kernelParams = arguments;
  HIP(hipGraphAddKernelNode(&second, g, &first, 1, &k));
  HIP(hipGraphInstantiate(&exec, g, nullptr, nullptr, 0));
  HIP(hipGraphLaunch(exec, s));
  int got;
  HIP(hipStreamSynchronize(s));
  HIP(hipMemcpy(&got, a, 4, hipMemcpyDeviceToHost));
  CHECK(got == 6);
}

void capture_errors() {
  hipStream_t s, t;
  HIP(hipStreamCreate(&s));
  HIP(hipStreamCreateWithFlags(&t, hipStreamNonBlocking));
  hipGraph_t g;
  int* p = device<int>(1);
  void* q;
  auto const ends_with = [&](hipError_t want) {
    CHECK(hipStreamEndCapture(s, &g) == want);
    CHECK((g == nullptr) == (want != hipSuccess));
  };
  CHECK_ERROR(hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal), hipErrorStreamCaptureUnsupported);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  CHECK_ERROR(hipMalloc(&q, 4), hipErrorStreamCaptureUnsupported);
  ends_with(hipErrorStreamCaptureInvalidated);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
  HIP(hipMalloc(&q, 4));
  ends_with(hipSuccess);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  CHECK_ERROR(hipStreamSynchronize(s), hipErrorStreamCaptureUnsupported);
  ends_with(hipErrorStreamCaptureInvalidated);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  CHECK_ERROR(hipDeviceSynchronize(), hipErrorStreamCaptureUnsupported);
  ends_with(hipErrorStreamCaptureInvalidated);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  increment<<<1, 1>>>(p, 1);
  CHECK_ERROR(hipGetLastError(), hipErrorStreamCaptureImplicit);
  ends_with(hipErrorStreamCaptureInvalidated);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  hipEvent_t e;
  HIP(hipEventCreate(&e));
  HIP(hipEventRecord(e, s));
  HIP(hipStreamWaitEvent(t, e, 0));
  increment<<<1, 1, 0, t>>>(p, 1);
  CHECK_ERROR(hipStreamEndCapture(t, &g), hipErrorStreamCaptureUnmatched);
  ends_with(hipErrorStreamCaptureUnjoined);
  CHECK_ERROR(hipStreamEndCapture(s, &g), hipErrorIllegalState);
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  HIP(hipEventRecord(e, s));
  CHECK_ERROR(hipEventQuery(e), hipErrorCapturedEvent);
  ends_with(hipErrorStreamCaptureInvalidated);
  HIP(hipDeviceSynchronize());
}

void two_gpus() {  // the consumer is launched before its producer
  HIP(hipSetDevice(1));
  unsigned* f = make_flag();
  wait_for<<<1, 64>>>(f, 1);
  CHECK_ERROR(hipStreamQuery(nullptr), hipErrorNotReady);
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  raise<<<1, 1>>>(f, 1);
  HIP(hipSetDevice(1));
  HIP(hipDeviceSynchronize());
}

void threads() {  // a thread per GPU; each waits for the flag of its neighbour
  constexpr int n = 4, rounds = 50;
  std::vector<unsigned*> flags(n);
  for (int d = 0; d < n; ++d) {
    HIP(hipSetDevice(d));
    flags[static_cast<std::size_t>(d)] = make_flag();
    for (int p = 0; p < n; ++p)
      if (p != d) HIP(hipDeviceEnablePeerAccess(p, 0));
  }
  std::vector<std::thread> ranks;
  for (int d = 0; d < n; ++d)
    ranks.emplace_back([&, d] {
      HIP(hipSetDevice(d));
      hipStream_t s;
      HIP(hipStreamCreate(&s));
      for (unsigned r = 1; r <= rounds; ++r) {
        raise<<<1, 1, 0, s>>>(flags[static_cast<std::size_t>((d + 1) % n)], r);
        wait_for<<<1, 64, 0, s>>>(flags[static_cast<std::size_t>(d)], r);
        HIP(hipStreamSynchronize(s));
        // the neighbour may overwrite the flag only after it was seen
        static std::atomic<unsigned> arrived{0};
        ++arrived;
        while (arrived < n * r) std::this_thread::yield();
      }
    });
  for (auto& t : ranks) t.join();
}

void host_polls() {  // nothing but memory tells the host
  unsigned* f;
  HIP(hipHostMalloc(&f, 128, hipHostMallocMapped));
  *f = 0;
  raise<<<1, 1>>>(f, 1);
  while (__atomic_load_n(f, __ATOMIC_ACQUIRE) != 1) {}
  wait_for<<<1, 1>>>(f, 2);
  __atomic_store_n(f, 2u, __ATOMIC_RELEASE);
  HIP(hipDeviceSynchronize());
  wait_for<<<1, 1>>>(f, 3);
  hipEvent_t e;
  HIP(hipEventCreate(&e));
  HIP(hipEventRecord(e));
  for (int i = 0; i < 50; ++i) CHECK_ERROR(hipEventQuery(e), hipErrorNotReady);
  __atomic_store_n(f, 3u, __ATOMIC_RELEASE);
  while (hipEventQuery(e) == hipErrorNotReady) {}
}

void device_timeout() {  // 20 s on the device's clock pass at once when nothing else happens
  unsigned* f = make_flag();
  int *late = device<int>(1), got;
  HIP(hipMemset(late, 0, 4));
  poll_until_late<<<1, 64>>>(f, 20l * 100000000, late);
  HIP(hipMemcpy(&got, late, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
}

void outside() {  // a thread sleeps for longer than the patience, and then raises the flag: no time-out
  auto const outside = reinterpret_cast<fusewire_sim_outside_function>(dlsym(RTLD_DEFAULT, "fusewireSimOutside"));
  CHECK(outside != nullptr);
  unsigned* f;
  HIP(hipHostMalloc(&f, 128, hipHostMallocMapped));
  *f = 0;
  int *late = device<int>(1), got;
  HIP(hipMemset(late, 0, 4));
  outside(1);
  std::thread sleeper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    __atomic_store_n(f, 1u, __ATOMIC_RELEASE);
  });
  poll_until_late<<<1, 64>>>(f, 20l * 100000000, late);
  HIP(hipMemcpy(&got, late, 4, hipMemcpyDeviceToHost));
  CHECK(got == 0);
  sleeper.join();
  outside(-1);
  *f = 0;
  poll_until_late<<<1, 64>>>(f, 20l * 100000000, late);  // and now it jumps again
  HIP(hipMemcpy(&got, late, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
}

int main(int argc, char** argv) {
  test_case const cases[] = {{"streams", streams},
                             {"default_stream", default_stream},
                             {"events", events},
                             {"host_functions", host_functions},
                             {"async_memory", async_memory},
                             {"graphs", graphs},
                             {"capture_errors", capture_errors},
                             {"two_gpus", two_gpus},
                             {"threads", threads},
                             {"host_polls", host_polls},
                             {"device_timeout", device_timeout},
                             {"outside", outside}};
  return run_case(cases, argc, argv);
}
