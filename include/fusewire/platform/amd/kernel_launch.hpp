// Launches beyond hipLaunchKernel: clusters, and kernels that start early.
#pragma once
#include <fusewire/platform/amd/vendor.hpp>

namespace fusewire::platform {

/// Allows a kernel that much dynamic shared memory.
inline hipError_t allow_shared_bytes(void const*, int) { return hipSuccess; }  // LDS needs no opt-in
/// There are no clusters of blocks here.
inline hipError_t resident_clusters(int* n, void const*, int, int, int) {
  *n = 0;
  return hipSuccess;
}
/// Launches in clusters, or early. Called by: launch(), where the device has clusters.
inline hipError_t launch_extended(void const*, int, bool, int, int, int, hipStream_t, void**) {
  return hipErrorNotSupported;
}

}  // namespace fusewire::platform
