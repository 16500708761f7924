// Conversion of 16-bit floats, and arithmetic of the hardware.
#pragma once
#include <fusewire/platform/nvidia/vendor.hpp>

namespace fusewire::platform {

__host__ __device__ inline std::uint16_t bf16_from(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
__host__ __device__ inline float float_from_bf16(std::uint16_t bits) {
  return __bfloat162float(__ushort_as_bfloat16(bits));
}
__host__ __device__ inline std::uint16_t f16_from(float x) { return __half_as_ushort(__float2half_rn(x)); }
__host__ __device__ inline float float_from_f16(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ inline float exp2(float x) { return exp2f(x); }
__device__ inline float log2(float x) { return __log2f(x); }
__device__ inline float quick_reciprocal(float x) { return __fdividef(1.0f, x); }  // within 2 ulp
/// a * b, rounded: no later addition is fused with it.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
/// The low or the high 16 bits of each, those of `even` in the low half.
__device__ inline std::uint32_t low_halves(std::uint32_t even, std::uint32_t odd) {
  return (even & 0xffffu) | odd << 16;
}
/// See low_halves().
__device__ inline std::uint32_t high_halves(std::uint32_t even, std::uint32_t odd) {
  return even >> 16 | (odd & 0xffff0000u);
}

}  // namespace fusewire::platform
