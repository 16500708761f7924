// 8-bit floats as storage: e4m3 of the OCP standard (Hopper), and its variant without infinities and -0 (gfx942).
#pragma once
#include <cstdint>

#include <fusewire/core/types.hpp>

namespace fusewire {

namespace detail {

/// The bits of |x| as a float with 4 bits of exponent, 3 of mantissa and this bias: rounded to nearest, ties to even,
/// and at most `largest`. x is a number.
template <int Bias>
__host__ __device__ constexpr std::uint8_t e4m3_magnitude(float x, float largest) {
  float const size = x < 0 ? -x : x;
  std::uint32_t const bits = __builtin_bit_cast(std::uint32_t, size < largest ? size : largest);
  int const exponent = int(bits >> 23) - 127 + Bias;
  if (exponent < -3) return 0;  // below half of the smallest number
  // Bits of the mantissa that are rounded away; a denormal number loses more
  int const lost = exponent >= 1 ? 20 : 21 - exponent;
  std::uint32_t const whole = (bits & 0x7fffff) | 0x800000, kept = whole >> lost, rest = whole & ((1u << lost) - 1),
                      half = 1u << (lost - 1);
  std::uint32_t const rounded = kept + (rest > half || (rest == half && (kept & 1)));
  // The leading one of a normal number adds 1 to the exponent, and so does a carry
  return std::uint8_t(exponent >= 1 ? (std::uint32_t(exponent - 1) << 3) + rounded : rounded);
}

/// The value of the low 7 bits.
template <int Bias>
__host__ __device__ constexpr float e4m3_value(std::uint8_t bits) {
  int const exponent = bits >> 3 & 15, mantissa = bits & 7;
  float const unit = __builtin_bit_cast(float, std::uint32_t(127 + (exponent ? exponent : 1) - Bias - 3) << 23);
  return float(exponent ? mantissa + 8 : mantissa) * unit;
}

}  // namespace detail

/// e4m3 as the OCP standard has it: up to 448, NaN 0x7f and 0xff. Layout-compatible with __nv_fp8_e4m3 and
/// torch.float8_e4m3fn.
struct fp8_e4m3fn {
  std::uint8_t bits;  // the encoding

  /// The largest number.
  static constexpr float largest = 448;

  fp8_e4m3fn() = default;
  /// Rounds to nearest; ties go to even. Larger numbers become the largest. NaN stays NaN.
  __host__ __device__ explicit constexpr fp8_e4m3fn(float x)
      : bits(x != x ? 0x7f : std::uint8_t(detail::e4m3_magnitude<7>(x, largest) | (x < 0 ? 0x80 : 0))) {}
  /// The same value as a float.
  __host__ __device__ explicit constexpr operator float() const {
    if ((bits & 0x7f) == 0x7f) return __builtin_nanf("");
    return bits & 0x80 ? -detail::e4m3_value<7>(bits) : detail::e4m3_value<7>(bits);
  }
};

/// e4m3 as gfx942 multiplies it: up to 240, one zero, NaN 0x80. Layout-compatible with __hip_fp8_e4m3_fnuz and
/// torch.float8_e4m3fnuz.
struct fp8_e4m3fnuz {
  std::uint8_t bits;  // the encoding

  /// The largest number.
  static constexpr float largest = 240;

  fp8_e4m3fnuz() = default;
  /// Rounds to nearest; ties go to even. Larger numbers become the largest. NaN stays NaN.
  __host__ __device__ explicit constexpr fp8_e4m3fnuz(float x) : bits(0x80) {
    if (x != x) return;
    std::uint8_t const magnitude = detail::e4m3_magnitude<8>(x, largest);
    bits = std::uint8_t(magnitude | (x < 0 && magnitude ? 0x80 : 0));
  }
  /// The same value as a float.
  __host__ __device__ explicit constexpr operator float() const {
    if (bits == 0x80) return __builtin_nanf("");
    return bits & 0x80 ? -detail::e4m3_value<8>(bits) : detail::e4m3_value<8>(bits);
  }
};

}  // namespace fusewire
