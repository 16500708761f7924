#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {
u16 half_bits(float x) { return as<u16>(f16(x)); }
float half_value(u32 x) { return float(as<f16>(u16(x))); }
bool same_half(u32 a, u32 b) { return u16(a) == u16(b) || (std::isnan(half_value(a)) && std::isnan(half_value(b))); }

/// op_sel, op_sel_hi, neg_lo, neg_hi: one bit per source.
struct selection {
  u32 low, high, neg_low, neg_high;
};
std::string bracketed(u32 bits, int sources) {
  std::string s = "[";
  for (int i = 0; i < sources; ++i) s += (i ? "," : "") + std::to_string(bits >> i & 1);
  return s + "]";
}
}  // namespace

TEST_CASE("packed 16-bit instructions") {
  struct packed_case {
    std::string name;
    int sources;
    bool floating;
    std::function<u32(u32, u32, u32)> f;
  };
  auto const fl = [](auto f) {
    return [f](u32 a, u32 b, u32 c) -> u32 { return half_bits(f(half_value(a), half_value(b), half_value(c))); };
  };
  std::vector<packed_case> const cases{
      {"v_pk_add_f16", 2, true, fl([](float a, float b, float) { return a + b; })},
      {"v_pk_mul_f16", 2, true, fl([](float a, float b, float) { return a * b; })},
      {"v_pk_min_f16", 2, true, fl([](float a, float b, float) {
         return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
       })},
      {"v_pk_max_f16", 2, true, fl([](float a, float b, float) {
         return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
       })},
      {"v_pk_fma_f16", 3, true,
       [](u32 a, u32 b, u32 c) -> u32 {
         return as<u16>(f16(std::fma(double(half_value(a)), double(half_value(b)), double(half_value(c)))));
       }},
      {"v_pk_add_u16", 2, false, [](u32 a, u32 b, u32) { return a + b; }},
      {"v_pk_sub_u16", 2, false, [](u32 a, u32 b, u32) { return a - b; }},
      {"v_pk_add_i16", 2, false, [](u32 a, u32 b, u32) { return a + b; }},
      {"v_pk_sub_i16", 2, false, [](u32 a, u32 b, u32) { return a - b; }},
      {"v_pk_mul_lo_u16", 2, false, [](u32 a, u32 b, u32) { return a * b; }},
      {"v_pk_mad_u16", 3, false, [](u32 a, u32 b, u32 c) { return a * b + c; }},
      {"v_pk_mad_i16", 3, false, [](u32 a, u32 b, u32 c) { return a * b + c; }},
      {"v_pk_lshlrev_b16", 2, false, [](u32 a, u32 b, u32) { return b << a % 16; }},
      {"v_pk_lshrrev_b16", 2, false, [](u32 a, u32 b, u32) { return b >> a % 16; }},
      {"v_pk_ashrrev_i16", 2, false, [](u32 a, u32 b, u32) { return u32(i16(b) >> a % 16); }},
      {"v_pk_min_i16", 2, false, [](u32 a, u32 b, u32) { return u32(std::min(i16(a), i16(b))); }},
      {"v_pk_max_i16", 2, false, [](u32 a, u32 b, u32) { return u32(std::max(i16(a), i16(b))); }},
      {"v_pk_min_u16", 2, false, [](u32 a, u32 b, u32) { return std::min(a, b); }},
      {"v_pk_max_u16", 2, false, [](u32 a, u32 b, u32) { return std::max(a, b); }},
  };
  std::vector<selection> const selections{{0, 7, 0, 0}, {5, 2, 0, 0}, {1, 7, 3, 2}};
  std::vector<std::string> texts;
  for (auto const& c : cases)
    for (auto const& s : selections) {
      std::string t = c.name + " v10, v2, v4" + (c.sources == 3 ? ", v6" : "") +
                      " op_sel:" + bracketed(s.low, c.sources) + " op_sel_hi:" + bracketed(s.high, c.sources);
      if (c.floating && s.neg_low)
        t += " neg_lo:" + bracketed(s.neg_low, c.sources) + " neg_hi:" + bracketed(s.neg_high, c.sources);
      texts.push_back(t);
    }
  code const assembled(texts);
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (u32 seed = 1; seed < 4; ++seed) {
      auto const& c = cases[i / selections.size()];
      auto const& s = selections[i % selections.size()];
      test_wave w(seed);
      std::mt19937 random(seed);
      for (int r : {2, 4, 6})
        for (auto& x : w->v[r])
          x = u32(edge_value(random, 16, c.floating) & 0xffff) | u32(edge_value(random, 16, c.floating)) << 16;
      auto const before = std::make_unique<wave>(*w);
      INFO(texts[i]);
      REQUIRE(assembled.run(i, *w) == "");
      for (int l = 0; l < lanes; ++l) {
        u32 want[2];
        for (int half = 0; half < 2; ++half) {
          u32 x[3];
          for (int k = 0; k < 3; ++k) {
            bool const upper = (half ? s.high : s.low) >> k & 1,
                       negative = c.floating && ((half ? s.neg_high : s.neg_low) >> k & 1) && s.neg_low;
            x[k] = (before->v[2 + 2 * k][l] >> (upper ? 16 : 0) & 0xffff) ^ (negative ? 0x8000 : 0);
          }
          want[half] = c.f(x[0], x[1], x[2]) & 0xffff;
        }
        CAPTURE(l, hex(w->v[10][l]), hex(want[0]), hex(want[1]));
        if (before->exec() >> l & 1)
          CHECK(((c.floating ? same_half(w->v[10][l], want[0]) : u16(w->v[10][l]) == want[0]) &&
                 (c.floating ? same_half(w->v[10][l] >> 16, want[1]) : w->v[10][l] >> 16 == want[1])));
        else CHECK(w->v[10][l] == before->v[10][l]);
      }
    }
}

