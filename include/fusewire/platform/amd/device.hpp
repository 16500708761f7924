// Devices as the host sees them: memory that is polled or shared, compute units, the runtime.
#pragma once
#include <cstdlib>
#include <cstring>

#include <fusewire/platform/amd/vendor.hpp>

namespace fusewire::platform {

/// Memory that peers write and kernels poll: never cached by a peer, coherent in the owner's cache.
inline hipError_t malloc_signal(void** p, std::size_t bytes) {
  return hipExtMallocWithFlags(p, bytes, hipDeviceMallocUncached);
}
/// Whether polled memory works depends on the memory type of each mapping. So it is tried when a heap is made.
inline constexpr bool tries_flags = true;

/// Whether kernels of several processes run on a device concurrently, so that they may wait for each other.
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
/// How many XCDs take the blocks of a launch round robin: block i goes to XCD i modulo their number,
/// and waits there even when another XCD has room.
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
/// The number of a mask's compute units that blocks can fill. XCDs take blocks round robin, so every XCD counts as the
/// one with the fewest units. Bit i is a compute unit of XCD i modulo the number of XCDs [Linux,
/// mqd_symmetrically_map_cu_mask].
template <std::size_t Words>
constexpr int fillable(std::uint32_t const (&mask)[Words], int xcds) {
  int fewest = int(32 * Words);
  for (int p = 0; p < xcds; ++p) {
    int units = 0;
    for (int i = p; i < int(32 * Words); i += xcds) units += int(mask[i / 32] >> i % 32 & 1);
    fewest = units < fewest ? units : fewest;
  }
  return xcds * fewest;
}
/// The compute units of the current device, which has `xcds` XCDs, that blocks on the stream can fill. A mask of the
/// stream (hipExtStreamCreateWithCUMask), or of all streams (ROC_GLOBAL_CU_MASK), may take some away.
inline hipError_t usable_cus(int* n, hipStream_t stream, int xcds) {
  std::uint32_t mask[32] = {};
  hipError_t e = hipExtStreamGetCUMask(stream, 32, mask);
  // For a stream without a mask HIP writes nothing, even if there is a mask of all streams
  bool const none = fillable(mask, 1) == 0;
  if (e == hipSuccess && none) e = hipExtStreamGetCUMask(nullptr, 32, mask);
  *n = fillable(mask, xcds);
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

}  // namespace fusewire::platform
