// SDWA, DPP, op_sel, clamp and output scale; instructions that cross lanes.
#include <catch2/catch_test_macros.hpp>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

TEST_CASE("SDWA selects parts of sources and destination") {
  code const c({
      "v_add_u32_sdwa v10, v2, v4 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:WORD_1",
      "v_add_u32_sdwa v10, sext(v2), sext(v4) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_0",
      "v_or_b32_sdwa v10, v2, v4 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 src1_sel:BYTE_3",
      "v_mov_b32_sdwa v10, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0",
      "v_mov_b32_sdwa v10, v2 dst_sel:BYTE_0 dst_unused:UNUSED_SEXT src0_sel:BYTE_3",
      "v_add_f16_sdwa v10, -v2, |v4| dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0",
      "v_cvt_f32_ubyte0_sdwa v10, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3",
      "v_cmp_lt_u32_sdwa s[30:31], v2, v4 src0_sel:WORD_0 src1_sel:BYTE_3",
      "v_lshlrev_b32_sdwa v10, s20, v4 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_1",
      "v_add_u16_sdwa v10, v2, v4 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_1",
  });
  for (std::size_t i = 0; i < 10; ++i) {
    test_wave w(u32(i) + 1);
    w->s[20] = 7;
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      u32 const a = before->v[2][l], b = before->v[4][l], old = before->v[10][l];
      u32 want = old;
      switch (i) {
        case 0: want = (a >> 16 & 255) + (b >> 16); break;
        case 1: want = u32(i8(a >> 8)) + u32(i16(b)); break;
        case 2: want = (old & 0xffff00ff) | ((a & 255) | b >> 24) << 8; break;
        case 3: want = a << 16; break;
        case 4: want = u32(i8(a >> 24)); break;
        case 5: {
          f16 const x = as<f16>(u16(a >> 16 ^ 0x8000)), y = as<f16>(u16(b & 0x7fff)), sum = f16(float(x) + float(y));
          if (sum != sum) continue;
          want = (old & 0xffff) | u32(as<u16>(sum)) << 16;
          break;
        }
        case 6: want = as<u32>(float(a >> 24)); break;
        case 7: continue;
        case 8: want = (b >> 8 & 255) << 7; break;
        case 9: want = (old & 0xffff) | u32(u16((a >> 16) + (b >> 16))) << 16; break;
      }
      CAPTURE(i, l);
      CHECK(w->v[10][l] == (before->exec() >> l & 1 ? want : old));
    }
    if (i == 7)
      for (int l = 0; l < lanes; ++l)
        CHECK((w.s64(30) >> l & 1) == (before->exec() >> l & u64((before->v[2][l] & 0xffff) < before->v[4][l] >> 24)));
  }
}

