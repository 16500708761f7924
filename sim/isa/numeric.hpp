// Number formats, and corner cases of arithmetic in which C++ differs.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "op.hpp"

namespace fusewire::sim {

template <class To, class From>
constexpr To as(From value) {
  return std::bit_cast<To>(value);
}

inline float from_bf16(u16 x) { return as<float>(u32(x) << 16); }
inline u16 to_bf16(float x) {
  u32 const b = as<u32>(x);
  return x != x ? u16(b >> 16 | 0x40) : u16((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

/// FP8 (3 mantissa bits) and BF8 (2) of gfx942: the "fnuz" formats; no infinity, no -0, 0x80 is the NaN.
float from_fp8(u8 x);
float from_bf8(u8 x);
u8 to_fp8(float x);
u8 to_bf8(float x);
/// Stochastic rounding: adds `random`'s upper bits below the kept mantissa.
u8 to_fp8_stochastic(float x, u32 random);
u8 to_bf8_stochastic(float x, u32 random);

// v_min/v_max in IEEE mode: a number wins over a quiet NaN, -0 is below +0.
template <class T>
T lesser(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  return a < b || (a == b && std::signbit(double(a))) ? a : b;
}
template <class T>
T greater(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  return a > b || (a == b && !std::signbit(double(a))) ? a : b;
}
template <class T>
T median(T a, T b, T c) {
  if constexpr (!std::numeric_limits<T>::is_integer)
    if (a != a || b != b || c != c) return lesser(a, lesser(b, c));
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

/// Float to integer: toward zero, saturating, NaN gives 0.
template <class Int, class Float>
Int saturated(Float x) {
  constexpr double low = double(std::numeric_limits<Int>::min()), high = double(std::numeric_limits<Int>::max());
  double const v = double(x);
  return v != v      ? Int(0)
         : v <= low  ? std::numeric_limits<Int>::min()
         : v >= high ? std::numeric_limits<Int>::max()
                     : Int(v);
}

inline u32 reversed(u32 x) {
  x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
  x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
  x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
  return __builtin_bswap32(x);
}

inline u32 bitfield(u32 x, u32 offset, u32 width) { return width == 0 ? 0 : x >> offset & (~u32(0) >> (32 - width)); }
inline i32 signed_bitfield(i32 x, u32 offset, u32 width) {
  return width == 0 ? 0 : i32(u32(x >> offset) << (32 - width)) >> (32 - width);
}

inline u32 packed(u16 low, u16 high) { return low | u32(high) << 16; }

}  // namespace fusewire::sim
