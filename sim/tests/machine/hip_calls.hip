// One case per family of HIP calls. Run under fusewire-sim with --gpus 4.
#include "check.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

__device__ int module_variable = 5;
__constant__ int table[4] = {1, 2, 3, 4};

__global__ void add(int const* a, int const* b, int* c, int n) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
__global__ void increment(int* p, int n) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
}
__global__ void use_module(int* out) { *out = module_variable++ + table[3]; }
__global__ void dimensions(unsigned* out) {
  if (blockIdx.x == 1 && blockIdx.y == 2 && blockIdx.z == 1 && threadIdx.x == 3 && threadIdx.y == 1 && threadIdx.z == 1) {
    out[0] = gridDim.x, out[1] = gridDim.y, out[2] = gridDim.z, out[3] = blockDim.x, out[4] = blockDim.y, out[5] = blockDim.z;
  }
}
__global__ void reverse_in_lds(int* p) {
  extern __shared__ int lds[];
  lds[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = lds[blockDim.x - 1 - threadIdx.x];
}
__global__ void wait_for(unsigned* flag, unsigned value) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) != value) __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}
__global__ void raise(unsigned* flag, unsigned value) { __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM); }
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
__global__ __launch_bounds__(256, 1) void fat_lds(int* p) {
  __shared__ int lds[12 * 1024];
  lds[threadIdx.x] = *p;
  __syncthreads();
  *p = lds[255 - threadIdx.x];
}
__global__ __launch_bounds__(64) void small_bounds(int* p) { *p = 1; }

template <class T>
T* device(std::size_t n) {
  T* p;
  HIP(hipMalloc(&p, n * sizeof(T)));
  return p;
}
std::vector<int> ramp(int n) {
  std::vector<int> v(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) v[static_cast<std::size_t>(i)] = i;
  return v;
}

void devices() {
  int n = 0, d = -1, value = 0;
  HIP(hipGetDeviceCount(&n));
  CHECK(n == 4);
  HIP(hipSetDevice(3));
  HIP(hipGetDevice(&d));
  CHECK(d == 3);
  std::thread([] {
    int other = -1;
    HIP(hipGetDevice(&other));
    CHECK(other == 0);
  }).join();
  CHECK_ERROR(hipSetDevice(4), hipErrorInvalidDevice);
  CHECK(hipPeekAtLastError() == hipErrorInvalidDevice);
  CHECK(hipGetLastError() == hipErrorInvalidDevice && hipGetLastError() == hipSuccess);
  hipDeviceProp_t p;
  HIP(hipGetDeviceProperties(&p, 0));
  CHECK(std::string(p.gcnArchName) == "gfx942:sramecc+:xnack-" && p.warpSize == 64 && p.multiProcessorCount == 304 && p.sharedMemPerBlock == 65536);
  CHECK(p.totalGlobalMem == 192ull << 30 && p.cooperativeLaunch == 1);
  HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWallClockRate, 0));
  CHECK(value == 100000);
  HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0));
  CHECK(value == 304);
  char bus[16];
  HIP(hipDeviceGetPCIBusId(bus, sizeof bus, 2));
  HIP(hipDeviceGetByPCIBusId(&d, bus));
  CHECK(d == 2);
  int least, greatest, version;
  HIP(hipDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 1 && greatest == -1);
  HIP(hipRuntimeGetVersion(&version));
  CHECK(version / 10000000 == 7);
  CHECK(std::string(hipGetErrorName(hipErrorInvalidValue)) == "hipErrorInvalidValue" && std::string(hipGetErrorString(hipErrorOutOfMemory)) == "out of memory");
}

void peers() {
  int can = 0;
  HIP(hipDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 1);
  HIP(hipDeviceCanAccessPeer(&can, 1, 1));
  CHECK(can == 0);
  HIP(hipDeviceEnablePeerAccess(1, 0));
  CHECK_ERROR(hipDeviceEnablePeerAccess(1, 0), hipErrorPeerAccessAlreadyEnabled);
  HIP(hipDeviceDisablePeerAccess(1));
  CHECK_ERROR(hipDeviceDisablePeerAccess(1), hipErrorPeerAccessNotEnabled);
  HIP(hipDeviceGetP2PAttribute(&can, hipDevP2PAttrAccessSupported, 0, 2));
  CHECK(can == 1);
}

