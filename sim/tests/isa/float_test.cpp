#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

template <class T>
T minimum(T a, T b) {
  if (std::isnan(double(a))) return b;
  if (std::isnan(double(b))) return a;
  if (a == b) return std::signbit(double(a)) ? a : b;
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  if (std::isnan(double(a))) return b;
  if (std::isnan(double(b))) return a;
  if (a == b) return std::signbit(double(a)) ? b : a;
  return a > b ? a : b;
}

/// x is exact or far more exact than a half: one rounding, ties to even, done on the integer steps of the half.
f16 to_half(double x) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return f16(float(x));
  int const exponent = std::max(std::ilogb(x), -14);
  double const rounded = std::ldexp(std::nearbyint(std::ldexp(x, 10 - exponent)), exponent - 10);
  return f16(float(std::fabs(rounded) > 65504 ? std::copysign(INFINITY, x) : std::copysign(rounded, x)));
}
double wide(f16 x) { return double(float(x)); }

template <class T>
int exponent(T x) {
  int e = 0;
  return std::isfinite(x) && x != 0 ? (std::frexp(x, &e), e) : 0;
}

}  // namespace

TEST_CASE("f32 vector instructions") {
  lane_suite s;
  lane_options const close{.how = match::close};
  s.add("v_add_f32", [](float a, float b) { return a + b; });
  s.add("v_sub_f32", [](float a, float b) { return a - b; });
  s.add("v_subrev_f32", [](float a, float b) { return b - a; });
  s.add("v_mul_f32", [](float a, float b) { return a * b; });
  s.add("v_mul_legacy_f32", [](float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; });
  s.add("v_min_f32", minimum<float>);
  s.add("v_max_f32", maximum<float>);
  s.add("v_min3_f32", [](float a, float b, float c) { return minimum(a, minimum(b, c)); });
  s.add("v_max3_f32", [](float a, float b, float c) { return maximum(a, maximum(b, c)); });
  s.add("v_med3_f32", [](float a, float b, float c) {
    if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return minimum(a, minimum(b, c));
    return std::max(std::min(a, b), std::min(std::max(a, b), c));
  });
  s.add("v_fma_f32", [](float a, float b, float c) { return std::fmaf(a, b, c); });
  s.add("v_fmac_f32", [](float a, float b, float c) { return std::fmaf(a, b, c); }, {.accumulates = true});
  s.add("v_ldexp_f32", [](float a, i32 b) { return std::ldexp(a, b); });
  s.add("v_floor_f32", [](float a) { return std::floor(a); });
  s.add("v_ceil_f32", [](float a) { return std::ceil(a); });
  s.add("v_trunc_f32", [](float a) { return std::trunc(a); });
  s.add("v_rndne_f32", [](float a) { return std::rint(a); });
  s.add("v_fract_f32", [](float a) { return std::min(a - std::floor(a), 0x1.fffffep-1f); });
  s.add("v_rcp_f32", [](float a) { return float(1 / double(a)); }, close);
  s.add("v_sqrt_f32", [](float a) { return float(std::sqrt(double(a))); }, close);
  s.add("v_rsq_f32", [](float a) { return float(1 / std::sqrt(double(a))); }, close);
  s.add("v_exp_f32", [](float a) { return float(std::exp2(double(a))); }, close);
  s.add("v_log_f32", [](float a) { return float(std::log2(double(a))); }, close);
  s.add("v_frexp_exp_i32_f32", exponent<float>);
  s.add("v_frexp_mant_f32", [](float a) {
    int e;
    return std::isfinite(a) ? std::frexp(a, &e) : a;
  });
  s.run();
}

TEST_CASE("sine and cosine take turns") {
  code const c({"v_sin_f32 v10, v2", "v_cos_f32 v11, v2"});
  test_wave w(1);
  w.set_exec(~u64(0));
  for (int l = 0; l < lanes; ++l) w->v[2][l] = as<u32>(float(l - 32) * 0.37f);
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(c.run(i, *w) == "");
  for (int l = 0; l < lanes; ++l) {
    double const turns = as<float>(w->v[2][l]);
    CHECK(std::fabs(as<float>(w->v[10][l]) - std::sin(2 * M_PI * turns)) < 1e-6);
    CHECK(std::fabs(as<float>(w->v[11][l]) - std::cos(2 * M_PI * turns)) < 1e-6);
  }
}

