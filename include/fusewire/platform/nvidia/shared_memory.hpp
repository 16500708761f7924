// Device memory that other processes map through POSIX file descriptors: virtual memory management through the driver's
// entry points, so that programs need not link with the driver library.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fusewire::platform {

namespace detail {

/// A function of the driver. Calling it returns cudaErrorNotSupported if the driver does not have it.
template <class... P>
class driver_function {
 public:
  constexpr driver_function(char const* name, CUresult (*)(P...)) : name_(name) {}
  cudaError_t operator()(P... arguments) const {
    CUresult (*f)(P...) = nullptr;
    if (cudaError_t const e = find(f); e != cudaSuccess) return e;
    return static_cast<cudaError_t>(f(arguments...));  // both number their errors alike
  }
  cudaError_t find(CUresult (*&f)(P...)) const {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaError_t const e = cudaGetDriverEntryPointByVersion(name_, &entry, 12000, cudaEnableDefault, &found);
    f = reinterpret_cast<CUresult (*)(P...)>(entry);
    return e != cudaSuccess ? e : f ? cudaSuccess : cudaErrorNotSupported;
  }

 private:
  char const* name_;
};

inline constexpr driver_function granularity("cuMemGetAllocationGranularity", &cuMemGetAllocationGranularity);
inline constexpr driver_function create("cuMemCreate", &cuMemCreate);
inline constexpr driver_function release("cuMemRelease", &cuMemRelease);
inline constexpr driver_function reserve("cuMemAddressReserve", &cuMemAddressReserve);
inline constexpr driver_function unreserve("cuMemAddressFree", &cuMemAddressFree);
inline constexpr driver_function map("cuMemMap", &cuMemMap);
inline constexpr driver_function unmap("cuMemUnmap", &cuMemUnmap);
inline constexpr driver_function set_access("cuMemSetAccess", &cuMemSetAccess);
inline constexpr driver_function retain("cuMemRetainAllocationHandle", &cuMemRetainAllocationHandle);
inline constexpr driver_function export_handle("cuMemExportToShareableHandle", &cuMemExportToShareableHandle);
inline constexpr driver_function encode_tiled("cuTensorMapEncodeTiled", &cuTensorMapEncodeTiled);
inline constexpr driver_function import_handle("cuMemImportFromShareableHandle", &cuMemImportFromShareableHandle);

/// Maps a whole allocation for `device`, and releases the caller's handle: the mapping keeps the allocation.
inline cudaError_t map_whole(void** p, std::size_t bytes, int device, CUmemGenericAllocationHandle h) {
  CUdeviceptr at = 0;
  cudaError_t e = reserve(&at, bytes, 0, 0, 0);
  if (e == cudaSuccess) {
    e = map(at, bytes, 0, h, 0);
    if (e == cudaSuccess) {
      CUmemAccessDesc const access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      e = set_access(at, bytes, &access, 1);
      if (e != cudaSuccess) (void)unmap(at, bytes);
    }
    if (e != cudaSuccess) (void)unreserve(at, bytes);
  }
  (void)release(h);
  *p = e == cudaSuccess ? reinterpret_cast<void*>(at) : nullptr;
  return e;
}

}  // namespace detail

/// Allocates memory that can be shared. Rounds *bytes up to a size that can be mapped.
inline cudaError_t malloc_shared(void** p, std::size_t* bytes, int device) {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  std::size_t step = 0;
  if (cudaError_t const e = detail::granularity(&step, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED); e != cudaSuccess)
    return e;
  *bytes = (*bytes + step - 1) / step * step;
  CUmemGenericAllocationHandle h = 0;
  if (cudaError_t const e = detail::create(&h, *bytes, &what, 0); e != cudaSuccess) return e;
  return detail::map_whole(p, *bytes, device, h);
}

/// Returns a descriptor of what malloc_shared() returned; the caller closes it.
inline cudaError_t export_shared(int* fd, void* p) {
  CUmemGenericAllocationHandle h = 0;
  if (cudaError_t const e = detail::retain(&h, p); e != cudaSuccess) return e;
  cudaError_t const e = detail::export_handle(fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  (void)detail::release(h);
  return e;
}

/// Maps another process's memory for `device`. Requires: `bytes` as malloc_shared() rounded them there.
inline cudaError_t import_shared(void** p, std::size_t bytes, int device, int fd) {
  CUmemGenericAllocationHandle h = 0;
  if (cudaError_t const e = detail::import_handle(&h, reinterpret_cast<void*>(std::intptr_t(fd)),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      e != cudaSuccess)
    return e;
  return detail::map_whole(p, bytes, device, h);
}

/// Frees what malloc_shared() or import_shared() returned. Requires: no work that uses it is in flight.
inline void free_shared(void* p, std::size_t bytes) {
  (void)detail::unmap(reinterpret_cast<CUdeviceptr>(p), bytes);
  (void)detail::unreserve(reinterpret_cast<CUdeviceptr>(p), bytes);
}

}  // namespace fusewire::platform
