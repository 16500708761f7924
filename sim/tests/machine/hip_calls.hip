// HIP calls about devices, memory, modules and kernels, a case per family. Run under fusewire-sim with --gpus 4.
#include "check.hpp"

#include <elf.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

__device__ int module_variable = 5;
__constant__ int table[4] = {1, 2, 3, 4};

__global__ void increment(int* p, int n) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
}
__global__ void use_module(int* out) { *out = module_variable++ + table[3]; }
__global__ void dimensions(unsigned* out) {
  if (blockIdx.x == 1 && blockIdx.y == 2 && blockIdx.z == 1 && threadIdx.x == 3 && threadIdx.y == 1 &&
      threadIdx.z == 1) {
    out[0] = gridDim.x, out[1] = gridDim.y, out[2] = gridDim.z, out[3] = blockDim.x, out[4] = blockDim.y,
    out[5] = blockDim.z;
  }
}
__global__ void reverse_in_lds(int* p) {
  extern __shared__ int lds[];
  lds[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = lds[blockDim.x - 1 - threadIdx.x];
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
  CHECK(std::string(p.gcnArchName) == "gfx942:sramecc+:xnack-" && p.warpSize == 64 && p.multiProcessorCount == 304 &&
        p.sharedMemPerBlock == 65536);
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
  CHECK(std::string(hipGetErrorName(hipErrorInvalidValue)) == "hipErrorInvalidValue" &&
        std::string(hipGetErrorString(hipErrorOutOfMemory)) == "out of memory");
}

/// Run with --gpus 2 --partitions 4.
void partitions() {
  int n = 0, value = 0, d = -1;
  HIP(hipGetDeviceCount(&n));
  CHECK(n == 8);
  char bus[8][16];
  hipUUID uuid[8];
  for (int i = 0; i < n; ++i) {
    HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, i));
    CHECK(value == 76);
    HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeNumberOfXccs, i));
    CHECK(value == 2);
    HIP(hipDeviceGetPCIBusId(bus[i], sizeof bus[i], i));
    hipUUID again;
    std::memset(&uuid[i], 1, sizeof uuid[i]);
    std::memset(&again, 2, sizeof again);
    HIP(hipDeviceGetUuid(&uuid[i], i));
    HIP(hipDeviceGetUuid(&again, i));
    CHECK(std::memcmp(&uuid[i], &again, sizeof again) == 0);
    for (int j = 0; j < i; ++j) {
      CHECK((std::strcmp(bus[i], bus[j]) == 0) == (i / 4 == j / 4));
      CHECK(std::memcmp(uuid[i].bytes, uuid[j].bytes, sizeof uuid[i].bytes) != 0);
    }
  }
  HIP(hipDeviceGetByPCIBusId(&d, bus[6]));
  CHECK(d == 4);
}