TEST_CASE("packed constants") {
  code const c({"v_pk_add_u16 v10, v2, 3", "v_pk_add_u16 v10, v2, -1", "v_pk_add_f16 v10, v2, 1.0",
                "v_pk_add_f16 v10, v2, 1.0 op_sel_hi:[1,0]", "v_pk_add_f32 v[10:11], v[2:3], 1.0"});
  test_wave w(1);
  w.set_exec(~u64(0));
  for (int l = 0; l < lanes; ++l) w->v[2][l] = packed(half_bits(2), half_bits(3)), w->v[3][l] = as<u32>(5.0f);
  REQUIRE(c.run(0, *w) == "");
  CHECK(w->v[10][0] == packed(half_bits(2) + 3, half_bits(3)));
  REQUIRE(c.run(1, *w) == "");
  CHECK(w->v[10][0] == packed(half_bits(2) - 1, half_bits(3) - 1));
  REQUIRE(c.run(2, *w) == "");
  CHECK(w->v[10][0] == packed(half_bits(3), half_bits(3)));
  REQUIRE(c.run(3, *w) == "");
  CHECK(w->v[10][0] == packed(half_bits(3), half_bits(4)));
  REQUIRE(c.run(4, *w) == "");
  CHECK(as<float>(w->v[11][0]) == 6);
}

TEST_CASE("packed f32 instructions") {
  code const c({"v_pk_add_f32 v[10:11], v[2:3], v[4:5]",
                "v_pk_mul_f32 v[10:11], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]",
                "v_pk_fma_f32 v[10:11], v[2:3], s[20:21], v[6:7] op_sel_hi:[1,0,1]",
                "v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]",
                "v_pk_mov_b32 v[2:3], v[2:3], v[2:3] op_sel:[1,0]"});
  for (std::size_t i = 0; i < 5; ++i) {
    test_wave w(u32(i) + 1);
    w.set_exec(~u64(0));
    std::mt19937 random(5);
    for (int r = 2; r < 8; ++r)
      for (auto& x : w->v[r]) x = as<u32>(float(int(random() % 2000) - 1000) / 16);
    w->s[20] = as<u32>(3.5f), w->s[21] = as<u32>(-9.0f);
    auto const b = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      auto const f = [&](int r) { return as<float>(b->v[r][l]); };
      float const want[5][2] = {{f(2) + f(4), f(3) + f(5)},
                                {f(3) * -f(4), -f(2) * f(5)},
                                {std::fmaf(f(2), 3.5f, f(6)), std::fmaf(f(3), 3.5f, f(7))},
                                {f(3), f(4)},
                                {f(3), f(2)}};
      int const to = i == 4 ? 2 : 10;
      CAPTURE(i, l);
      CHECK((as<float>(w->v[to][l]) == want[i][0] && as<float>(w->v[to + 1][l]) == want[i][1]));
    }
  }
}

