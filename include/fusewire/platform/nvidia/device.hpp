// Devices as the host sees them: memory that is polled or shared, compute units, the runtime.
#pragma once
#include <cstdlib>

#include <fusewire/platform/nvidia/shared_memory.hpp>
#include <fusewire/platform/nvidia/vendor.hpp>

namespace fusewire::platform {

/// Memory that peers write and kernels poll. Device memory is coherent in its owner's L2 for all devices.
inline cudaError_t malloc_signal(void** p, std::size_t bytes) { return cudaMalloc(p, bytes); }
/// Nothing to try: there is one memory type, for which PTX's memory model holds in every mapping.
inline constexpr bool tries_flags = false;

/// Whether kernels of several processes run on a device concurrently, so that they may wait for each other.
inline cudaError_t processes_share_device(int* yes, int device) {
  cudaError_t const e = cudaDeviceGetAttribute(yes, cudaDevAttrMpsEnabled, device);
  if (e == cudaSuccess) return cudaSuccess;
  if (cudaPeekAtLastError() == e) (void)cudaGetLastError();
  *yes = 0;  // a driver without this attribute
  return cudaSuccess;
}
/// Sets the runtime up before its first use. Code is loaded before the first launch instead of during it, because a
/// load can block on a device that is itself blocked on this rank. Where ranks are threads, each of many ranks on one
/// device gets its own queue.
inline void prepare_runtime(bool threads) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (threads) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}
/// The number of XCDs that take the blocks of a launch round robin, even if another one has room. Here a
/// block goes wherever it fits.
inline cudaError_t xcd_count(int* n, int) {
  *n = 1;
  return cudaSuccess;
}
/// The multiprocessors of the current device that blocks on the stream can fill.
inline cudaError_t usable_cus(int* n, cudaStream_t, int) {
  int device = 0;
  if (cudaError_t const e = cudaGetDevice(&device); e != cudaSuccess) return e;
  return cudaDeviceGetAttribute(n, cudaDevAttrMultiProcessorCount, device);
}
/// The environment variable that makes a device give blocks fewer multiprocessors than CUDA says: there is none.
inline char const* unsupported_mask_variable() { return nullptr; }

/// An id that distinguishes devices with one PCI address: none is needed.
inline cudaError_t device_uuid(char (&)[16], int) { return cudaSuccess; }
inline cudaError_t may_be_partition(int* yes, int) {
  *yes = 0;
  return cudaSuccess;
}

}  // namespace fusewire::platform