TEST_CASE("literal multiply-adds") {
  code const c({"v_fmaak_f32 v10, v2, v4, 0x40490fdb", "v_fmamk_f32 v11, v2, 0x40490fdb, v4",
                "v_madak_f16 v12, v2, v4, 0x4248", "v_madmk_f16 v13, v2, 0x4248, v4"});
  test_wave w(5);
  w.set_exec(~u64(0));
  std::mt19937 random(2);
  for (int l = 0; l < lanes; ++l) {
    w->v[2][l] = u32(edge_value(random, 32, true));
    w->v[4][l] = u32(edge_value(random, 32, true));
  }
  for (std::size_t i = 0; i < 4; ++i) REQUIRE(c.run(i, *w) == "");
  auto const same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (int l = 0; l < lanes; ++l) {
    float const a = as<float>(w->v[2][l]), b = as<float>(w->v[4][l]), k = as<float>(0x40490fdbu);
    CHECK(same(as<float>(w->v[10][l]), std::fmaf(a, b, k)));
    CHECK(same(as<float>(w->v[11][l]), std::fmaf(a, k, b)));
    f16 const ha = as<f16>(u16(w->v[2][l])), hb = as<f16>(u16(w->v[4][l])), hk = as<f16>(u16(0x4248));
    CHECK(same(wide(as<f16>(u16(w->v[12][l]))), wide(to_half(wide(to_half(wide(ha) * wide(hb))) + wide(hk)))));
    CHECK(same(wide(as<f16>(u16(w->v[13][l]))), wide(to_half(wide(to_half(wide(ha) * wide(hk))) + wide(hb)))));
  }
}

TEST_CASE("f64 vector instructions") {
  lane_suite s;
  lane_options const close{.how = match::close};
  s.add("v_add_f64", [](double a, double b) { return a + b; });
  s.add("v_mul_f64", [](double a, double b) { return a * b; });
  s.add("v_min_f64", minimum<double>);
  s.add("v_max_f64", maximum<double>);
  s.add("v_fma_f64", [](double a, double b, double c) { return std::fma(a, b, c); });
  s.add("v_fmac_f64", [](double a, double b, double c) { return std::fma(a, b, c); }, {.accumulates = true});
  s.add("v_ldexp_f64", [](double a, i32 b) { return std::ldexp(a, b); });
  s.add("v_floor_f64", [](double a) { return std::floor(a); });
  s.add("v_ceil_f64", [](double a) { return std::ceil(a); });
  s.add("v_trunc_f64", [](double a) { return std::trunc(a); });
  s.add("v_rndne_f64", [](double a) { return std::rint(a); });
  s.add("v_fract_f64", [](double a) { return std::min(a - std::floor(a), 0x1.fffffffffffffp-1); });
  s.add("v_rcp_f64", [](double a) { return 1 / a; }, close);
  s.add("v_sqrt_f64", [](double a) { return std::sqrt(a); }, close);
  s.add("v_rsq_f64", [](double a) { return 1 / std::sqrt(a); }, close);
  s.add("v_frexp_exp_i32_f64", exponent<double>);
  s.add("v_frexp_mant_f64", [](double a) {
    int e;
    return std::isfinite(a) ? std::frexp(a, &e) : a;
  });
  s.run();
}

