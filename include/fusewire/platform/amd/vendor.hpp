// gfx942 (MI300X, MI325X) through ROCm's clang. ../nvidia mirrors this folder call by call.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdint>

#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx942__)
#error "fusewire needs gfx942: --offload-arch=gfx942, or CMAKE_HIP_ARCHITECTURES=gfx942"
#endif

// CUDA's word for a parameter that a kernel reads in place, as every kernel here does
#ifndef __grid_constant__
#define __grid_constant__
#endif

namespace fusewire {

/// HIP's names, where they are not global already (see ../hip_on_cuda.hpp).
namespace hip {}

namespace platform {

inline constexpr char const* name = "amd";      // of the vendor
inline constexpr int wave_size = 64;            // lanes
inline constexpr int max_shared_bytes = 65536;  // LDS of one CU
/// 16 bytes that travel through registers as one value.
using native16 = std::uint32_t __attribute__((ext_vector_type(4)));

}  // namespace platform
}  // namespace fusewire