/// Run with and without ROC_GLOBAL_CU_MASK=0xffff.
void masks() {
  bool const global = std::getenv("ROC_GLOBAL_CU_MASK");
  int units = 0, all = 0;
  HIP(hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, 0));
  HIP(hipDeviceGetAttribute(&all, hipDeviceAttributePhysicalMultiProcessorCount, 0));
  CHECK(units == (global ? 16 : 304) && all == 304);
  std::uint32_t mask[10], few[2] = {0xff00ff00, 1};
  auto const of = [&](hipStream_t s, std::uint32_t before) {
    for (std::uint32_t& m : mask) m = before;
    HIP(hipExtStreamGetCUMask(s, 10, mask));
    return std::vector<std::uint32_t>(mask, mask + 10);
  };
  std::vector<std::uint32_t> whole(10, ~0u);
  whole[9] = 0xffff;
  std::vector<std::uint32_t> const sixteen{0xffff, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  hipStream_t plain, masked, apart;
  HIP(hipStreamCreate(&plain));
  CHECK(of(nullptr, 5) == (global ? sixteen : whole));
  CHECK(of(plain, 5) == (global ? std::vector<std::uint32_t>(10, 5) : whole));
  HIP(hipExtStreamCreateWithCUMask(&masked, 2, few));
  CHECK(of(masked, 5) == (global ? std::vector<std::uint32_t>{0xff00, 0, 0, 0, 0, 0, 0, 0, 0, 0}
                                 : std::vector<std::uint32_t>{0xff00ff00, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
  few[0] = 0, few[1] = 2;
  HIP(hipExtStreamCreateWithCUMask(&apart, 2, few));
  CHECK(of(apart, 5) == (global ? sixteen : std::vector<std::uint32_t>{0, 2, 0, 0, 0, 0, 0, 0, 0, 0}));
  if (!global) CHECK_ERROR(hipExtStreamGetCUMask(masked, 9, mask), hipErrorInvalidValue);
  CHECK_ERROR(hipExtStreamCreateWithCUMask(&apart, 0, few), hipErrorInvalidValue);
  CHECK_ERROR(hipExtStreamCreateWithCUMask(&apart, 2, nullptr), hipErrorInvalidValue);
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
  CHECK_ERROR(hipLaunchCooperativeKernel(reinterpret_cast<void const*>(increment), dim3(304 * 32 + 1), dim3(64),
                                         arguments, 0, nullptr),
              hipErrorCooperativeLaunchTooLarge);
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
  HIP(hipFuncSetAttribute(reinterpret_cast<void const*>(reverse_in_lds), hipFuncAttributeMaxDynamicSharedMemorySize,
                          65536));
  CHECK_ERROR(hipFuncSetAttribute(reinterpret_cast<void const*>(reverse_in_lds),
                                  hipFuncAttributeMaxDynamicSharedMemorySize, 65537),
              hipErrorInvalidValue);
}

/// The section .hip_fatbin of this program.
std::vector<char> fat_binary() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::vector<char> const own{std::istreambuf_iterator<char>(self), {}};
  auto const* const elf = reinterpret_cast<Elf64_Ehdr const*>(own.data());
  auto const* const sections = reinterpret_cast<Elf64_Shdr const*>(own.data() + elf->e_shoff);
  for (int i = 0; i < elf->e_shnum; ++i) {
    char const* const name = own.data() + sections[elf->e_shstrndx].sh_offset + sections[i].sh_name;
    if (std::strcmp(name, ".hip_fatbin") == 0)
      return {own.data() + sections[i].sh_offset, own.data() + sections[i].sh_offset + sections[i].sh_size};
  }
  return {};
}

/// This program's fat binary as a file: whole, cut short, and with bytes changed.
void modules() {
  std::vector<char> const bundle = fat_binary();
  CHECK(!bundle.empty());
  std::string const path = "/tmp/fusewire_sim_module_" + std::to_string(getpid());
  auto const load = [&](std::vector<char> const& bytes) {
    std::FILE* const to = std::fopen(path.c_str(), "wb");
    CHECK(to && std::fwrite(bytes.data(), 1, bytes.size(), to) == bytes.size() && std::fclose(to) == 0);
    hipModule_t module = nullptr;
    hipError_t const e = hipModuleLoad(&module, path.c_str());
    std::remove(path.c_str());
    if (e == hipSuccess) HIP(hipModuleUnload(module));
    return e;
  };
  HIP(load(bundle));
  CHECK_ERROR(load({}), hipErrorInvalidImage);
  CHECK_ERROR(hipModuleLoad(nullptr, "/no/such/file"), hipErrorFileNotFound);
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{8}, std::size_t{24},
                                  std::size_t{31}, std::size_t{40}, std::size_t{63}, std::size_t{64}, std::size_t{70},
                                  std::size_t{200}, bundle.size() / 4, bundle.size() / 2, bundle.size() * 3 / 4})
    CHECK(load({bundle.begin(), bundle.begin() + bytes}) != hipSuccess);
  for (std::size_t i = 4; i < 200; ++i) {
    auto bytes = bundle;
    bytes[i] = '\xff';
    (void)load(bytes);
  }
  hipModule_t module;
  HIP(hipModuleLoadData(&module, bundle.data()));
  hipFunction_t increment;
  HIP(hipModuleGetFunction(&increment, module, "_Z9incrementPii"));
  int *p = device<int>(1), n = 1, got;
  HIP(hipMemset(p, 0, 4));
  void* arguments[] = {&p, &n};
  HIP(hipModuleLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
  HIP(hipModuleUnload(module));
}

void compressed() {
  int *p = device<int>(1), got;
  HIP(hipMemset(p, 0, 4));
  increment<<<1, 1>>>(p, 1);
  HIP(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost));
  CHECK(got == 1);
}

int main(int argc, char** argv) {
  test_case const cases[] = {{"devices", devices}, {"partitions", partitions}, {"masks", masks},
                             {"peers", peers},     {"memory", memory},         {"copies", copies},
                             {"symbols", symbols}, {"launches", launches},     {"attributes", attributes},
                             {"modules", modules}, {"compressed", compressed}};
  return run_case(cases, argc, argv);
}