TEST_CASE("f16 vector instructions") {
  lane_suite s;
  lane_options const close{.how = match::close}, keep{.keeps_high = true};
  s.add("v_add_f16", [](f16 a, f16 b) { return to_half(wide(a) + wide(b)); });
  s.add("v_sub_f16", [](f16 a, f16 b) { return to_half(wide(a) - wide(b)); });
  s.add("v_subrev_f16", [](f16 a, f16 b) { return to_half(wide(b) - wide(a)); });
  s.add("v_mul_f16", [](f16 a, f16 b) { return to_half(wide(a) * wide(b)); });
  s.add("v_min_f16", minimum<f16>);
  s.add("v_max_f16", maximum<f16>);
  s.add("v_min3_f16", [](f16 a, f16 b, f16 c) { return minimum(a, minimum(b, c)); }, keep);
  s.add("v_max3_f16", [](f16 a, f16 b, f16 c) { return maximum(a, maximum(b, c)); }, keep);
  s.add("v_fma_f16", [](f16 a, f16 b, f16 c) { return to_half(wide(a) * wide(b) + wide(c)); }, keep);
  s.add("v_fma_legacy_f16", [](f16 a, f16 b, f16 c) { return to_half(wide(a) * wide(b) + wide(c)); });
  s.add("v_mad_f16", [](f16 a, f16 b, f16 c) { return to_half(wide(to_half(wide(a) * wide(b))) + wide(c)); }, keep);
  s.add("v_mac_f16", [](f16 a, f16 b, f16 c) { return to_half(wide(to_half(wide(a) * wide(b))) + wide(c)); },
        {.accumulates = true});
  s.add("v_ldexp_f16", [](f16 a, i16 b) { return to_half(std::ldexp(wide(a), b)); });
  s.add("v_floor_f16", [](f16 a) { return to_half(std::floor(wide(a))); });
  s.add("v_ceil_f16", [](f16 a) { return to_half(std::ceil(wide(a))); });
  s.add("v_trunc_f16", [](f16 a) { return to_half(std::trunc(wide(a))); });
  s.add("v_rndne_f16", [](f16 a) { return to_half(std::rint(wide(a))); });
  s.add("v_rcp_f16", [](f16 a) { return to_half(1 / wide(a)); }, close);
  s.add("v_sqrt_f16", [](f16 a) { return to_half(std::sqrt(wide(a))); }, close);
  s.add("v_rsq_f16", [](f16 a) { return to_half(1 / std::sqrt(wide(a))); }, close);
  s.add("v_exp_f16", [](f16 a) { return to_half(std::exp2(wide(a))); }, close);
  s.add("v_log_f16", [](f16 a) { return to_half(std::log2(wide(a))); }, close);
  s.add("v_frexp_exp_i16_f16", [](f16 a) { return i16(exponent(float(a))); });
  s.add("v_frexp_mant_f16", [](f16 a) {
    int e;
    return std::isfinite(float(a)) ? f16(std::frexp(float(a), &e)) : a;
  });
  s.run();
}

