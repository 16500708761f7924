// Floating point of the vector ALU: CDNA3 ISA, chapter 6 "Vector ALU operations". Transcendentals have the hardware's 1
// ulp, or better.
#include <numbers>

#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

float fused(float a, float b, float c) { return std::fma(a, b, c); }
double fused(double a, double b, double c) { return std::fma(a, b, c); }
/// Exact: the 53 bits of a double hold a product of halves and any half that matters to it.
f16 fused(f16 a, f16 b, f16 c) { return f16(std::fma(double(a), double(b), double(c))); }

template <class T>
T legacy_product(T a, T b) {
  return a == 0 || b == 0 ? T(0) : T(a * b);
}

/// x - floor(x), below 1.
template <class T>
T fraction(T x) {
  constexpr T below_one = T(1) - std::numeric_limits<T>::epsilon() / 2;
  T const r = x - std::floor(x);
  return r >= T(1) ? below_one : r;
}

template <class T>
int exponent_of(T x) {
  int e = 0;
  if (x == 0 || !std::isfinite(x)) return 0;
  std::frexp(x, &e);
  return e;
}
template <class T>
T mantissa_of(T x) {
  int e;
  return std::isfinite(x) ? std::frexp(x, &e) : x;
}

/// Turns, not radians; beyond 256 turns hardware gives 0 for the sine and 1 for the cosine.
float sine(float turns) {
  if (std::isinf(turns)) return std::numeric_limits<float>::quiet_NaN();
  return std::fabs(turns) > 256 ? 0.0f : float(std::sin(2 * std::numbers::pi * double(turns)));
}
float cosine(float turns) {
  if (std::isinf(turns)) return std::numeric_limits<float>::quiet_NaN();
  return std::fabs(turns) > 256 ? 1.0f : float(std::cos(2 * std::numbers::pi * double(turns)));
}

/// 2^x through a degree-12 polynomial of the fraction in double precision; no branches, so that the lane loop
/// vectorises.
float power_of_two(float x) {
  // -160 for NaN too: it is an integer
  double const limited = !(x >= -160.0f) ? -160.0 : x > 160.0f ? 160.0 : double(x);
  double const whole = std::nearbyint(limited), t = (limited - whole) * std::numbers::ln2;
  double p = 1.0 / 479001600;
  constexpr double inverse[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0,        1.0};
  for (double const c : inverse) p = p * t + c;
  double const scale = as<double>(u64(i64(whole) + 1023) << 52);
  return x != x ? x : float(p * scale);
}

f16 half(float x) { return f16(x); }

// ------------------------------------------------------------------------------------------------------------ division
// v_div_scale, v_div_fmas and v_div_fixup bracket the Newton iterations of IEEE division: CDNA3 ISA, "VOP3
// instructions".

template <class T>
struct division;
template <>
struct division<float> {
  using bits = u32;
  static constexpr int far = 96, step = 64, lowest = -126, highest = 127, mantissa = 23;
};
template <>
struct division<double> {
  using bits = u64;
  static constexpr int far = 768, step = 128, lowest = -1022, highest = 1023, mantissa = 52;
};

/// The exponent as its field gives it: infinity and NaN are beyond the highest.
template <class T>
int unbiased_exponent(T x) {
  return std::isfinite(x) ? std::ilogb(x) : division<T>::highest + 1;
}

template <class T>
T scaled_operand(T x, T denominator, T numerator, bool& flag) {
  using d = division<T>;
  flag = false;
  if (denominator == 0 || numerator == 0) return std::numeric_limits<T>::quiet_NaN();
  int const n = unbiased_exponent(numerator), e = unbiased_exponent(denominator);
  bool const is_denominator = as<typename d::bits>(x) == as<typename d::bits>(denominator);
  if (n - e >= d::far) {
    flag = true;
    return is_denominator ? std::ldexp(x, d::step) : x;
  }
  if (e < d::lowest) return std::ldexp(x, d::step);
  bool const tiny_reciprocal = -e < d::lowest, tiny_quotient = n - e < d::lowest;
  if (tiny_reciprocal && tiny_quotient) {
    // The manual says + step; that would overflow, and only - step agrees with v_div_fmas.
    flag = true;
    return is_denominator ? std::ldexp(x, -d::step) : x;
  }
  if (tiny_reciprocal) return std::ldexp(x, -d::step);
  if (tiny_quotient) {
    flag = true;
    return is_denominator ? x : std::ldexp(x, d::step);
  }
  return n <= d::lowest + d::mantissa ? std::ldexp(x, d::step) : x;
}

