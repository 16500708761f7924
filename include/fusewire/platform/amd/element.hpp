// Conversion of 16-bit floats, and arithmetic of the hardware.
#pragma once
#include <fusewire/platform/amd/vendor.hpp>

namespace fusewire::platform {

/// The bits of x as bfloat16.
__host__ __device__ inline std::uint16_t bf16_from(float x) {  // round to nearest even; NaN stays NaN
  std::uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  std::uint32_t const quiet = u | 0x400000, rounded = u + 0x7fff + (u >> 16 & 1);  // before the choice: no branch
  return std::uint16_t((x != x ? quiet : rounded) >> 16);
}
/// The value of these bits of a bfloat16.
__host__ __device__ inline float float_from_bf16(std::uint16_t bits) {
  std::uint32_t const u = std::uint32_t(bits) << 16;
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
/// The bits of x as IEEE binary16: round to nearest even.
__host__ __device__ inline std::uint16_t f16_from(float x) {
  _Float16 const h = _Float16(x);
  std::uint16_t bits;
  __builtin_memcpy(&bits, &h, 2);
  return bits;
}
/// The value of these bits of an IEEE binary16.
__host__ __device__ inline float float_from_f16(std::uint16_t bits) {
  _Float16 h;
  __builtin_memcpy(&h, &bits, 2);
  return float(h);
}
/// 2^x by the hardware, about 1 ulp; denormal results are 0.
__device__ inline float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
/// Logarithm to the base 2 by the hardware, about 1 ulp.
__device__ inline float log2(float x) { return __builtin_amdgcn_logf(x); }
__device__ inline float quick_reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }  // within 1 ulp
/// a * b, rounded: no later addition is fused with it.
__device__ inline float rounded_product(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
/// The low or the high 16 bits of each, those of `even` in the low half.
__device__ inline std::uint32_t low_halves(std::uint32_t even, std::uint32_t odd) {
  return __builtin_amdgcn_perm(odd, even, 0x05040100);
}
/// See low_halves().
__device__ inline std::uint32_t high_halves(std::uint32_t even, std::uint32_t odd) {
  return __builtin_amdgcn_perm(odd, even, 0x07060302);
}

}  // namespace fusewire::platform
