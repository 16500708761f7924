#include "numeric.hpp"

namespace fusewire::sim {
namespace {

template <int Mantissa>
constexpr int bias = 1 << (6 - Mantissa);  // of the exponent; one more than the IEEE-like formats'

template <int Mantissa>
float decoded(u8 x) {
  if (x == 0x80) return std::numeric_limits<float>::quiet_NaN();
  int const exponent = (x & 127) >> Mantissa, mantissa = x & ((1 << Mantissa) - 1);
  float const size = exponent ? std::ldexp(float((1 << Mantissa) + mantissa), exponent - bias<Mantissa> - Mantissa)
                              : std::ldexp(float(mantissa), 1 - bias<Mantissa> - Mantissa);
  return x & 128 ? -size : size;
}

template <int Mantissa>
std::array<float, 256> const& table() {
  static std::array<float, 256> const values = [] {
    std::array<float, 256> t;
    for (int i = 0; i < 256; ++i) t[i] = decoded<Mantissa>(u8(i));
    return t;
  }();
  return values;
}

/// The code of a magnitude that is an exact multiple of the format's steps.
template <int Mantissa>
u8 code_of(float size) {
  if (size == 0) return 0;
  int exponent = std::max(std::ilogb(size), 1 - bias<Mantissa>);
  int const steps = int(std::ldexp(size, Mantissa - exponent));
  return steps < 1 << Mantissa ? u8(steps) : u8((exponent + bias<Mantissa>) << Mantissa | (steps - (1 << Mantissa)));
}

template <int Mantissa>
u8 finish(float size, bool negative) {
  if (size > decoded<Mantissa>(0x7f)) return 0x80;
  u8 const code = code_of<Mantissa>(size);
  return code && negative ? code | 0x80 : code;
}

template <int Mantissa>
u8 nearest(float x) {
  if (!std::isfinite(x)) return 0x80;
  float const size = std::fabs(x);
  int const exponent = size == 0 ? 0 : std::max(std::ilogb(size), 1 - bias<Mantissa>);
  float const step = std::ldexp(1.0f, exponent - Mantissa);
  return finish<Mantissa>(std::nearbyint(size / step) * step, std::signbit(x));
}

template <int Mantissa>
u8 stochastic(float x, u32 random) {
  if (!std::isfinite(x)) return 0x80;
  float const size = std::fabs(x);
  int const exponent = size == 0 ? 0 : std::max(std::ilogb(size), 1 - bias<Mantissa>);
  double const steps = std::ldexp(double(size), Mantissa - exponent);
  int const dropped = 23 - Mantissa;
  double const noise = std::ldexp(double(random >> (32 - dropped)), -dropped);
  return finish<Mantissa>(float(std::ldexp(std::floor(steps + noise), exponent - Mantissa)), std::signbit(x));
}

}  // namespace

float from_fp8(u8 x) { return table<3>()[x]; }
float from_bf8(u8 x) { return table<2>()[x]; }
u8 to_fp8(float x) { return nearest<3>(x); }
u8 to_bf8(float x) { return nearest<2>(x); }
u8 to_fp8_stochastic(float x, u32 random) { return stochastic<3>(x, random); }
u8 to_bf8_stochastic(float x, u32 random) { return stochastic<2>(x, random); }

}  // namespace fusewire::sim