template <class T>
void div_scale(wave& w, op const& o) {
  reader<T> const x(w, o, o.arg[2]), denominator(w, o, o.arg[3]), numerator(w, o, o.arg[4]);
  u64 flags = 0;
  write_lanes<T>(w, o, o.arg[0], [&](int l) {
    bool flag;
    T const r = scaled_operand(x[l], denominator[l], numerator[l], flag);
    flags |= u64(flag) << l;
    return r;
  });
  write_scalar64(w, o.arg[1], flags & w.exec());
}

template <class T>
void div_fmas(wave& w, op const& o) {
  reader<T> const a(w, o, o.arg[1]), b(w, o, o.arg[2]), c(w, o, o.arg[3]);
  u64 const scaled = w.vcc();
  write_lanes<T>(w, o, o.arg[0], [&](int l) {
    T const r = fused(a[l], b[l], c[l]);
    if (!lane_on(scaled, l)) return r;
    return std::ldexp(r, std::ilogb(c[l]) >= 0 ? division<T>::step : -division<T>::step);
  });
}

template <class T>
T div_fixup(T quotient, T denominator, T numerator) {
  bool const negative = std::signbit(denominator) != std::signbit(numerator);
  if (numerator == 0 || denominator == 0 || !std::isfinite(numerator) || !std::isfinite(denominator))
    return numerator / denominator;
  int const size = std::ilogb(numerator) - std::ilogb(denominator);
  using d = division<T>;
  if (size < d::lowest - d::mantissa - 1) quotient = 0;
  if (size > d::highest + 1) quotient = std::numeric_limits<T>::infinity();
  return std::copysign(quotient, negative ? T(-1) : T(1));
}
f16 div_fixup_half(f16 q, f16 d, f16 n) { return f16(div_fixup(float(q), float(d), float(n))); }

// ----------------------------------------------------------------------------------------------------------- cube maps

struct cube {
  float id, ma, sc, tc;
};
cube cube_face(float x, float y, float z) {
  float const ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  if (az >= ax && az >= ay) return {z < 0 ? 5.0f : 4.0f, 2 * z, z < 0 ? -x : x, -y};
  if (ay >= ax) return {y < 0 ? 3.0f : 2.0f, 2 * y, x, y < 0 ? -z : z};
  return {x < 0 ? 1.0f : 0.0f, 2 * x, x < 0 ? z : -z, -y};
}

/// v_trig_preop_f64: 53 bits of 2 / pi from bit 53 * segment on, scaled to the argument's exponent.
double trig_preop(double x, u32 segment) {
  static constexpr u64 two_over_pi[] = {0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
                                        0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
                                        0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
                                        0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
                                        0x3d0739f78a5292ea, 0x6bfb5fb1f8d5d08,  0x56033046fc7b6bab, 0xf0cfbc209af4361d};
  int shift = int(segment & 31) * 53;
  int const exponent = int(as<u64>(x) >> 52 & 0x7ff);
  if (exponent > 1077) shift += exponent - 1077;
  u64 bits = 0;
  for (int i = 0; i < 53; ++i) {
    int const at = shift + i;
    u64 const bit = at < int(64 * std::size(two_over_pi)) ? two_over_pi[at / 64] >> (63 - at % 64) & 1 : 0;
    bits = bits << 1 | bit;
  }
  int scale = -53 - shift;
  if (exponent >= 1968) scale += 128;
  return std::ldexp(double(bits), scale);
}