TEST_CASE("mixed precision multiply-add") {
  code const c({"v_fma_mix_f32 v10, v2, v4, v6", "v_fma_mix_f32 v10, -v2, |v4|, v6 op_sel:[1,0,0] op_sel_hi:[1,0,1]",
                "v_fma_mixlo_f16 v10, v2, v4, v6 op_sel:[0,1,0] op_sel_hi:[0,1,0]",
                "v_fma_mixhi_f16 v10, v2, v4, v6 op_sel_hi:[1,1,1] clamp"});
  for (std::size_t i = 0; i < 4; ++i) {
    test_wave w(u32(i) + 1);
    w.set_exec(~u64(0));
    std::mt19937 random(5);
    for (int r : {2, 4, 6})
      for (auto& x : w->v[r]) {
        float const v = float(int(random() % 200) - 100) / 8;
        x = as<u32>(v) + half_bits(v / 3);
      }
    auto const b = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      auto const f = [&](int r) { return as<float>(b->v[r][l]); };
      auto const h = [&](int r, int upper) { return half_value(b->v[r][l] >> 16 * upper); };
      u32 const old = b->v[10][l];
      u32 const want[] = {as<u32>(std::fmaf(f(2), f(4), f(6))), as<u32>(std::fmaf(-h(2, 1), std::fabs(f(4)), h(6, 0))),
                          (old & 0xffff0000) | half_bits(std::fmaf(f(2), h(4, 1), f(6))),
                          (old & 0xffff) | u32(half_bits(std::clamp(std::fmaf(h(2, 0), h(4, 0), h(6, 0)), 0.0f, 1.0f)))
                                               << 16};
      CAPTURE(i, l);
      CHECK((w->v[10][l] == want[i] || (w->v[10][l] ^ want[i]) == 0x80000000));
    }
  }
}

TEST_CASE("dot products") {
  code const c({"v_dot2_i32_i16 v10, v2, v4, v6", "v_dot2_u32_u16 v10, v2, v4, v6", "v_dot4_i32_i8 v10, v2, v4, v6",
                "v_dot4_u32_u8 v10, v2, v4, v6", "v_dot8_i32_i4 v10, v2, v4, v6", "v_dot8_u32_u4 v10, v2, v4, v6",
                "v_dot4c_i32_i8 v10, v2, v4", "v_dot4_i32_i8 v10, v2, v4, v6 clamp", "v_dot2_f32_f16 v10, v2, v4, v6",
                "v_dot2c_f32_f16 v10, v2, v4", "v_dot2c_i32_i16 v10, v2, v4", "v_dot8c_i32_i4 v10, v2, v4"});
  for (std::size_t i = 0; i < 12; ++i) {
    test_wave w(u32(i) + 1);
    w.set_exec(~u64(0));
    if (i == 8 || i == 9)
      for (int l = 0; l < lanes; ++l) {
        for (int r : {2, 4}) w->v[r][l] = packed(half_bits(float(l + r)), half_bits(float(l) - 3));
        for (int r : {6, 10}) w->v[r][l] = as<u32>(float(l) / 2);
      }
    auto const b = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      u32 const x = b->v[2][l], y = b->v[4][l], z = b->v[6][l], old = b->v[10][l];
      auto const dot = [&](int bits, bool is_signed, i64 sum) {
        for (int k = 0; k < 32; k += bits) {
          i64 p = x >> k & ((u64(1) << bits) - 1), q = y >> k & ((u64(1) << bits) - 1);
          if (is_signed && p >> (bits - 1)) p -= i64(1) << bits;
          if (is_signed && q >> (bits - 1)) q -= i64(1) << bits;
          sum += p * q;
        }
        return sum;
      };
      CAPTURE(i, l);
      if (i == 8 || i == 9) {
        float const sum =
            half_value(x) * half_value(y) + half_value(x >> 16) * half_value(y >> 16) + as<float>(i == 8 ? z : old);
        CHECK(as<float>(w->v[10][l]) == sum);
        continue;
      }
      i64 const want[] = {dot(16, true, i32(z)),
                          dot(16, false, z),
                          dot(8, true, i32(z)),
                          dot(8, false, z),
                          dot(4, true, i32(z)),
                          dot(4, false, z),
                          dot(8, true, i32(old)),
                          std::clamp<i64>(dot(8, true, i32(z)), INT32_MIN, INT32_MAX),
                          0,
                          0,
                          dot(16, true, i32(old)),
                          dot(4, true, i32(old))};
      CHECK(w->v[10][l] == u32(want[i]));
    }
  }
}
