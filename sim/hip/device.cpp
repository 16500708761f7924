#include <algorithm>
#include <cstdio>

#include "hip/runtime.hpp"

using namespace fusewire::sim;

namespace {

/// Devices are ordinals among the GPUs that the process sees.
bool valid(int device) { return runtime::get().gpu_of(device) >= 0; }

/// Partitions of a GPU have one PCI address.
int bus_of(int device) { return 0x10 + runtime::get().gpu_of(device) / runtime::get().machine().settings.partitions; }

void set_uuid(hipUUID& uuid, int device) {
  static_assert(sizeof uuid.bytes == 16);
  std::memcpy(uuid.bytes, unique_id(runtime::get().gpu_of(device)).data(), sizeof uuid.bytes);
}

void describe_device(hipDeviceProp_t& p, int device) {
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "fusewire-sim MI300X");
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "gfx942:sramecc+:xnack-");
  set_uuid(p.uuid, device);
  p.totalGlobalMem = address_space::capacity;
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor = p.sharedMemPerBlockOptin =
      lds_per_cu;
  p.regsPerBlock = p.regsPerMultiprocessor = 4 * 512 * lanes;
  p.warpSize = lanes;
  p.memPitch = p.totalConstMem = 2147483647;
  p.maxThreadsPerBlock = 1024;
  std::fill_n(p.maxThreadsDim, 3, 1024);
  p.maxGridSize[0] = 2147483647, p.maxGridSize[1] = p.maxGridSize[2] = 65536;
  p.clockInstructionRate = wall_clock_mhz * 1000;
  p.major = 9, p.minor = 4;
  config const& c = runtime::get().machine().settings;
  p.clockRate = static_cast<int>(c.rates.mhz * 1000);
  p.multiProcessorCount = c.mask.any() ? static_cast<int>(c.mask.count()) : c.cus;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = p.cooperativeLaunch = p.isLargeBar =
      1;
  p.hostRegisterSupported = p.streamPrioritiesSupported = p.managedMemory = p.hostNativeAtomicSupported =
      p.memoryPoolsSupported = 1;
  p.canUseHostPointerForRegisteredMem = p.directManagedMemAccessFromHost = p.concurrentManagedAccess = 1;
  p.pciBusID = bus_of(device);
  p.asyncEngineCount = 8;
  p.memoryClockRate = 1300000, p.memoryBusWidth = 8192;
  p.l2CacheSize = 4 << 20;
  p.maxThreadsPerMultiProcessor = 2048, p.maxBlocksPerMultiProcessor = 32;
  p.textureAlignment = p.texturePitchAlignment = p.surfaceAlignment = 256;
  p.arch.hasGlobalInt32Atomics = p.arch.hasGlobalFloatAtomicExch = p.arch.hasSharedInt32Atomics =
      p.arch.hasSharedFloatAtomicExch = 1;
  p.arch.hasFloatAtomicAdd = p.arch.hasGlobalInt64Atomics = p.arch.hasSharedInt64Atomics = p.arch.hasDoubles = 1;
  p.arch.hasWarpVote = p.arch.hasWarpBallot = p.arch.hasWarpShuffle = p.arch.hasThreadFenceSystem = p.arch.has3dGrid =
      1;
}

