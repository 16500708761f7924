// Handles, devices and arguments that HIP refuses, and the devices that a process sees. Run under fusewire-sim.
#include "check.hpp"

#include <elf.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

__global__ void increment(int* p) { *p += 1; }

template <class T>
T* device(std::size_t n) {
  T* p;
  HIP(hipMalloc(&p, n * sizeof(T)));
  return p;
}

/// Run with --gpus 2.
void streams() {
  hipStream_t s, there;
  HIP(hipStreamCreate(&s));
  HIP(hipSetDevice(1));
  HIP(hipStreamCreate(&there));
  int d = -1;
  HIP(hipStreamGetDevice(there, &d));
  CHECK(d == 1);
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  int *p = device<int>(1), got = 0;
  HIP(hipMemset(p, 0, 4));
  HIP(hipSetDevice(1));
  HIP(hipDeviceEnablePeerAccess(0, 0));
  increment<<<1, 1, 0, s>>>(p);  // on the stream's device, whichever is current
  HIP(hipGetLastError());
  HIP(hipStreamSynchronize(s));
  HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
  unsigned flags;
  CHECK_ERROR(hipStreamGetFlags(nullptr, &flags), hipErrorInvalidValue);
  CHECK_ERROR(hipStreamDestroy(nullptr), hipErrorInvalidHandle);
  CHECK_ERROR(hipStreamDestroy(hipStreamPerThread), hipErrorInvalidHandle);
  HIP(hipStreamDestroy(s));
  increment<<<1, 1, 0, s>>>(p);
  CHECK(hipGetLastError() != hipSuccess);
  CHECK_ERROR(hipStreamSynchronize(s), hipErrorContextIsDestroyed);
  CHECK_ERROR(hipStreamDestroy(s), hipErrorContextIsDestroyed);
  CHECK_ERROR(hipMemcpyAsync(p, &got, 4, hipMemcpyHostToDevice, s), hipErrorInvalidHandle);
}

/// Run with --gpus 2.
void events() {
  hipEvent_t here, there, bad;
  HIP(hipEventCreate(&here));
  hipStream_t s, own;
  HIP(hipStreamCreate(&own));
  HIP(hipSetDevice(1));
  HIP(hipEventCreate(&there));
  HIP(hipStreamCreate(&s));
  CHECK_ERROR(hipEventRecord(here, s), hipErrorInvalidHandle);  // an event belongs to a device
  CHECK_ERROR(hipEventRecord(here, nullptr), hipErrorInvalidHandle);
  HIP(hipEventRecord(there, s));
  HIP(hipEventRecord(here, own));
  HIP(hipEventSynchronize(here));
  HIP(hipEventSynchronize(there));
  float ms;
  CHECK_ERROR(hipEventElapsedTime(&ms, here, there), hipErrorInvalidHandle);
  for (unsigned const flags :
       {8u, unsigned(hipEventInterprocess), unsigned(hipEventReleaseToDevice) | unsigned(hipEventReleaseToSystem)})
    CHECK_ERROR(hipEventCreateWithFlags(&bad, flags), hipErrorInvalidValue);
  HIP(hipEventDestroy(here));
  CHECK_ERROR(hipEventDestroy(here), hipErrorContextIsDestroyed);
  CHECK_ERROR(hipEventDestroy(nullptr), hipErrorInvalidHandle);
  CHECK_ERROR(hipEventRecord(nullptr, s), hipErrorInvalidHandle);
  CHECK_ERROR(hipStreamWaitEvent(s, nullptr, 0), hipErrorInvalidHandle);
}