void add_f32(registry& r) {
  r.add({
      {"v_add_f32", lanewise<[](float a, float b) { return a + b; }>},
      {"v_sub_f32", lanewise<[](float a, float b) { return a - b; }>},
      {"v_subrev_f32", lanewise<[](float a, float b) { return b - a; }>},
      {"v_mul_f32", lanewise<[](float a, float b) { return a * b; }>},
      {"v_mul_legacy_f32", lanewise<[](float a, float b) { return legacy_product(a, b); }>},
      {"v_min_f32", lanewise<[](float a, float b) { return lesser(a, b); }>},
      {"v_max_f32", lanewise<[](float a, float b) { return greater(a, b); }>},
      {"v_min3_f32", lanewise<[](float a, float b, float c) { return lesser(a, lesser(b, c)); }>},
      {"v_max3_f32", lanewise<[](float a, float b, float c) { return greater(a, greater(b, c)); }>},
      {"v_med3_f32", lanewise<[](float a, float b, float c) { return median(a, b, c); }>},
      {"v_fma_f32", lanewise<[](float a, float b, float c) { return fused(a, b, c); }>},
      {"v_fmaak_f32", lanewise<[](float a, float b, float c) { return fused(a, b, c); }>},
      {"v_fmamk_f32", lanewise<[](float a, float b, float c) { return fused(a, b, c); }>},
      {"v_fmac_f32", accumulate<[](float a, float b, float c) { return fused(a, b, c); }>},
      {"v_ldexp_f32", lanewise<[](float a, i32 b) { return std::ldexp(a, b); }>},
      {"v_floor_f32", lanewise<[](float a) { return std::floor(a); }>},
      {"v_ceil_f32", lanewise<[](float a) { return std::ceil(a); }>},
      {"v_trunc_f32", lanewise<[](float a) { return std::trunc(a); }>},
      {"v_rndne_f32", lanewise<[](float a) { return std::nearbyint(a); }>},
      {"v_fract_f32", lanewise<[](float a) { return fraction(a); }>},
      {"v_rcp_f32", lanewise<[](float a) { return 1.0f / a; }>},
      {"v_rcp_iflag_f32", lanewise<[](float a) { return 1.0f / a; }>},
      {"v_sqrt_f32", lanewise<[](float a) { return std::sqrt(a); }>},
      {"v_rsq_f32", lanewise<[](float a) { return float(1.0 / std::sqrt(double(a))); }>},
      {"v_exp_f32", lanewise<[](float a) { return power_of_two(a); }>},
      {"v_exp_legacy_f32", lanewise<[](float a) { return power_of_two(a); }>},
      {"v_log_f32", lanewise<[](float a) { return std::log2(a); }>},
      {"v_log_legacy_f32", lanewise<[](float a) { return std::log2(a); }>},
      {"v_sin_f32", lanewise<[](float a) { return sine(a); }>},
      {"v_cos_f32", lanewise<[](float a) { return cosine(a); }>},
      {"v_frexp_exp_i32_f32", lanewise<[](float a) { return exponent_of(a); }>},
      {"v_frexp_mant_f32", lanewise<[](float a) { return mantissa_of(a); }>},
      {"v_div_scale_f32", {.run = div_scale<float>, .math = arithmetic::f32, .destinations = 2}},
      {"v_div_fmas_f32", {.run = div_fmas<float>, .math = arithmetic::f32}},
      {"v_div_fixup_f32", lanewise<[](float a, float b, float c) { return div_fixup(a, b, c); }>},
      {"v_cubeid_f32", lanewise<[](float a, float b, float c) { return cube_face(a, b, c).id; }>},
      {"v_cubema_f32", lanewise<[](float a, float b, float c) { return cube_face(a, b, c).ma; }>},
      {"v_cubesc_f32", lanewise<[](float a, float b, float c) { return cube_face(a, b, c).sc; }>},
      {"v_cubetc_f32", lanewise<[](float a, float b, float c) { return cube_face(a, b, c).tc; }>},
  });
}

void add_f64(registry& r) {
  r.add({
      {"v_add_f64", lanewise<[](double a, double b) { return a + b; }>},
      {"v_mul_f64", lanewise<[](double a, double b) { return a * b; }>},
      {"v_min_f64", lanewise<[](double a, double b) { return lesser(a, b); }>},
      {"v_max_f64", lanewise<[](double a, double b) { return greater(a, b); }>},
      {"v_fma_f64", lanewise<[](double a, double b, double c) { return fused(a, b, c); }>},
      {"v_fmac_f64", accumulate<[](double a, double b, double c) { return fused(a, b, c); }>},
      {"v_ldexp_f64", lanewise<[](double a, i32 b) { return std::ldexp(a, b); }>},
      {"v_floor_f64", lanewise<[](double a) { return std::floor(a); }>},
      {"v_ceil_f64", lanewise<[](double a) { return std::ceil(a); }>},
      {"v_trunc_f64", lanewise<[](double a) { return std::trunc(a); }>},
      {"v_rndne_f64", lanewise<[](double a) { return std::nearbyint(a); }>},
      {"v_fract_f64", lanewise<[](double a) { return fraction(a); }>},
      {"v_rcp_f64", lanewise<[](double a) { return 1.0 / a; }>},
      {"v_sqrt_f64", lanewise<[](double a) { return std::sqrt(a); }>},
      {"v_rsq_f64", lanewise<[](double a) { return 1.0 / std::sqrt(a); }>},
      {"v_frexp_exp_i32_f64", lanewise<[](double a) { return exponent_of(a); }>},
      {"v_frexp_mant_f64", lanewise<[](double a) { return mantissa_of(a); }>},
      {"v_div_scale_f64", {.run = div_scale<double>, .math = arithmetic::f16_f64, .destinations = 2}},
      {"v_div_fmas_f64", {.run = div_fmas<double>, .math = arithmetic::f16_f64}},
      {"v_div_fixup_f64", lanewise<[](double a, double b, double c) { return div_fixup(a, b, c); }>},
      {"v_trig_preop_f64", lanewise<[](double a, u32 b) { return trig_preop(a, b); }>},
  });
}