void memory() {
  size_t free0, free1, total;
  HIP(hipMemGetInfo(&free0, &total));
  char* p = device<char>(1 << 20);
  HIP(hipMemGetInfo(&free1, &total));
  CHECK(free0 - free1 == 1 << 20 && total == 192ull << 30);
  hipPointerAttribute_t a;
  HIP(hipPointerGetAttributes(&a, p + 5));
  CHECK(a.type == hipMemoryTypeDevice && a.device == 0 && a.devicePointer == p + 5);
  int local = 0;
  HIP(hipPointerGetAttributes(&a, &local));
  CHECK(a.type == hipMemoryTypeUnregistered);
  void* base;
  size_t size;
  HIP(hipMemGetAddressRange(reinterpret_cast<hipDeviceptr_t*>(&base), &size, p + 100));
  CHECK(base == p && size == 1 << 20);
  HIP(hipFree(p));
  CHECK_ERROR(hipFree(p), hipErrorInvalidValue);
  CHECK_ERROR(hipMemcpy(p, &local, 4, hipMemcpyHostToDevice), hipErrorInvalidValue);
  HIP(hipFree(nullptr));
  void* huge;
  CHECK_ERROR(hipMalloc(&huge, 193ull << 30), hipErrorOutOfMemory);
  for (unsigned flags : {hipDeviceMallocDefault, hipDeviceMallocFinegrained, hipDeviceMallocUncached}) {
    void* q;
    HIP(hipExtMallocWithFlags(&q, 4096, flags));
    HIP(hipPointerGetAttributes(&a, q));
    CHECK(a.allocationFlags == flags);
    HIP(hipFree(q));
  }
  int *host, *mapped, ordinary[64] = {};
  HIP(hipHostMalloc(&host, 256, hipHostMallocMapped));
  HIP(hipHostGetDevicePointer(reinterpret_cast<void**>(&mapped), host, 0));
  for (int i = 0; i < 64; ++i) host[i] = i;
  increment<<<1, 64>>>(mapped, 64);
  HIP(hipDeviceSynchronize());
  CHECK(host[63] == 64);
  HIP(hipHostFree(host));
  HIP(hipHostRegister(ordinary, sizeof ordinary, hipHostRegisterDefault));
  increment<<<1, 64>>>(ordinary, 64);
  HIP(hipDeviceSynchronize());
  CHECK(ordinary[63] == 1);
  HIP(hipHostUnregister(ordinary));
  CHECK_ERROR(hipHostUnregister(ordinary), hipErrorHostMemoryNotRegistered);
}

void copies() {
  auto const v = ramp(1000);
  int *a = device<int>(1000), *b = device<int>(1000);
  std::vector<int> w(1000);
  HIP(hipMemcpy(a, v.data(), 4000, hipMemcpyHostToDevice));
  HIP(hipMemcpy(b, a, 4000, hipMemcpyDeviceToDevice));
  HIP(hipMemcpy(w.data(), b, 4000, hipMemcpyDeviceToHost));
  CHECK(w == v);
  CHECK_ERROR(hipMemcpy(a, v.data(), 4001, hipMemcpyHostToDevice), hipErrorInvalidValue);
  hipStream_t s;
  HIP(hipStreamCreate(&s));
  HIP(hipMemsetAsync(a, 0, 4000, s));
  HIP(hipMemsetD32Async(a, 7, 500, s));
  std::vector<int> source(1000, 3);
  HIP(hipMemcpyAsync(b, source.data(), 4000, hipMemcpyHostToDevice, s));
  source.assign(1000, 4);  // pageable memory may be reused at once
  HIP(hipMemcpyAsync(w.data(), a, 4000, hipMemcpyDeviceToHost, s));
  HIP(hipStreamSynchronize(s));
  CHECK(w[0] == 7 && w[499] == 7 && w[500] == 0);
  HIP(hipMemcpy(w.data(), b, 4000, hipMemcpyDeviceToHost));
  CHECK(w[999] == 3);
  HIP(hipSetDevice(1));
  int* c = device<int>(1000);
  HIP(hipMemcpyPeer(c, 1, a, 0, 4000));
  HIP(hipMemcpy(w.data(), c, 4000, hipMemcpyDefault));
  CHECK(w[499] == 7 && w[500] == 0);
  int block[4][8] = {}, out[4][4] = {};
  for (int i = 0; i < 32; ++i) block[i / 8][i % 8] = i;
  HIP(hipMemcpy2D(c, 64, block, 32, 16, 4, hipMemcpyHostToDevice));
  HIP(hipMemcpy2D(out, 16, c, 64, 16, 4, hipMemcpyDeviceToHost));
  CHECK(out[3][3] == 27);
  HIP(hipStreamDestroy(s));
}

void symbols() {
  int* out = device<int>(1);
  int got = 0, nine = 9;
  use_module<<<1, 1>>>(out);
  HIP(hipMemcpy(&got, out, 4, hipMemcpyDeviceToHost));
  CHECK(got == 9);
  HIP(hipMemcpyFromSymbol(&got, HIP_SYMBOL(module_variable), 4));
  CHECK(got == 6);
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), &nine, 4, 12));
  use_module<<<1, 1>>>(out);
  HIP(hipMemcpy(&got, out, 4, hipMemcpyDeviceToHost));
  CHECK(got == 15);
  void* address;
  size_t size;
  HIP(hipGetSymbolAddress(&address, HIP_SYMBOL(table)));
  HIP(hipGetSymbolSize(&size, HIP_SYMBOL(table)));
  CHECK(size == 16);
  HIP(hipSetDevice(1));  // variables are per device
  HIP(hipMemcpyFromSymbol(&got, HIP_SYMBOL(module_variable), 4));
  CHECK(got == 5);
}

