// Launches beyond hipLaunchKernel: clusters, and kernels that start early.
#pragma once
#include <fusewire/platform/nvidia/vendor.hpp>

namespace fusewire::platform {

inline cudaError_t allow_shared_bytes(void const* kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
/// Attributes of a launch in clusters (blocks that start together and reach each other's shared memory), or an early
/// one.
struct extended_launch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};

  extended_launch(int cluster, bool early, int blocks, int threads, int shared_bytes, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {unsigned(cluster), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = early;
    config = {dim3(unsigned(blocks)), dim3(unsigned(threads)), std::size_t(shared_bytes), stream, attributes,
              early ? 2u : 1u};
  }
};

inline cudaError_t resident_clusters(int* n, void const* kernel, int cluster, int threads, int shared_bytes) {
  extended_launch const l(cluster, false, cluster, threads, shared_bytes, nullptr);
  return cudaOccupancyMaxActiveClusters(n, kernel, &l.config);
}
/// Launches in clusters, or early. `arguments`: the address of each.
inline cudaError_t launch_extended(void const* kernel, int cluster, bool early, int blocks, int threads,
                                   int shared_bytes, cudaStream_t stream, void** arguments) {
  extended_launch const l(cluster, early, blocks, threads, shared_bytes, stream);
  return cudaLaunchKernelExC(&l.config, kernel, arguments);
}

}  // namespace fusewire::platform