void add_f16(registry& r) {
  r.add({
      {"v_add_f16", lanewise<[](f16 a, f16 b) { return f16(a + b); }>},
      {"v_sub_f16", lanewise<[](f16 a, f16 b) { return f16(a - b); }>},
      {"v_subrev_f16", lanewise<[](f16 a, f16 b) { return f16(b - a); }>},
      {"v_mul_f16", lanewise<[](f16 a, f16 b) { return f16(a * b); }>},
      {"v_min_f16", lanewise<[](f16 a, f16 b) { return half(lesser(float(a), float(b))); }>},
      {"v_max_f16", lanewise<[](f16 a, f16 b) { return half(greater(float(a), float(b))); }>},
      {"v_min3_f16",
       lanewise_half<[](f16 a, f16 b, f16 c) { return half(lesser(float(a), lesser(float(b), float(c)))); }>},
      {"v_max3_f16",
       lanewise_half<[](f16 a, f16 b, f16 c) { return half(greater(float(a), greater(float(b), float(c)))); }>},
      {"v_med3_f16", lanewise_half<[](f16 a, f16 b, f16 c) { return half(median(float(a), float(b), float(c))); }>},
      {"v_fma_f16", lanewise_half<[](f16 a, f16 b, f16 c) { return fused(a, b, c); }>},
      {"v_fma_legacy_f16", lanewise<[](f16 a, f16 b, f16 c) { return fused(a, b, c); }>},
      // unlike v_fma, v_mad rounds the product
      {"v_mad_f16", lanewise_half<[](f16 a, f16 b, f16 c) { return f16(f16(a * b) + c); }>},
      {"v_mad_legacy_f16", lanewise<[](f16 a, f16 b, f16 c) { return f16(f16(a * b) + c); }>},
      {"v_madak_f16", lanewise<[](f16 a, f16 b, f16 c) { return f16(f16(a * b) + c); }>},
      {"v_madmk_f16", lanewise<[](f16 a, f16 b, f16 c) { return f16(f16(a * b) + c); }>},
      {"v_mac_f16", accumulate<[](f16 a, f16 b, f16 c) { return f16(f16(a * b) + c); }>},
      {"v_ldexp_f16", lanewise<[](f16 a, i16 b) { return f16(std::ldexp(double(a), b)); }>},
      {"v_floor_f16", lanewise<[](f16 a) { return half(std::floor(float(a))); }>},
      {"v_ceil_f16", lanewise<[](f16 a) { return half(std::ceil(float(a))); }>},
      {"v_trunc_f16", lanewise<[](f16 a) { return half(std::trunc(float(a))); }>},
      {"v_rndne_f16", lanewise<[](f16 a) { return half(std::nearbyint(float(a))); }>},
      {"v_fract_f16", lanewise<[](f16 a) { return half(std::min(float(a) - std::floor(float(a)), 0.99951171875f)); }>},
      {"v_rcp_f16", lanewise<[](f16 a) { return half(1.0f / float(a)); }>},
      {"v_sqrt_f16", lanewise<[](f16 a) { return half(std::sqrt(float(a))); }>},
      {"v_rsq_f16", lanewise<[](f16 a) { return half(1.0f / std::sqrt(float(a))); }>},
      {"v_exp_f16", lanewise<[](f16 a) { return half(power_of_two(float(a))); }>},
      {"v_log_f16", lanewise<[](f16 a) { return half(std::log2(float(a))); }>},
      {"v_sin_f16", lanewise<[](f16 a) { return half(sine(float(a))); }>},
      {"v_cos_f16", lanewise<[](f16 a) { return half(cosine(float(a))); }>},
      {"v_frexp_exp_i16_f16", lanewise<[](f16 a) { return i16(exponent_of(float(a))); }>},
      {"v_frexp_mant_f16", lanewise<[](f16 a) { return half(mantissa_of(float(a))); }>},
      {"v_div_fixup_f16", lanewise_half<[](f16 a, f16 b, f16 c) { return div_fixup_half(a, b, c); }>},
      {"v_div_fixup_legacy_f16", lanewise<[](f16 a, f16 b, f16 c) { return div_fixup_half(a, b, c); }>},
  });
}

}  // namespace

void add_float(registry& r) {
  add_f32(r);
  add_f64(r);
  add_f16(r);
}

}  // namespace fusewire::sim