TEST_CASE("conversions") {
  lane_suite s;
  auto const to_int = [](double x, double low, double high) {
    return std::isnan(x) ? 0.0 : std::trunc(std::clamp(x, low, high));
  };
  s.add("v_cvt_f32_i32", [](i32 a) { return float(a); });
  s.add("v_cvt_f32_u32", [](u32 a) { return float(a); });
  s.add("v_cvt_f64_i32", [](i32 a) { return double(a); });
  s.add("v_cvt_f64_u32", [](u32 a) { return double(a); });
  s.add("v_cvt_i32_f32", [=](float a) { return i32(to_int(a, INT32_MIN, INT32_MAX)); });
  s.add("v_cvt_u32_f32", [=](float a) { return u32(to_int(a, 0, UINT32_MAX)); });
  s.add("v_cvt_i32_f64", [=](double a) { return i32(to_int(a, INT32_MIN, INT32_MAX)); });
  s.add("v_cvt_u32_f64", [=](double a) { return u32(to_int(a, 0, UINT32_MAX)); });
  s.add("v_cvt_flr_i32_f32", [=](float a) { return i32(to_int(std::floor(a), INT32_MIN, INT32_MAX)); });
  s.add("v_cvt_rpi_i32_f32", [=](float a) { return i32(to_int(std::floor(double(a) + 0.5), INT32_MIN, INT32_MAX)); });
  s.add("v_cvt_f64_f32", [](float a) { return double(a); });
  s.add("v_cvt_f32_f64", [](double a) { return float(a); });
  s.add("v_cvt_f32_f16", [](f16 a) { return float(a); });
  s.add("v_cvt_f16_f32", [](float a) { return to_half(a); });
  s.add("v_cvt_f16_u16", [](u16 a) { return to_half(a); });
  s.add("v_cvt_f16_i16", [](i16 a) { return to_half(a); });
  s.add("v_cvt_u16_f16", [=](f16 a) { return u16(to_int(wide(a), 0, 65535)); });
  s.add("v_cvt_i16_f16", [=](f16 a) { return i16(to_int(wide(a), -32768, 32767)); });
  s.add("v_cvt_f32_ubyte0", [](u32 a) { return float(a & 255); });
  s.add("v_cvt_f32_ubyte1", [](u32 a) { return float(a >> 8 & 255); });
  s.add("v_cvt_f32_ubyte2", [](u32 a) { return float(a >> 16 & 255); });
  s.add("v_cvt_f32_ubyte3", [](u32 a) { return float(a >> 24); });
  s.add("v_cvt_off_f32_i4", [](u32 a) { return float((a & 15) < 8 ? int(a & 15) : int(a & 15) - 16) / 16; });
  s.add("v_cvt_pk_i16_i32", [](i32 a, i32 b) {
    return u32(u16(std::clamp(a, -32768, 32767))) | u32(u16(std::clamp(b, -32768, 32767))) << 16;
  });
  s.add("v_cvt_pk_u16_u32", [](u32 a, u32 b) { return std::min(a, 65535u) | std::min(b, 65535u) << 16; });
  s.add("v_cvt_pknorm_i16_f32", [](float a, float b) {
    auto const norm = [](float x) {
      return std::isnan(x) ? 0u : u32(u16(i16(std::rint(std::clamp(x, -1.0f, 1.0f) * 32767))));
    };
    return norm(a) | norm(b) << 16;
  });
  s.add("v_cvt_pknorm_u16_f32", [](float a, float b) {
    auto const norm = [](float x) { return std::isnan(x) ? 0u : u32(std::rint(std::clamp(x, 0.0f, 1.0f) * 65535)); };
    return norm(a) | norm(b) << 16;
  });
  s.add("v_pack_b32_f16", [](u16 a, u16 b) { return u32(a) | u32(b) << 16; });
  s.add("v_cvt_pkrtz_f16_f32",
        [](float a, float b) {
          auto const toward_zero = [](float x) -> u32 {
            u32 const sign = as<u32>(x) >> 16 & 0x8000;
            if (std::isnan(x)) return as<u16>(f16(x));
            if (std::isinf(x)) return sign | 0x7c00;
            double const size = std::fabs(double(x));
            if (size >= 65504) return sign | 0x7bff;
            int const e = size == 0 ? -14 : std::max(std::ilogb(size), -14);
            u32 const steps = u32(std::floor(std::ldexp(size, 10 - e)));
            return sign | (steps < 1024 ? steps : u32(e + 15) << 10 | (steps - 1024));
          };
          return toward_zero(a) | toward_zero(b) << 16;
        },
        {.modifiers = true});
  s.run();
}

