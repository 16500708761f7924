#include <catch2/catch_test_macros.hpp>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {
u32 bits_reversed(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
  return r;
}
u32 leading_zeros(u32 x) {
  for (int i = 0; i < 32; ++i)
    if (x >> (31 - i) & 1) return u32(i);
  return ~0u;
}
u32 perm(u32 a, u32 b, u32 c) {
  u8 const source[8] = {u8(b), u8(b >> 8), u8(b >> 16), u8(b >> 24), u8(a), u8(a >> 8), u8(a >> 16), u8(a >> 24)};
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    u8 const s = u8(c >> 8 * i);
    u8 const sign[4] = {source[1], source[3], source[5], source[7]};
    r |= u32(s < 8 ? source[s] : s < 12 ? (sign[s - 8] & 0x80 ? 0xff : 0) : s == 12 ? 0 : 0xff) << 8 * i;
  }
  return r;
}
i32 s24(u32 x) { return i32((x & 0xffffff) ^ 0x800000) - 0x800000; }
}  // namespace

TEST_CASE("32-bit integer vector instructions") {
  lane_suite s;
  s.add("v_mov_b32", [](u32 a) { return a; });
  s.add("v_not_b32", [](u32 a) { return ~a; });
  s.add("v_bfrev_b32", bits_reversed);
  s.add("v_ffbh_u32", leading_zeros);
  s.add("v_ffbl_b32", [](u32 a) { return leading_zeros(bits_reversed(a)); });
  s.add("v_ffbh_i32", [](u32 a) { return leading_zeros(a >> 31 ? ~a : a); });
  s.add("v_add_u32", [](u32 a, u32 b) { return a + b; });
  s.add("v_sub_u32", [](u32 a, u32 b) { return a - b; });
  s.add("v_subrev_u32", [](u32 a, u32 b) { return b - a; });
  s.add("v_add_i32", [](u32 a, u32 b) { return a + b; });
  s.add("v_sub_i32", [](u32 a, u32 b) { return a - b; });
  s.add("v_and_b32", [](u32 a, u32 b) { return a & b; });
  s.add("v_or_b32", [](u32 a, u32 b) { return a | b; });
  s.add("v_xor_b32", [](u32 a, u32 b) { return a ^ b; });
  s.add("v_xnor_b32", [](u32 a, u32 b) { return ~(a ^ b); });
  s.add("v_min_u32", [](u32 a, u32 b) { return a < b ? a : b; });
  s.add("v_max_u32", [](u32 a, u32 b) { return a < b ? b : a; });
  s.add("v_min_i32", [](i32 a, i32 b) { return a < b ? a : b; });
  s.add("v_max_i32", [](i32 a, i32 b) { return a < b ? b : a; });
  s.add("v_lshlrev_b32", [](u32 a, u32 b) { return u32(u64(b) << a % 32); });
  s.add("v_lshrrev_b32", [](u32 a, u32 b) { return u32(b >> a % 32); });
  s.add("v_ashrrev_i32", [](u32 a, i32 b) { return i32(i64(b) >> a % 32); });
  s.add("v_mul_lo_u32", [](u32 a, u32 b) { return a * b; });
  s.add("v_mul_hi_u32", [](u32 a, u32 b) { return u32(u64(a) * b / 4294967296u); });
  s.add("v_mul_hi_i32", [](i32 a, i32 b) { return i32(i64(a) * b >> 32); });
  s.add("v_mul_u32_u24", [](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); });
  s.add("v_mul_hi_u32_u24", [](u32 a, u32 b) { return u32(u64(a & 0xffffff) * (b & 0xffffff) >> 32); });
  s.add("v_mul_i32_i24", [](u32 a, u32 b) { return i32(i64(s24(a)) * s24(b)); });
  s.add("v_mul_hi_i32_i24", [](u32 a, u32 b) { return i32(i64(s24(a)) * s24(b) >> 32); });
  s.add("v_bfm_b32", [](u32 a, u32 b) { return u32(((u64(1) << a % 32) - 1) << b % 32); });
  s.add("v_bcnt_u32_b32", [](u32 a, u32 b) {
    for (; a; a &= a - 1) ++b;
    return b;
  });
  s.add("v_add3_u32", [](u32 a, u32 b, u32 c) { return a + b + c; });
  s.add("v_add_lshl_u32", [](u32 a, u32 b, u32 c) { return (a + b) << c % 32; });
  s.add("v_lshl_add_u32", [](u32 a, u32 b, u32 c) { return (a << b % 32) + c; });
  s.add("v_lshl_or_b32", [](u32 a, u32 b, u32 c) { return (a << b % 32) | c; });
  s.add("v_and_or_b32", [](u32 a, u32 b, u32 c) { return (a & b) | c; });
  s.add("v_or3_b32", [](u32 a, u32 b, u32 c) { return a | b | c; });
  s.add("v_xad_u32", [](u32 a, u32 b, u32 c) { return (a ^ b) + c; });
  s.add("v_bfe_u32", [](u32 a, u32 b, u32 c) { return u32((a >> b % 32) & ((u64(1) << c % 32) - 1)); });
  s.add("v_bfe_i32", [](i32 a, u32 b, u32 c) {
    if (c % 32 == 0) return 0;
    i64 const field = (i64(a) >> b % 32) & ((i64(1) << c % 32) - 1), sign = i64(1) << (c % 32 - 1);
    return i32((field ^ sign) - sign);
  });
  s.add("v_bfi_b32", [](u32 a, u32 b, u32 c) { return (a & b) | (c & ~a); });
  s.add("v_alignbit_b32", [](u32 a, u32 b, u32 c) { return u32((u64(a) << 32 | b) >> c % 32); });
  s.add("v_alignbyte_b32", [](u32 a, u32 b, u32 c) { return u32((u64(a) << 32 | b) >> c % 4 * 8); });
  s.add("v_perm_b32", perm);
  s.add("v_mad_u32_u24", [](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; });
  s.add("v_mad_i32_i24", [](u32 a, u32 b, u32 c) { return u32(s24(a)) * u32(s24(b)) + c; });
  s.add("v_mad_u32_u16", [](u16 a, u16 b, u32 c) { return u32(a) * b + c; });
  s.add("v_mad_i32_i16", [](i16 a, i16 b, u32 c) { return u32(i32(a) * b) + c; });
  s.add("v_min3_u32", [](u32 a, u32 b, u32 c) { return std::min({a, b, c}); });
  s.add("v_max3_u32", [](u32 a, u32 b, u32 c) { return std::max({a, b, c}); });
  s.add("v_med3_u32", [](u32 a, u32 b, u32 c) {
    u32 x[] = {a, b, c};
    std::sort(x, x + 3);
    return x[1];
  });
  s.add("v_min3_i32", [](i32 a, i32 b, i32 c) { return std::min({a, b, c}); });
  s.add("v_max3_i32", [](i32 a, i32 b, i32 c) { return std::max({a, b, c}); });
  s.add("v_med3_i32", [](i32 a, i32 b, i32 c) {
    i32 x[] = {a, b, c};
    std::sort(x, x + 3);
    return x[1];
  });
  s.add("v_sad_u8", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) c += u32(std::abs(int(a >> i & 255) - int(b >> i & 255)));
    return c;
  });
  s.add("v_sad_hi_u8", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) c += u32(std::abs(int(a >> i & 255) - int(b >> i & 255))) << 16;
    return c;
  });
  s.add("v_msad_u8", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8)
      if (b >> i & 255) c += u32(std::abs(int(a >> i & 255) - int(b >> i & 255)));
    return c;
  });
  s.add("v_sad_u16", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 16) c += u32(std::abs(int(a >> i & 65535) - int(b >> i & 65535)));
    return c;
  });
  s.add("v_sad_u32", [](u32 a, u32 b, u32 c) { return (a > b ? a - b : b - a) + c; });
  s.add("v_lerp_u8", [](u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int i = 0; i < 32; i += 8) r |= ((a >> i & 255) + (b >> i & 255) + (c >> i & 1)) / 2 << i;
    return r;
  });
  s.add("v_sat_pk_u8_i16", [](u32 a) {
    auto const sat = [](i16 x) { return u32(x < 0 ? 0 : x > 255 ? 255 : x); };
    return sat(i16(a)) | sat(i16(a >> 16)) << 8;
  });
  s.run();
}