TEST_CASE("DPP permutes source 0") {
  struct control {
    std::string text;
    std::function<int(int)> from;  // -1: none
  };
  auto const in_row = [](int l) { return l & 15; };
  std::vector<control> const controls{
      {"quad_perm:[3,0,2,1]",
       [](int l) {
         int const p[] = {3, 0, 2, 1};
         return (l & ~3) + p[l & 3];
       }},
      {"row_shl:3", [=](int l) { return in_row(l) + 3 < 16 ? l + 3 : -1; }},
      {"row_shr:5", [=](int l) { return in_row(l) >= 5 ? l - 5 : -1; }},
      {"row_ror:4", [=](int l) { return (l & ~15) + (in_row(l) + 12) % 16; }},
      {"wave_shl:1", [](int l) { return l == 63 ? -1 : l + 1; }},
      {"wave_rol:1", [](int l) { return (l + 1) % 64; }},
      {"wave_shr:1", [](int l) { return l - 1; }},
      {"wave_ror:1", [](int l) { return (l + 63) % 64; }},
      {"row_mirror", [](int l) { return l ^ 15; }},
      {"row_half_mirror", [](int l) { return l ^ 7; }},
      {"row_bcast:15", [](int l) { return l < 16 ? -1 : (l & ~15) - 1; }},
      {"row_bcast:31", [](int l) { return l < 32 ? -1 : 31; }},
      {"row_newbcast:6", [](int l) { return (l & ~15) + 6; }},
  };
  std::vector<std::string> texts;
  for (auto const& k : controls) {
    texts.push_back("v_add_u32_dpp v10, v2, v4 " + k.text + " row_mask:0xf bank_mask:0xf");
    texts.push_back("v_add_u32_dpp v10, v2, v4 " + k.text + " row_mask:0xa bank_mask:0x7 bound_ctrl:0");
  }
  texts.push_back("v_add_f32_dpp v10, -v2, |v4| row_shr:1 row_mask:0xf bank_mask:0xf");
  texts.push_back("v_mov_b64_dpp v[10:11], v[2:3] row_newbcast:3 row_mask:0xf bank_mask:0xf");
  code const c(texts);
  for (std::size_t i = 0; i < 2 * controls.size(); ++i)
    for (bool all : {true, false}) {
      test_wave w(u32(i) + 1);
      if (all) w.set_exec(~u64(0));
      auto const before = std::make_unique<wave>(*w);
      u64 const exec = w->exec();
      INFO(texts[i]);
      REQUIRE(c.run(i, *w) == "");
      for (int l = 0; l < lanes; ++l) {
        int const from = controls[i / 2].from(l);
        bool const valid = from >= 0 && (exec >> from & 1), zero = i % 2;
        bool written = (exec >> l & 1) && (valid || zero);
        if (zero) written = written && (0xa >> l / 16 & 1) && (0x7 >> l / 4 % 4 & 1);
        CAPTURE(l);
        CHECK(w->v[10][l] == (written ? (valid ? before->v[2][from] : 0) + before->v[4][l] : before->v[10][l]));
      }
    }
  test_wave w(3);
  w.set_exec(~u64(0));
  for (int l = 0; l < lanes; ++l) w->v[2][l] = as<u32>(float(l)), w->v[4][l] = as<u32>(-0.5f);
  REQUIRE(c.run(2 * controls.size(), *w) == "");
  CHECK(as<float>(w->v[10][7]) == -6 + 0.5f);
  REQUIRE(c.run(2 * controls.size() + 1, *w) == "");
  CHECK(w.v64(10, 20) == w.v64(2, 19));
}

TEST_CASE("op_sel picks halves") {
  code const c({"v_mad_u16 v10, v2, v4, v6 op_sel:[1,0,1,1]", "v_add_i16 v10, v2, v4 op_sel:[0,1,0]",
                "v_mad_u32_u16 v10, v2, v4, v6 op_sel:[1,1,0,0]", "v_pack_b32_f16 v10, v2, v4 op_sel:[1,0,0]"});
  for (std::size_t i = 0; i < 4; ++i) {
    test_wave w(u32(i) + 1);
    w.set_exec(~u64(0));
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      u32 const a = before->v[2][l], b = before->v[4][l], d = before->v[6][l], old = before->v[10][l];
      u32 const want[] = {(old & 0xffff) | u32(u16((a >> 16) * (b & 0xffff) + (d >> 16))) << 16,
                          (old & 0xffff0000) | u16(a + (b >> 16)), (a >> 16) * (b >> 16) + d, a >> 16 | b << 16};
      CAPTURE(i, l);
      CHECK(w->v[10][l] == want[i]);
    }
  }
}