TEST_CASE("fp8 and bf8") {
  // every code decodes to the value its fields say, and encodes back to itself
  for (int mantissa : {3, 2}) {
    for (int x = 0; x < 256; ++x) {
      float const f = mantissa == 3 ? from_fp8(u8(x)) : from_bf8(u8(x));
      if (x == 0x80) {
        CHECK(std::isnan(f));
        continue;
      }
      int const bias = mantissa == 3 ? 8 : 16, e = (x & 127) >> mantissa, m = x & ((1 << mantissa) - 1);
      double const size = e ? (1 + m / double(1 << mantissa)) * std::pow(2, e - bias)
                            : m / double(1 << mantissa) * std::pow(2, 1 - bias);
      CHECK(f == (x & 128 ? -size : size));
      CHECK((mantissa == 3 ? to_fp8(f) : to_bf8(f)) == x);
    }
  }
  CHECK(to_fp8(1.0625f) == to_fp8(1.0f));  // a tie goes to even
  CHECK(to_fp8(1.1875f) == to_fp8(1.25f));
  CHECK(to_fp8(1000) == 0x80);
  CHECK(to_fp8(-INFINITY) == 0x80);
  code const c({"v_cvt_pk_fp8_f32 v10, v2, v4", "v_cvt_pk_bf8_f32 v10, v2, v4 op_sel:[0,0,1]",
                "v_cvt_pk_f32_fp8 v[10:11], v2", "v_cvt_pk_f32_bf8_sdwa v[10:11], v2 src0_sel:WORD_1",
                "v_cvt_f32_fp8_sdwa v10, v2 src0_sel:BYTE_3", "v_cvt_sr_fp8_f32 v10, v2, v4 op_sel:[0,0,1,0]",
                "v_cvt_f32_bf8 v10, v2"});
  for (std::size_t i = 0; i < 7; ++i) {
    test_wave w(9);
    w.set_exec(~u64(0));
    std::mt19937 random(4);
    for (int l = 0; l < lanes; ++l)
      if (i < 2 || i == 5)
        w->v[2][l] = as<u32>(float(random() % 1000) / 7 - 60),
        w->v[4][l] = i == 5 ? random() : as<u32>(float(random() % 1000) / 9 - 60);
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      u32 const a = before->v[2][l], b = before->v[4][l], old = before->v[10][l], got = w->v[10][l], got2 = w->v[11][l];
      float const fa = as<float>(a), fb = as<float>(b);
      CAPTURE(i, l);
      auto const equal = [](u32 bits, float f) { return as<float>(bits) == f || std::isnan(f); };
      switch (i) {
        case 0: CHECK(got == ((old & 0xffff0000) | to_fp8(fa) | u32(to_fp8(fb)) << 8)); break;
        case 1: CHECK(got == ((old & 0xffff) | u32(to_bf8(fa)) << 16 | u32(to_bf8(fb)) << 24)); break;
        case 2: CHECK((equal(got, from_fp8(u8(a))) && equal(got2, from_fp8(u8(a >> 8))))); break;
        case 3: CHECK((equal(got, from_bf8(u8(a >> 16))) && equal(got2, from_bf8(u8(a >> 24))))); break;
        case 4: CHECK(equal(got, from_fp8(u8(a >> 24)))); break;
        case 5: {
          CHECK((got & 0xffff00ff) == (old & 0xffff00ff));
          float const r = from_fp8(u8(got >> 8));
          CHECK(std::fabs(r - fa) <= std::max(0.125f * std::fabs(fa), 0x1p-10f));
          break;
        }
        case 6: CHECK(equal(got, from_bf8(u8(a)))); break;
      }
    }
  }
}