TEST_CASE("64-bit integer vector instructions") {
  lane_suite s;
  s.add("v_mov_b64", [](u64 a) { return a; });
  s.add("v_lshlrev_b64", [](u32 a, u64 b) { return b << a % 64; });
  s.add("v_lshrrev_b64", [](u32 a, u64 b) { return b >> a % 64; });
  s.add("v_ashrrev_i64", [](u32 a, i64 b) { return b >> a % 64; });
  s.add("v_lshl_add_u64", [](u64 a, u32 b, u64 c) { return (a << b % 8) + c; });
  s.run();
}

TEST_CASE("16-bit integer vector instructions") {
  lane_suite s;
  s.add("v_add_u16", [](u16 a, u16 b) { return u16(a + b); });
  s.add("v_sub_u16", [](u16 a, u16 b) { return u16(a - b); });
  s.add("v_subrev_u16", [](u16 a, u16 b) { return u16(b - a); });
  s.add("v_mul_lo_u16", [](u16 a, u16 b) { return u16(u32(a) * b); });
  s.add("v_lshlrev_b16", [](u16 a, u16 b) { return u16(b << a % 16); });
  s.add("v_lshrrev_b16", [](u16 a, u16 b) { return u16(b >> a % 16); });
  s.add("v_ashrrev_i16", [](u16 a, i16 b) { return i16(b >> a % 16); });
  s.add("v_min_u16", [](u16 a, u16 b) { return a < b ? a : b; });
  s.add("v_max_u16", [](u16 a, u16 b) { return a < b ? b : a; });
  s.add("v_min_i16", [](i16 a, i16 b) { return a < b ? a : b; });
  s.add("v_max_i16", [](i16 a, i16 b) { return a < b ? b : a; });
  s.add("v_mad_legacy_u16", [](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); });
  lane_options const keep{.keeps_high = true};
  s.add("v_add_i16", [](u16 a, u16 b) { return u16(a + b); }, keep);
  s.add("v_sub_i16", [](u16 a, u16 b) { return u16(a - b); }, keep);
  s.add("v_mad_u16", [](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); }, keep);
  s.add("v_mad_i16", [](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); }, keep);
  s.add("v_min3_i16", [](i16 a, i16 b, i16 c) { return std::min({a, b, c}); }, keep);
  s.add("v_max3_u16", [](u16 a, u16 b, u16 c) { return std::max({a, b, c}); }, keep);
  s.add(
      "v_med3_i16",
      [](i16 a, i16 b, i16 c) {
        i16 x[] = {a, b, c};
        std::sort(x, x + 3);
        return x[1];
      },
      keep);
  s.run();
}