TEST_CASE("clamp and output scale") {
  code const c({"v_add_f32_e64 v10, v2, v4 clamp", "v_mul_f32_e64 v10, v2, v4 mul:4",
                "v_add_f64 v[10:11], v[2:3], v[4:5] div:2", "v_mul_f32_e64 v10, v2, v4 clamp mul:2",
                "v_add_f16_e64 v10, v2, v4 clamp"});
  for (std::size_t i = 0; i < 5; ++i) {
    test_wave w(1);
    w.set_exec(~u64(0));
    for (int l = 0; l < lanes; ++l) {
      double const a = l / 16.0 - 2, b = 0.25 + (l == 9 ? NAN : 0);
      u64 const x = i == 2   ? as<u64>(a)
                    : i == 4 ? as<u16>(f16(float(a)))
                             : as<u32>(float(a)),
                y = i == 2   ? as<u64>(b)
                    : i == 4 ? as<u16>(f16(float(b)))
                             : as<u32>(float(b));
      w->v[2][l] = u32(x), w->v[3][l] = u32(x >> 32), w->v[4][l] = u32(y), w->v[5][l] = u32(y >> 32);
    }
    REQUIRE(c.run(i, *w) == "");
    for (int l = 0; l < lanes; ++l) {
      double const a = l / 16.0 - 2, sum = a + 0.25, product = a * 0.25;
      auto const clamped = [&](double x) { return l == 9 ? 0 : std::clamp(x, 0.0, 1.0); };
      double const got = i == 2   ? as<double>(w.v64(10, l))
                         : i == 4 ? float(as<f16>(u16(w->v[10][l])))
                                  : as<float>(w->v[10][l]);
      double const want[] = {clamped(sum), product * 4, sum / 2, clamped(product * 2), clamped(sum)};
      CAPTURE(i, l);
      CHECK((got == want[i] || (l == 9 && std::isnan(got) && (i == 1 || i == 2))));
    }
  }
}

TEST_CASE("reading and writing single lanes") {
  code const c({"v_readfirstlane_b32 s10, v2", "v_readlane_b32 s10, v2, s4", "v_readlane_b32 s10, v2, 17",
                "s_mov_b32 m0, s4\nv_writelane_b32 v10, s6, m0", "v_writelane_b32 v10, -3, 5",
                "v_mbcnt_lo_u32_b32 v10, s2, v4", "v_mbcnt_hi_u32_b32 v10, s2, v4", "v_swap_b32 v10, v2",
                "v_accvgpr_write_b32 a3, v2\nv_accvgpr_mov_b32 a4, a3\nv_accvgpr_read_b32 v10, a4"});
  auto const run = [&](std::size_t i, auto check) {
    test_wave w(u32(i) + 1);
    w->s[4] = 64 + 33;
    w.set_exec(0x00ff00ff00ff0f00);
    auto const before = std::make_unique<wave>(*w);
    REQUIRE(c.run(i, *w) == "");
    check(*w, *before);
  };
  run(0, [](wave& w, wave& b) { CHECK(w.s[10] == b.v[2][8]); });
  run(1, [](wave& w, wave& b) { CHECK(w.s[10] == b.v[2][33]); });
  run(2, [](wave& w, wave& b) { CHECK(w.s[10] == b.v[2][17]); });
  run(3, [](wave& w, wave& b) {
    for (int l = 0; l < lanes; ++l) CHECK(w.v[10][l] == (l == 33 ? b.s[6] : b.v[10][l]));
  });
  run(4, [](wave& w, wave& b) {
    for (int l = 0; l < lanes; ++l) CHECK(w.v[10][l] == (l == 5 ? u32(-3) : b.v[10][l]));
  });
  for (std::size_t half : {0u, 1u})
    run(5 + half, [=](wave& w, wave& b) {
      for (int l = 0; l < lanes; ++l) {
        u32 n = b.v[4][l];
        for (int k = 0; k < 32; ++k) n += (b.s[2] >> k & 1) && 32 * int(half) + k < l;
        CHECK(w.v[10][l] == (b.exec() >> l & 1 ? n : b.v[10][l]));
      }
    });
  run(7, [](wave& w, wave& b) {
    for (int l = 0; l < lanes; ++l)
      CHECK((w.v[10][l] == (b.exec() >> l & 1 ? b.v[2][l] : b.v[10][l]) &&
             w.v[2][l] == (b.exec() >> l & 1 ? b.v[10][l] : b.v[2][l])));
  });
  run(8, [](wave& w, wave& b) {
    for (int l = 0; l < lanes; ++l)
      CHECK((w.v[10][l] == (b.exec() >> l & 1 ? b.v[2][l] : b.v[10][l]) &&
             w.v[259][l] == (b.exec() >> l & 1 ? b.v[2][l] : b.v[259][l])));
  });
}