TEST_CASE("division sequences give IEEE quotients") {
  // what clang emits for x / y
  code const c({R"(
    v_div_scale_f32 v10, s[30:31], v4, v4, v2
    v_div_scale_f32 v11, vcc, v2, v4, v2
    v_rcp_f32 v12, v10
    v_fma_f32 v13, -v10, v12, 1.0
    v_fmac_f32 v12, v13, v12
    v_mul_f32 v13, v11, v12
    v_fma_f32 v14, -v10, v13, v11
    v_fmac_f32 v13, v14, v12
    v_fma_f32 v10, -v10, v13, v11
    v_div_fmas_f32 v10, v10, v12, v13
    v_div_fixup_f32 v10, v10, v4, v2)",
                R"(
    v_div_scale_f64 v[10:11], s[30:31], v[4:5], v[4:5], v[2:3]
    v_rcp_f64 v[12:13], v[10:11]
    v_fma_f64 v[14:15], -v[10:11], v[12:13], 1.0
    v_fma_f64 v[12:13], v[12:13], v[14:15], v[12:13]
    v_fma_f64 v[14:15], -v[10:11], v[12:13], 1.0
    v_fma_f64 v[12:13], v[12:13], v[14:15], v[12:13]
    v_div_scale_f64 v[14:15], vcc, v[2:3], v[4:5], v[2:3]
    v_mul_f64 v[16:17], v[14:15], v[12:13]
    v_fma_f64 v[10:11], -v[10:11], v[16:17], v[14:15]
    v_div_fmas_f64 v[10:11], v[10:11], v[12:13], v[16:17]
    v_div_fixup_f64 v[10:11], v[10:11], v[4:5], v[2:3])"});
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    test_wave w(u32(round) + 1);
    w.set_exec(~u64(0));
    for (int l = 0; l < lanes; ++l) {
      w->v[2][l] = u32(edge_value(random, 32, true)) + (random() & 0xffff);
      w->v[4][l] = u32(edge_value(random, 32, true)) + (random() & 0xffff);
    }
    REQUIRE(c.run(0, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      float const x = as<float>(w->v[2][l]), y = as<float>(w->v[4][l]), q = as<float>(w->v[10][l]), want = x / y;
      CAPTURE(x, y, q, want);
      // a denormal quotient is off by the double rounding of the last step at most
      CHECK((q == want || (std::isnan(q) && std::isnan(want)) ||
             (std::fabs(want) < 0x1p-125f && std::fabs(double(q) - want) <= 0x1p-149)));
    }
    for (int l = 0; l < lanes; ++l)
      for (int r : {2, 4}) {
        u64 const x = edge_value(random, 64, true) + (random() & 0xffff);
        w->v[r][l] = u32(x), w->v[r + 1][l] = u32(x >> 32);
      }
    REQUIRE(c.run(1, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      double const x = as<double>(w.v64(2, l)), y = as<double>(w.v64(4, l)), q = as<double>(w.v64(10, l)), want = x / y;
      CAPTURE(x, y, q, want);
      CHECK((q == want || (std::isnan(q) && std::isnan(want)) ||
             (std::fabs(want) < 0x1p-1021 && std::fabs(q - want) <= 0x1p-1074)));
    }
  }
}

TEST_CASE("MODE decides rounding and denormals") {
  code const c({"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\nv_add_f32 v10, v2, v4\nv_add_f64 v[12:13], v[2:3], "
                "v[4:5]\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0",
                "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\nv_mul_f32 v10, v2, v4\nv_add_f32 v11, v6, "
                "0\nv_mov_b32 v12, v6\nv_mul_f64 v[14:15], v[8:9], 1.0",
                "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0xf\nv_cvt_f16_f32 v10, v2\nv_cvt_i32_f32 v11, "
                "v2\nv_rndne_f32 v12, v2"});
  test_wave w(2);
  w.set_exec(~u64(0));
  for (int l = 0; l < lanes; ++l) {
    w->v[2][l] = as<u32>(1.0f), w->v[4][l] = as<u32>(0x1p-40f);
    w->v[3][l] = u32(as<u64>(1.0) >> 32), w->v[5][l] = u32(as<u64>(0x1p-80) >> 32);
    w->v[6][l] = 5;  // denormal
    w->v[8][l] = 5, w->v[9][l] = 0;
  }
  REQUIRE(c.run(0, *w) == "");
  CHECK(as<float>(w->v[10][3]) == 1 + 0x1p-23f);          // up
  CHECK(w.v64(12, 3) == (as<u64>(1.0) | as<u32>(1.0f)));  // to nearest
  for (int l = 0; l < lanes; ++l) w->v[2][l] = as<u32>(0x1p-100f), w->v[4][l] = as<u32>(0x1p-40f);
  REQUIRE(c.run(1, *w) == "");
  CHECK(w->v[10][0] == 0);
  CHECK(w->v[11][0] == 0);
  CHECK(w->v[12][0] == 5);
  CHECK(w.v64(14, 0) == 5);
  w->mode = 0x3f0;
  for (int l = 0; l < lanes; ++l) w->v[2][l] = as<u32>(1.9999999f);
  REQUIRE(c.run(2, *w) == "");
  CHECK(w->v[10][0] == 0x3fff);
  CHECK(w->v[11][0] == 1);
}
