// sm_90 (H100, H200) through nvcc. This folder mirrors ../amd call by call.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <fusewire/platform/hip_on_cuda.hpp>

#if CUDART_VERSION < 12080
#error "fusewire needs CUDA 12.8 or newer"
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "fusewire needs sm_90a: nvcc -gencode arch=compute_90a,code=sm_90a, or CMAKE_CUDA_ARCHITECTURES=90a"
#endif

namespace fusewire {
namespace platform {

inline constexpr char const* name = "nvidia";
inline constexpr int wave_size = 32;
inline constexpr int max_shared_bytes = 232448;  // 227 KB of one SM
/// 16 bytes that travel through registers as one value.
using native16 = uint4;

}  // namespace platform
}  // namespace fusewire