void graphs() {
  hipGraph_t g, h;
  HIP(hipGraphCreate(&g, 0));
  HIP(hipGraphCreate(&h, 0));
  hipGraphNode_t a, b, twice[2];
  HIP(hipGraphAddEmptyNode(&a, g, nullptr, 0));
  CHECK_ERROR(hipGraphAddEmptyNode(&b, h, &a, 1), hipErrorInvalidValue);  // a is not of h
  twice[0] = twice[1] = a;
  CHECK_ERROR(hipGraphAddEmptyNode(&b, g, twice, 2), hipErrorInvalidValue);
  HIP(hipGraphAddEmptyNode(&b, h, nullptr, 0));
  CHECK_ERROR(hipGraphAddDependencies(g, &a, &b, 1), hipErrorInvalidValue);
  hipGraphExec_t exec;
  HIP(hipGraphInstantiate(&exec, g, nullptr, nullptr, 0));
  HIP(hipGraphDestroy(g));
  CHECK_ERROR(hipGraphDestroy(g), hipErrorIllegalState);
  CHECK_ERROR(hipGraphDestroy(nullptr), hipErrorInvalidValue);
  CHECK_ERROR(hipGraphInstantiate(&exec, g, nullptr, nullptr, 0), hipErrorInvalidValue);
  hipGraphNodeType type;
  CHECK_ERROR(hipGraphNodeGetType(a, &type), hipErrorInvalidValue);
  HIP(hipGraphLaunch(exec, nullptr));
  HIP(hipGraphExecDestroy(exec));
  CHECK_ERROR(hipGraphExecDestroy(exec), hipErrorInvalidValue);
  CHECK_ERROR(hipGraphLaunch(exec, nullptr), hipErrorInvalidValue);
  hipStream_t s;
  HIP(hipStreamCreate(&s));
  HIP(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal));
  hipStreamCaptureStatus status;
  HIP(hipStreamGetCaptureInfo_v2(s, &status, nullptr, &g, nullptr, nullptr));
  CHECK_ERROR(hipGraphDestroy(g), hipErrorIllegalState);  // a capture's
  HIP(hipStreamEndCapture(s, &g));
  HIP(hipGraphDestroy(g));
}

void arguments() {
  int *p = device<int>(4), x[4] = {}, y[4] = {};
  CHECK_ERROR(hipMemcpy(p, x, 16, hipMemcpyKind(7)), hipErrorInvalidMemcpyDirection);
  CHECK_ERROR(hipMemcpy(x, y, 16, hipMemcpyHostToDevice), hipErrorInvalidValue);
  HIP(hipMemcpy(x, y, 16, hipMemcpyHostToHost));
  HIP(hipMemcpy(x, y, 16, hipMemcpyDefault));
  CHECK_ERROR(hipMemcpyPeer(p, 99, p, 0, 4), hipErrorInvalidDevice);
  increment<<<1 << 23, 1024>>>(p);  // 2^33 threads
  CHECK_ERROR(hipGetLastError(), hipErrorInvalidConfiguration);
  CHECK_ERROR(hipSetDeviceFlags(0x100), hipErrorInvalidValue);
  CHECK_ERROR(hipSetDeviceFlags(3), hipErrorInvalidValue);
  HIP(hipSetDeviceFlags(hipDeviceScheduleBlockingSync));
  CHECK_ERROR(hipDeviceSetLimit(hipLimitRange, 1), hipErrorInvalidValue);
  CHECK_ERROR(hipDeviceSetLimit(hipLimitPrintfFifoSize, 1), hipErrorUnsupportedLimit);
  CHECK_ERROR(hipDeviceSetCacheConfig(hipFuncCache_t(9)), hipErrorInvalidValue);
  CHECK_ERROR(hipDeviceDisablePeerAccess(0), hipErrorInvalidDevice);
  // An error stays until somebody fetches it, whatever succeeds in between.
  (void)hipGetLastError();
  CHECK_ERROR(hipSetDevice(99), hipErrorInvalidDevice);
  HIP(hipSetDevice(0));
  HIP(hipDeviceSynchronize());
  CHECK(hipPeekAtLastError() == hipErrorInvalidDevice && hipGetLastError() == hipErrorInvalidDevice);
  HIP(hipGetLastError());
}