TEST_CASE("carries and 64-bit products") {
  code const c({
      "v_add_co_u32 v10, vcc, v2, v4",
      "v_sub_co_u32 v10, s[30:31], v2, v4",
      "v_addc_co_u32 v10, vcc, v2, v4, vcc",
      "v_subb_co_u32 v10, s[30:31], v2, v4, s[32:33]",
      "v_subbrev_co_u32 v10, s[30:31], v2, v4, s[32:33]",
      "v_mad_u64_u32 v[10:11], s[30:31], v2, v4, v[6:7]",
      "v_mad_i64_i32 v[10:11], s[30:31], v2, v4, v[6:7]",
  });
  for (u32 seed = 1; seed < 6; ++seed) {
    for (std::size_t i = 0; i < 7; ++i) {
      test_wave w(seed);
      std::mt19937 random(seed);
      for (int r = 2; r < 8; ++r)
        for (auto& x : w->v[r]) x = u32(edge_value(random, 32, false));
      u64 const exec = w->exec(), in = i == 2 ? w->vcc() : w.s64(32);
      auto const before = std::make_unique<wave>(*w);
      REQUIRE(c.run(i, *w) == "");
      u64 const out = i == 0 || i == 2 ? w->vcc() : w.s64(30);
      u64 expected_out = 0;
      for (int l = 0; l < lanes; ++l) {
        if (!(exec >> l & 1)) continue;
        u32 const a = before->v[2][l], b = before->v[4][l], carry = in >> l & 1;
        u64 const addend = before->v[6][l] | u64(before->v[7][l]) << 32;
        __int128 x = 0;
        switch (i) {
          case 0: x = __int128(a) + b; break;
          case 1: x = __int128(a) - b; break;
          case 2: x = __int128(a) + b + carry; break;
          case 3: x = __int128(a) - b - carry; break;
          case 4: x = __int128(b) - a - carry; break;
          case 5: x = __int128(u64(a) * b) + addend; break;
          case 6: x = __int128(i64(i32(a)) * i32(b)) + i64(addend); break;
        }
        CAPTURE(i, l);
        if (i < 5) {
          CHECK(w->v[10][l] == u32(x));
          expected_out |= u64(x >> 32 & 1) << l;
        } else {
          CHECK(w.v64(10, l) == u64(x));
          expected_out |= u64(i == 5 ? x >> 64 != 0 : x != i64(x)) << l;
        }
      }
      CHECK(out == expected_out);
    }
  }
}

TEST_CASE("integer clamp saturates") {
  code const c({"v_add_u32_e64 v10, v2, v4 clamp", "v_sub_u32_e64 v10, v2, v4 clamp", "v_add_i32 v10, v2, v4 clamp",
                "v_sub_i32 v10, v2, v4 clamp", "v_add_u16_e64 v10, v2, v4 clamp"});
  test_wave w(3);
  w.set_exec(~u64(0));
  for (std::size_t i = 0; i < 5; ++i) {
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      i64 const a = w->v[2][l], b = w->v[4][l], sa = i32(a), sb = i32(b);
      i64 const want[] = {
          std::min<i64>(a + b, 0xffffffff), std::max<i64>(a - b, 0), std::clamp<i64>(sa + sb, INT32_MIN, INT32_MAX),
          std::clamp<i64>(sa - sb, INT32_MIN, INT32_MAX), std::min<i64>((a & 0xffff) + (b & 0xffff), 0xffff)};
      CHECK(w->v[10][l] == u32(want[i]));
    }
  }
}