void launches() {
  unsigned *out = device<unsigned>(6), got[6];
  dimensions<<<dim3(2, 3, 2), dim3(4, 2, 2)>>>(out);
  HIP(hipGetLastError());
  HIP(hipMemcpy(got, out, 24, hipMemcpyDeviceToHost));
  unsigned const want[6] = {2, 3, 2, 4, 2, 2};
  CHECK(std::memcmp(got, want, 24) == 0);
  auto const v = ramp(256);
  int* p = device<int>(256);
  HIP(hipMemcpy(p, v.data(), 1024, hipMemcpyHostToDevice));
  reverse_in_lds<<<1, 256, 1024>>>(p);
  int back[256];
  HIP(hipMemcpy(back, p, 1024, hipMemcpyDeviceToHost));
  CHECK(back[0] == 255 && back[255] == 0);
  increment<<<0, 64>>>(p, 1);
  CHECK_ERROR(hipGetLastError(), hipErrorInvalidConfiguration);
  increment<<<1, 1025>>>(p, 1);
  CHECK_ERROR(hipGetLastError(), hipErrorInvalidConfiguration);
  small_bounds<<<1, 128>>>(p);
  CHECK_ERROR(hipGetLastError(), hipErrorLaunchFailure);
  reverse_in_lds<<<1, 256, 65537>>>(p);
  CHECK_ERROR(hipGetLastError(), hipErrorInvalidValue);
  int n = 256;
  void* arguments[] = {&p, &n};
  HIP(hipLaunchKernel(reinterpret_cast<void const*>(increment), dim3(1), dim3(256), arguments, 0, nullptr));
  HIP(hipLaunchCooperativeKernel(reinterpret_cast<void const*>(increment), dim3(4), dim3(64), arguments, 0, nullptr));
  CHECK_ERROR(hipLaunchCooperativeKernel(reinterpret_cast<void const*>(increment), dim3(304 * 32 + 1), dim3(64), arguments, 0, nullptr), hipErrorCooperativeLaunchTooLarge);
  HIP(hipMemcpy(back, p, 1024, hipMemcpyDeviceToHost));
  CHECK(back[0] == 257);
}

void attributes() {
  hipFuncAttributes a;
  HIP(hipFuncGetAttributes(&a, reinterpret_cast<void const*>(fat_lds)));
  CHECK(a.sharedSizeBytes == 48 * 1024 && a.maxThreadsPerBlock == 256 && a.numRegs > 0);
  int blocks = 0;
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fat_lds, 256, 0));
  CHECK(blocks == 1);
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, increment, 64, 0));
  CHECK(blocks == 32);
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, increment, 256, 0));
  CHECK(blocks == 8);
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, increment, 128, 0));
  CHECK(blocks == 16);
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, increment, 256, 32768));
  CHECK(blocks == 2);
  int grid, block;
  HIP(hipOccupancyMaxPotentialBlockSize(&grid, &block, increment, 0, 0));
  CHECK(block == 1024 && grid == 2 * 304);
  HIP(hipFuncSetAttribute(reinterpret_cast<void const*>(reverse_in_lds), hipFuncAttributeMaxDynamicSharedMemorySize, 65536));
  CHECK_ERROR(hipFuncSetAttribute(reinterpret_cast<void const*>(reverse_in_lds), hipFuncAttributeMaxDynamicSharedMemorySize, 65537), hipErrorInvalidValue);
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
  HIP(hipStreamAddCallback(s, [](hipStream_t, hipError_t e, void* n) { *static_cast<int*>(n) += e == hipSuccess ? 10 : 0; }, &calls, 0));
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
  CHECK_ERROR(hipEventQuery(e), hipErrorCapturedEvent);
  HIP(hipStreamWaitEvent(t, e, 0));
  increment<<<1, 1, 0, t>>>(p, 1);
  CHECK_ERROR(hipStreamEndCapture(t, &g), hipErrorStreamCaptureUnmatched);
  ends_with(hipErrorStreamCaptureUnjoined);
  CHECK_ERROR(hipStreamEndCapture(s, &g), hipErrorIllegalState);
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

void compressed() {
  int *p = device<int>(1), got;
  HIP(hipMemset(p, 0, 4));
  increment<<<1, 1>>>(p, 1);
  HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
}

int main(int argc, char** argv) {
  test_case const cases[] = {{"devices", devices},           {"peers", peers},           {"memory", memory},     {"copies", copies},       {"symbols", symbols},
                             {"launches", launches},         {"attributes", attributes}, {"streams", streams},   {"default_stream", default_stream},
                             {"events", events},             {"host_functions", host_functions}, {"async_memory", async_memory},
                             {"graphs", graphs},             {"capture_errors", capture_errors}, {"two_gpus", two_gpus}, {"threads", threads},
                             {"host_polls", host_polls},     {"device_timeout", device_timeout}, {"compressed", compressed}};
  return run_case(cases, argc, argv);
}