std::vector<char> fat_binary() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::vector<char> const own{std::istreambuf_iterator<char>(self), {}};
  auto const* const elf = reinterpret_cast<Elf64_Ehdr const*>(own.data());
  auto const* const sections = reinterpret_cast<Elf64_Shdr const*>(own.data() + elf->e_shoff);
  for (int i = 0; i < elf->e_shnum; ++i)
    if (std::strcmp(own.data() + sections[elf->e_shstrndx].sh_offset + sections[i].sh_name, ".hip_fatbin") == 0)
      return {own.data() + sections[i].sh_offset, own.data() + sections[i].sh_offset + sections[i].sh_size};
  return {};
}

/// Run with --gpus 2. With an argument, ends in the simulator's report.
void modules() {
  std::vector<char> const bundle = fat_binary();
  hipModule_t m;
  hipFunction_t f;
  HIP(hipModuleLoadData(&m, bundle.data()));
  HIP(hipModuleGetFunction(&f, m, "_Z9incrementPi"));
  int* p = device<int>(1);
  void* pointers[] = {&p};
  std::size_t size = sizeof p;
  void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &p, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_END};
  CHECK_ERROR(hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, extra), hipErrorInvalidValue);
  CHECK_ERROR(hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), hipErrorInvalidValue);
  HIP(hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  HIP(hipSetDevice(1));
  CHECK_ERROR(hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr), hipErrorInvalidDevice);
  if (std::getenv("USE_ELSEWHERE")) (void)hipModuleGetFunction(&f, m, "_Z9incrementPi");
  HIP(hipSetDevice(0));
  HIP(hipModuleUnload(m));
  CHECK_ERROR(hipModuleUnload(m), hipErrorNotFound);
  CHECK_ERROR(hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr), hipErrorInvalidDeviceFunction);
  CHECK_ERROR(hipModuleGetFunction(&f, m, "_Z9incrementPi"), hipErrorNotFound);
}

/// Prints the devices that this process sees by their PCI addresses, and uses each of them.
void visible() {
  int n = -1, d = -1;
  hipError_t const e = hipGetDeviceCount(&n);
  CHECK(e == (n ? hipSuccess : hipErrorNoDevice));
  std::printf("sees %d:", n);
  for (int i = 0; i < n; ++i) {
    char bus[16];
    HIP(hipDeviceGetPCIBusId(bus, sizeof bus, i));
    HIP(hipDeviceGetByPCIBusId(&d, bus));
    CHECK(d == i);
    std::printf(" %.2s", bus + 5);
    HIP(hipSetDevice(i));
    HIP(hipGetDevice(&d));
    CHECK(d == i);
    hipStream_t s;
    HIP(hipStreamCreate(&s));
    HIP(hipStreamGetDevice(s, &d));
    CHECK(d == i);
    int *p = device<int>(1), got = 0;
    HIP(hipMemset(p, 0, 4));
    increment<<<1, 1, 0, s>>>(p);
    HIP(hipStreamSynchronize(s));
    HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
    CHECK(got == 1);
    hipPointerAttribute_t a;
    HIP(hipPointerGetAttributes(&a, p));
    CHECK(a.device == i);
    for (int j = 0; j < n; ++j)
      if (j != i) HIP(hipDeviceEnablePeerAccess(j, 0));
  }
  std::printf("\n");
  CHECK_ERROR(hipSetDevice(n), n ? hipErrorInvalidDevice : hipErrorNoDevice);
  if (n == 0) {
    void* p;
    CHECK_ERROR(hipGetDevice(&d), hipErrorNoDevice);
    CHECK_ERROR(hipMalloc(&p, 4), hipErrorNoDevice);
    increment<<<1, 1>>>(nullptr);
    CHECK_ERROR(hipGetLastError(), hipErrorNoDevice);
  }
}

int main(int argc, char** argv) {
  test_case const cases[] = {{"streams", streams},     {"events", events},   {"graphs", graphs},
                             {"arguments", arguments}, {"modules", modules}, {"visible", visible}};
  return run_case(cases, argc, argv);
}
