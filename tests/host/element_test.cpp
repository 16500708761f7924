// bf16 and f16: every value, and rounding to nearest even everywhere that it can go wrong.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/core/types.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

using namespace fusewire;

namespace {

template <class T>
T of_bits(std::uint16_t bits) {
  T t;
  t.bits = bits;
  return t;
}

/// What the format says, in double: sign, exponent, mantissa.
template <class T>
double meaning(std::uint16_t bits) {
  constexpr int mantissa_bits = std::is_same_v<T, bf16> ? 7 : 10, exponent_bits = 15 - mantissa_bits,
                bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
  double const sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(double(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(double(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
}

template <class T>
std::uint16_t infinity() {
  return std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
}

/// The positive value nearest to x >= 0, ties to even, by search.
template <class T>
std::uint16_t nearest(float x) {
  // meaning(low) <= x < meaning(high), where infinity stands for the next power of two
  unsigned low = 0, high = infinity<T>();
  auto const value = [&](unsigned bits) {
    return bits == infinity<T>() ? 2 * meaning<T>(std::uint16_t(bits - 1)) - meaning<T>(std::uint16_t(bits - 2)) + 0.0
                                 : meaning<T>(std::uint16_t(bits));
  };
  if (double(x) >= value(high)) return std::uint16_t(high);
  while (high - low > 1) {
    unsigned const middle = (low + high) / 2;
    (value(middle) <= double(x) ? low : high) = middle;
  }
  double const below = double(x) - value(low), above = value(high) - double(x);
  if (below != above) return std::uint16_t(below < above ? low : high);
  return std::uint16_t(low % 2 ? high : low);
}

template <class T>
void check_every_value() {
  int wrong = 0;
  for (unsigned i = 0; i < 65536; ++i) {
    auto const bits = std::uint16_t(i);
    float const x = float(of_bits<T>(bits));
    double const wanted = meaning<T>(bits);
    if (std::isnan(wanted)) {
      std::uint16_t const back = T(x).bits;
      wrong += !std::isnan(x) || !std::isnan(float(of_bits<T>(back)));
    } else {
      wrong += double(x) != wanted || std::signbit(x) != bool(bits >> 15) || T(x).bits != bits;
    }
  }
  CHECK(wrong == 0);
}

template <class T>
void check_rounding() {
  int wrong = 0;
  auto const check = [&](float x) { wrong += T(x).bits != nearest<T>(x) || T(-x).bits != (nearest<T>(x) | 0x8000); };
  for (unsigned i = 0; i < infinity<T>(); ++i) {  // every value, every middle between two, and the floats around them
    float const low = float(of_bits<T>(std::uint16_t(i)));
    float const high = i + 1 == infinity<T>() ? low : float(of_bits<T>(std::uint16_t(i + 1)));
    float const middle = low + (high - low) / 2;
    for (float x : {low, middle})
      for (float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, std::numeric_limits<float>::infinity())})
        if (std::isfinite(y)) check(y);
  }
  std::mt19937 random(5);
  for (int i = 0; i < 300'000; ++i) {
    float const x = std::abs(std::bit_cast<float>(std::uint32_t(random())));
    if (std::isfinite(x)) check(x);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("bf16: all 65536 values go to float and back") { check_every_value<bf16>(); }
TEST_CASE("f16: all 65536 values go to float and back") { check_every_value<f16>(); }
TEST_CASE("bf16: floats are rounded to nearest even") { check_rounding<bf16>(); }
TEST_CASE("f16: floats are rounded to nearest even") { check_rounding<f16>(); }

TEST_CASE("bf16 and f16: the ends of the range") {
  float const inf = std::numeric_limits<float>::infinity();
  CHECK(bf16(inf).bits == 0x7f80);
  CHECK(bf16(-inf).bits == 0xff80);
  CHECK(f16(inf).bits == 0x7c00);
  CHECK(f16(-inf).bits == 0xfc00);
  CHECK(bf16(std::numeric_limits<float>::max()).bits == 0x7f80);  // nearer to 2^128 than to the largest bf16
  CHECK(f16(65504.0f).bits == 0x7bff);
  CHECK(f16(65519.0f).bits == 0x7bff);
  CHECK(f16(65520.0f).bits == 0x7c00);
  CHECK(f16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(f16(std::ldexp(1.0f, -24)).bits == 1);
  CHECK(f16(std::ldexp(1.0f, -25)).bits == 0);  // a tie, to even
  CHECK(f16(std::ldexp(1.5f, -25)).bits == 1);
  CHECK(bf16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(bf16(-0.0f).bits == 0x8000);
  CHECK(f16(-0.0f).bits == 0x8000);
  // a NaN must not become infinity
  for (std::uint32_t payload : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    CHECK(std::isnan(float(bf16(std::bit_cast<float>(payload)))));
    CHECK(std::isnan(float(f16(std::bit_cast<float>(payload)))));
  }
}

TEST_CASE("element types are storage: two bytes, no more") {
  STATIC_CHECK(sizeof(bf16) == 2);
  STATIC_CHECK(sizeof(f16) == 2);
  STATIC_CHECK(std::is_trivially_copyable_v<bf16>);
  STATIC_CHECK(std::is_trivially_default_constructible_v<f16>);
  STATIC_CHECK(!std::is_convertible_v<float, bf16>);
  STATIC_CHECK(!std::is_convertible_v<bf16, float>);
  STATIC_CHECK(!std::is_convertible_v<f16, bf16>);
  STATIC_CHECK(is_16_bit_float<bf16>);
  STATIC_CHECK(!is_16_bit_float<float>);
  STATIC_CHECK(per_16_bytes<bf16> == 8);
  STATIC_CHECK(per_16_bytes<double> == 2);
}