std::optional<int> attribute(hipDeviceAttribute_t a, int device) {
  hipDeviceProp_t p;
  describe_device(p, device);
  switch (a) {
    case hipDeviceAttributeEccEnabled: return p.ECCEnabled;
    case hipDeviceAttributeAsyncEngineCount: return p.asyncEngineCount;
    case hipDeviceAttributeCanMapHostMemory:
    case hipDeviceAttributeCanUseHostPointerForRegisteredMem:
    case hipDeviceAttributeConcurrentKernels:
    case hipDeviceAttributeConcurrentManagedAccess:
    case hipDeviceAttributeCooperativeLaunch:
    case hipDeviceAttributeDirectManagedMemAccessFromHost:
    case hipDeviceAttributeHostNativeAtomicSupported:
    case hipDeviceAttributeHostRegisterSupported:
    case hipDeviceAttributeManagedMemory:
    case hipDeviceAttributeMemoryPoolsSupported:
    case hipDeviceAttributeStreamPrioritiesSupported:
    case hipDeviceAttributeUnifiedAddressing:
    case hipDeviceAttributeFineGrainSupport:
    case hipDeviceAttributeIsLargeBar: return 1;
    case hipDeviceAttributeClockRate: return p.clockRate;
    case hipDeviceAttributeComputeCapabilityMajor: return p.major;
    case hipDeviceAttributeComputeCapabilityMinor: return p.minor;
    case hipDeviceAttributeL2CacheSize: return p.l2CacheSize;
    case hipDeviceAttributeMaxBlockDimX:
    case hipDeviceAttributeMaxBlockDimY:
    case hipDeviceAttributeMaxBlockDimZ:
    case hipDeviceAttributeMaxThreadsPerBlock: return 1024;
    case hipDeviceAttributeMaxBlocksPerMultiProcessor: return p.maxBlocksPerMultiProcessor;
    case hipDeviceAttributeMaxGridDimX: return p.maxGridSize[0];
    case hipDeviceAttributeMaxGridDimY:
    case hipDeviceAttributeMaxGridDimZ: return p.maxGridSize[1];
    case hipDeviceAttributeMaxPitch:
    case hipDeviceAttributeTotalConstantMemory: return 2147483647;
    case hipDeviceAttributeMaxRegistersPerBlock:
    case hipDeviceAttributeMaxRegistersPerMultiprocessor: return p.regsPerBlock;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
    case hipDeviceAttributeSharedMemPerMultiprocessor:
    case hipDeviceAttributeSharedMemPerBlockOptin: return static_cast<int>(lds_per_cu);
    case hipDeviceAttributeMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
    case hipDeviceAttributeMemoryBusWidth: return p.memoryBusWidth;
    case hipDeviceAttributeMemoryClockRate: return p.memoryClockRate;
    case hipDeviceAttributeMultiprocessorCount: return p.multiProcessorCount;
    case hipDeviceAttributePhysicalMultiProcessorCount: return runtime::get().machine().settings.cus;
    case hipDeviceAttributeNumberOfXccs: return runtime::get().machine().xcds();
    case hipDeviceAttributePciBusId: return p.pciBusID;
    case hipDeviceAttributePciDeviceId:
    case hipDeviceAttributePciDomainId: return 0;
    case hipDeviceAttributeWallClockRate:
    case hipDeviceAttributeClockInstructionRate: return p.clockInstructionRate;
    case hipDeviceAttributeWarpSize: return lanes;
    case hipDeviceAttributeTextureAlignment: return static_cast<int>(p.textureAlignment);
    case hipDeviceAttributeMaxAvailableVgprsPerThread: return 512;
    case hipDeviceAttributeCanUseStreamWaitValue:
    case hipDeviceAttributeComputeMode:
    case hipDeviceAttributeIntegrated:
    case hipDeviceAttributeIsMultiGpuBoard:
    case hipDeviceAttributeKernelExecTimeout:
    case hipDeviceAttributePageableMemoryAccess:
    case hipDeviceAttributePageableMemoryAccessUsesHostPageTables:
    case hipDeviceAttributeVirtualMemoryManagementSupported:
    case hipDeviceAttributeCooperativeMultiDeviceLaunch:
    case hipDeviceAttributeImageSupport: return 0;
    default: return std::nullopt;
  }
}

}  // namespace

extern "C" {

hipError_t hipInit(unsigned flags) { return remember(flags ? hipErrorInvalidValue : hipSuccess); }
hipError_t hipDriverGetVersion(int* v) { return remember(v ? (*v = HIP_VERSION, hipSuccess) : hipErrorInvalidValue); }
hipError_t hipRuntimeGetVersion(int* v) { return hipDriverGetVersion(v); }

hipError_t hipGetDeviceCount(int* n) {
  return unlocked_api([&] {
    if (!n) return hipErrorInvalidValue;
    *n = static_cast<int>(runtime::get().machine().settings.visible.gpus.size());
    return *n ? hipSuccess : hipErrorNoDevice;
  });
}
hipError_t hipGetDevice(int* d) {
  return unlocked_api([&] {
    if (!d) return hipErrorInvalidValue;
    if (this_thread().device < 0) return hipErrorNoDevice;
    *d = runtime::get().ordinal_of(this_thread().device);
    return hipSuccess;
  });
}
hipError_t hipSetDevice(int d) {
  return unlocked_api([&] {
    if (!valid(0)) return hipErrorNoDevice;
    if (!valid(d)) return hipErrorInvalidDevice;
    this_thread().device = runtime::get().gpu_of(d);
    return hipSuccess;
  });
}
hipError_t hipDeviceGet(hipDevice_t* out, int d) {
  return remember(out && valid(d) ? (*out = d, hipSuccess) : hipErrorInvalidDevice);
}
hipError_t hipSetDeviceFlags(unsigned flags) {
  unsigned const schedule = flags & hipDeviceScheduleMask;
  bool const one = schedule == hipDeviceScheduleAuto || schedule == hipDeviceScheduleSpin ||
                   schedule == hipDeviceScheduleYield || schedule == hipDeviceScheduleBlockingSync;
  unsigned const known = hipDeviceScheduleMask | hipDeviceMapHost | hipDeviceLmemResizeToMax;
  return remember(one && !(flags & ~known) ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipGetDeviceFlags(unsigned* f) { return remember(f ? (*f = 0, hipSuccess) : hipErrorInvalidValue); }

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* p, int d) {
  return unlocked_api([&] {
    if (!p) return hipErrorInvalidValue;
    if (!valid(d)) return hipErrorInvalidDevice;
    describe_device(*p, d);
    return hipSuccess;
  });
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t a, int d) {
  return unlocked_api([&] {
    if (!value) return hipErrorInvalidValue;
    if (!valid(d)) return hipErrorInvalidDevice;
    auto const v = attribute(a, d);
    if (!v) return hipErrorInvalidValue;
    *value = *v;
    return hipSuccess;
  });
}

hipError_t hipDeviceGetName(char* name, int length, hipDevice_t d) {
  if (!name || length <= 0) return remember(hipErrorInvalidValue);
  if (!valid(d)) return remember(hipErrorInvalidDevice);
  std::snprintf(name, static_cast<size_t>(length), "fusewire-sim MI300X");
  return hipSuccess;
}

hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t d) {
  return unlocked_api([&] {
    if (!uuid) return hipErrorInvalidValue;
    if (!valid(d)) return hipErrorInvalidDevice;
    set_uuid(*uuid, d);
    return hipSuccess;
  });
}

hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t d) {
  if (!major || !minor || !valid(d)) return remember(hipErrorInvalidValue);
  *major = 9, *minor = 4;
  return hipSuccess;
}

hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t d) {
  if (!bytes || !valid(d)) return remember(hipErrorInvalidValue);
  *bytes = address_space::capacity;
  return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char* text, int length, int d) {
  return unlocked_api([&] {
    if (!text || length < 13) return hipErrorInvalidValue;
    if (!valid(d)) return hipErrorInvalidDevice;
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", bus_of(d));
    return hipSuccess;
  });
}

hipError_t hipDeviceGetByPCIBusId(int* d, char const* text) {
  unsigned domain = 0, bus = 0, device = 0;
  if (!d || !text || std::sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) return remember(hipErrorInvalidValue);
  for (int i = 0; valid(i); ++i)
    if (bus_of(i) == static_cast<int>(bus)) return *d = i, hipSuccess;
  return remember(hipErrorInvalidValue);
}

hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 1;
  if (greatest) *greatest = -1;
  return hipSuccess;
}

hipError_t hipDeviceGetLimit(size_t* value, hipLimit_t limit) {
  if (!value) return remember(hipErrorInvalidValue);
  if (limit != hipLimitStackSize && limit != hipLimitMallocHeapSize) return remember(hipErrorUnsupportedLimit);
  *value = limit == hipLimitStackSize ? 16384 : size_t{8} << 20;
  return hipSuccess;
}

hipError_t hipDeviceSetLimit(hipLimit_t limit, size_t) {
  if (limit >= hipLimitRange) return remember(hipErrorInvalidValue);
  bool const known = limit == hipLimitStackSize || limit == hipLimitMallocHeapSize;
  return remember(known ? hipSuccess : hipErrorUnsupportedLimit);
}
hipError_t hipDeviceSetCacheConfig(hipFuncCache_t c) {
  return api([&](runtime& r, lock&) {
    if (c < hipFuncCachePreferNone || c > hipFuncCachePreferEqual) return hipErrorInvalidValue;
    return refuse_in_capture(r, call_kind::configures);
  });
}
hipError_t hipDeviceGetCacheConfig(hipFuncCache_t* c) {
  return remember(c ? (*c = hipFuncCachePreferNone, hipSuccess) : hipErrorInvalidValue);
}
hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig c) {
  return api([&](runtime& r, lock&) {
    if (c < hipSharedMemBankSizeDefault || c > hipSharedMemBankSizeEightByte) return hipErrorInvalidValue;
    return refuse_in_capture(r, call_kind::configures);
  });
}

hipError_t hipDeviceCanAccessPeer(int* can, int d, int peer) {
  return unlocked_api([&] {
    if (!can) return hipErrorInvalidValue;
    if (!valid(d) || !valid(peer)) return hipErrorInvalidDevice;
    *can = d != peer;
    return hipSuccess;
  });
}

hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr a, int d, int peer) {
  if (!value || !valid(d) || !valid(peer) || d == peer) return remember(hipErrorInvalidValue);
  *value = a == hipDevP2PAttrHipArrayAccessSupported ? 0 : 1;
  return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api([&](runtime& r, lock&) {
    int const d = this_thread().device, p = r.gpu_of(peer);
    if (flags) return hipErrorInvalidValue;
    if (p < 0 || p == d) return hipErrorInvalidDevice;
    u32& peers = r.machine().peers[static_cast<size_t>(d)];
    if (peers >> p & 1) return hipErrorPeerAccessAlreadyEnabled;
    peers |= 1u << p;
    return hipSuccess;
  });
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
  return api([&](runtime& r, lock&) {
    int const d = this_thread().device, p = r.gpu_of(peer);
    if (p < 0 || p == d) return hipErrorInvalidDevice;
    u32& peers = r.machine().peers[static_cast<size_t>(d)];
    if (!(peers >> p & 1)) return hipErrorPeerAccessNotEnabled;
    peers &= ~(1u << p);
    return hipSuccess;
  });
}

hipError_t hipExtGetLinkTypeAndHopCount(int d, int peer, uint32_t* type, uint32_t* hops) {
  if (!type || !hops || !valid(d) || !valid(peer) || d == peer) return remember(hipErrorInvalidValue);
  *type = 4, *hops = 1;  // HSA_AMD_LINK_INFO_TYPE_XGMI
  return hipSuccess;
}

}  // extern "C"
