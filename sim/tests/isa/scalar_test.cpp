#include <catch2/catch_test_macros.hpp>

#include "instructions.hpp"

using namespace fusewire::sim;
using namespace fusewire::sim::test;

namespace {

/// Result and SCC of an instruction on sources a, b (64 bits each) with SCC on entry.
struct outcome {
  u64 value;
  bool scc;
};
struct scalar_case {
  std::string mnemonic;
  int result_bits, a_bits, b_bits;  // b_bits 0: one source
  std::function<outcome(u64 a, u64 b, bool scc)> reference;
};

outcome nonzero(u64 x) { return {x, x != 0}; }
u64 reversed_bits(u64 x, int bits) {
  u64 r = 0;
  for (int i = 0; i < bits; ++i) r |= (x >> i & 1) << (bits - 1 - i);
  return r;
}
int first_one(u64 x, int bits) {
  for (int i = 0; i < bits; ++i)
    if (x >> i & 1) return i;
  return -1;
}
int population(u64 x) {
  int n = 0;
  for (; x; x &= x - 1) ++n;
  return n;
}
u64 field(u64 x, u64 b, int bits, bool is_signed) {
  int const offset = int(b & (bits - 1)), width = std::min(int(b >> 16 & 127), bits);
  if (width == 0) return 0;
  i64 const wide = is_signed ? (bits == 32 ? i64(i32(x)) : i64(x)) : i64(x);
  u64 const shifted = is_signed ? u64(wide >> offset) : (bits == 32 ? u64(u32(x)) : x) >> offset;
  u64 const mask = width == 64 ? ~u64(0) : (u64(1) << width) - 1;
  u64 r = shifted & mask;
  if (is_signed && width < 64 && r >> (width - 1) & 1) r |= ~mask;
  return r;
}
i64 s32(u64 x) { return i32(x); }

std::vector<scalar_case> cases() {
  std::vector<scalar_case> all{
      {"s_mov_b32", 32, 32, 0, [](u64 a, u64, bool c) { return outcome{a, c}; }},
      {"s_mov_b64", 64, 64, 0, [](u64 a, u64, bool c) { return outcome{a, c}; }},
      {"s_not_b32", 32, 32, 0, [](u64 a, u64, bool) { return nonzero(u32(~a)); }},
      {"s_not_b64", 64, 64, 0, [](u64 a, u64, bool) { return nonzero(~a); }},
      {"s_brev_b32", 32, 32, 0, [](u64 a, u64, bool c) { return outcome{reversed_bits(a, 32), c}; }},
      {"s_brev_b64", 64, 64, 0, [](u64 a, u64, bool c) { return outcome{reversed_bits(a, 64), c}; }},
      {"s_bcnt0_i32_b32", 32, 32, 0, [](u64 a, u64, bool) { return nonzero(32 - population(a)); }},
      {"s_bcnt0_i32_b64", 32, 64, 0, [](u64 a, u64, bool) { return nonzero(64 - population(a)); }},
      {"s_bcnt1_i32_b32", 32, 32, 0, [](u64 a, u64, bool) { return nonzero(population(a)); }},
      {"s_bcnt1_i32_b64", 32, 64, 0, [](u64 a, u64, bool) { return nonzero(population(a)); }},
      {"s_ff0_i32_b32", 32, 32, 0, [](u64 a, u64, bool c) { return outcome{u32(first_one(~a, 32)), c}; }},
      {"s_ff0_i32_b64", 32, 64, 0, [](u64 a, u64, bool c) { return outcome{u32(first_one(~a, 64)), c}; }},
      {"s_ff1_i32_b32", 32, 32, 0, [](u64 a, u64, bool c) { return outcome{u32(first_one(a, 32)), c}; }},
      {"s_ff1_i32_b64", 32, 64, 0, [](u64 a, u64, bool c) { return outcome{u32(first_one(a, 64)), c}; }},
      {"s_flbit_i32_b32", 32, 32, 0,
       [](u64 a, u64, bool c) { return outcome{u32(first_one(reversed_bits(a, 32), 32)), c}; }},
      {"s_flbit_i32_b64", 32, 64, 0,
       [](u64 a, u64, bool c) { return outcome{u32(first_one(reversed_bits(a, 64), 64)), c}; }},
      {"s_flbit_i32", 32, 32, 0,
       [](u64 a, u64, bool c) { return outcome{u32(first_one(reversed_bits(a >> 31 ? ~a : a, 32), 32)), c}; }},
      {"s_flbit_i32_i64", 32, 64, 0,
       [](u64 a, u64, bool c) { return outcome{u32(first_one(reversed_bits(a >> 63 ? ~a : a, 64), 64)), c}; }},
      {"s_sext_i32_i8", 32, 32, 0, [](u64 a, u64, bool c) { return outcome{u32(i8(a)), c}; }},
      {"s_sext_i32_i16", 32, 32, 0, [](u64 a, u64, bool c) { return outcome{u32(i16(a)), c}; }},
      {"s_abs_i32", 32, 32, 0, [](u64 a, u64, bool) { return nonzero(u32(std::abs(s32(a)))); }},
      {"s_quadmask_b32", 32, 32, 0,
       [](u64 a, u64, bool) {
         u64 r = 0;
         for (int i = 0; i < 8; ++i) r |= u64((a >> 4 * i & 15) != 0) << i;
         return nonzero(r);
       }},
      {"s_wqm_b64", 64, 64, 0,
       [](u64 a, u64, bool) {
         u64 r = 0;
         for (int i = 0; i < 16; ++i)
           if (a >> 4 * i & 15) r |= u64(15) << 4 * i;
         return nonzero(r);
       }},
      {"s_bitreplicate_b64_b32", 64, 32, 0,
       [](u64 a, u64, bool c) {
         u64 r = 0;
         for (int i = 0; i < 64; ++i) r |= (a >> i / 2 & 1) << i;
         return outcome{r, c};
       }},
      {"s_cselect_b32", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{c ? a : b, c}; }},
      {"s_cselect_b64", 64, 64, 64, [](u64 a, u64 b, bool c) { return outcome{c ? a : b, c}; }},
      {"s_add_u32", 32, 32, 32, [](u64 a, u64 b, bool) { return outcome{u32(a + b), a + b > 0xffffffff}; }},
      {"s_sub_u32", 32, 32, 32, [](u64 a, u64 b, bool) { return outcome{u32(a - b), b > a}; }},
      {"s_addc_u32", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{u32(a + b + c), a + b + c > 0xffffffff}; }},
      {"s_subb_u32", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{u32(a - b - c), b + c > a}; }},
      {"s_add_i32", 32, 32, 32,
       [](u64 a, u64 b, bool) {
         i64 const r = s32(a) + s32(b);
         return outcome{u32(r), r != i32(r)};
       }},
      {"s_sub_i32", 32, 32, 32,
       [](u64 a, u64 b, bool) {
         i64 const r = s32(a) - s32(b);
         return outcome{u32(r), r != i32(r)};
       }},
      {"s_min_i32", 32, 32, 32, [](u64 a, u64 b, bool) { return outcome{s32(a) < s32(b) ? a : b, s32(a) < s32(b)}; }},
      {"s_min_u32", 32, 32, 32, [](u64 a, u64 b, bool) { return outcome{a < b ? a : b, a < b}; }},
      {"s_max_i32", 32, 32, 32, [](u64 a, u64 b, bool) { return outcome{s32(a) > s32(b) ? a : b, s32(a) > s32(b)}; }},
      {"s_max_u32", 32, 32, 32, [](u64 a, u64 b, bool) { return outcome{a > b ? a : b, a > b}; }},
      {"s_mul_i32", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{u32(a * b), c}; }},
      {"s_mul_hi_u32", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{a * b >> 32, c}; }},
      {"s_mul_hi_i32", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{u32(s32(a) * s32(b) >> 32), c}; }},
      {"s_absdiff_i32", 32, 32, 32,
       [](u64 a, u64 b, bool) {
         u32 const d = u32(a - b);
         return nonzero(i32(d) < 0 ? 0 - d : d);
       }},
      {"s_bfm_b32", 32, 32, 32,
       [](u64 a, u64 b, bool c) { return outcome{u32(((u64(1) << a % 32) - 1) << b % 32), c}; }},
      {"s_bfm_b64", 64, 32, 32, [](u64 a, u64 b, bool c) { return outcome{((u64(1) << a % 64) - 1) << b % 64, c}; }},
      {"s_bfe_u32", 32, 32, 32, [](u64 a, u64 b, bool) { return nonzero(u32(field(a, b, 32, false))); }},
      {"s_bfe_i32", 32, 32, 32, [](u64 a, u64 b, bool) { return nonzero(u32(field(a, b, 32, true))); }},
      {"s_bfe_u64", 64, 64, 32, [](u64 a, u64 b, bool) { return nonzero(field(a, b, 64, false)); }},
      {"s_bfe_i64", 64, 64, 32, [](u64 a, u64 b, bool) { return nonzero(field(a, b, 64, true)); }},
      {"s_lshl_b32", 32, 32, 32, [](u64 a, u64 b, bool) { return nonzero(u32(a << b % 32)); }},
      {"s_lshl_b64", 64, 64, 32, [](u64 a, u64 b, bool) { return nonzero(a << b % 64); }},
      {"s_lshr_b32", 32, 32, 32, [](u64 a, u64 b, bool) { return nonzero(a >> b % 32); }},
      {"s_lshr_b64", 64, 64, 32, [](u64 a, u64 b, bool) { return nonzero(a >> b % 64); }},
      {"s_ashr_i32", 32, 32, 32, [](u64 a, u64 b, bool) { return nonzero(u32(s32(a) >> b % 32)); }},
      {"s_ashr_i64", 64, 64, 32, [](u64 a, u64 b, bool) { return nonzero(u64(i64(a) >> b % 64)); }},
      {"s_pack_ll_b32_b16", 32, 32, 32,
       [](u64 a, u64 b, bool c) { return outcome{(a & 0xffff) | (b & 0xffff) << 16, c}; }},
      {"s_pack_lh_b32_b16", 32, 32, 32,
       [](u64 a, u64 b, bool c) { return outcome{(a & 0xffff) | (b >> 16) << 16, c}; }},
      {"s_pack_hh_b32_b16", 32, 32, 32, [](u64 a, u64 b, bool c) { return outcome{a >> 16 | (b >> 16) << 16, c}; }},
  };
  for (int shift = 1; shift <= 4; ++shift)
    all.push_back({"s_lshl" + std::to_string(shift) + "_add_u32", 32, 32, 32, [shift](u64 a, u64 b, bool) {
                     u64 const r = (a << shift) + b;
                     return outcome{u32(r), r > 0xffffffff};
                   }});
  for (int bits : {32, 64}) {
    u64 const mask = bits == 64 ? ~u64(0) : 0xffffffff;
    auto const add = [&](std::string const& name, u64 (*f)(u64, u64)) {
      all.push_back({"s_" + name + "_b" + std::to_string(bits), bits, bits, bits,
                     [=](u64 a, u64 b, bool) { return nonzero(f(a, b) & mask); }});
    };
    add("and", [](u64 a, u64 b) { return a & b; });
    add("or", [](u64 a, u64 b) { return a | b; });
    add("xor", [](u64 a, u64 b) { return a ^ b; });
    add("andn2", [](u64 a, u64 b) { return a & ~b; });
    add("orn2", [](u64 a, u64 b) { return a | ~b; });
    add("nand", [](u64 a, u64 b) { return ~(a & b); });
    add("nor", [](u64 a, u64 b) { return ~(a | b); });
    add("xnor", [](u64 a, u64 b) { return ~(a ^ b); });
  }
  return all;
}

std::string reg(int first, int bits) {
  return bits == 64 ? "s[" + std::to_string(first) + ":" + std::to_string(first + 1) + "]"
                    : "s" + std::to_string(first);
}

}  // namespace

TEST_CASE("scalar instructions") {
  auto const all = cases();
  std::vector<std::string> texts;
  for (auto const& c : all)
    texts.push_back(c.mnemonic + " " + reg(10, c.result_bits) + ", " + reg(2, c.a_bits) +
                    (c.b_bits ? ", " + reg(4, c.b_bits) : ""));
  code const assembled(texts);
  std::mt19937 random(1);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (u32 seed = 0; seed < 60; ++seed) {
      auto const& c = all[i];
      test_wave w(seed);
      u64 const a = edge_value(random, 64, false) & (c.a_bits == 64 ? ~u64(0) : 0xffffffff);
      u64 const b = seed % 2 ? (random() % 80) | u64(random() % 70) << 16
                             : edge_value(random, 64, false) & (c.b_bits == 64 ? ~u64(0) : 0xffffffff);
      w.set_s64(2, a);
      w.set_s64(4, b);
      bool const scc = w->scc;
      auto const want = c.reference(a, b, scc);
      INFO(texts[i] << " of " << hex(a) << " " << hex(b) << " scc " << scc);
      REQUIRE(assembled.run(i, *w) == "");
      CHECK((c.result_bits == 64 ? w.s64(10) : w->s[10]) == want.value);
      CHECK(w->scc == want.scc);
    }
}

TEST_CASE("scalar compares") {
  struct relation {
    char const* name;
    std::function<bool(i64, i64)> f;
  };
  std::vector<relation> const relations{{"eq", std::equal_to<i64>()}, {"lg", std::not_equal_to<i64>()},
                                        {"gt", std::greater<i64>()},  {"ge", std::greater_equal<i64>()},
                                        {"lt", std::less<i64>()},     {"le", std::less_equal<i64>()}};
  std::vector<std::string> texts;
  for (auto const& r : relations)
    for (char const* type : {"i32", "u32"}) {
      texts.push_back(std::string("s_cmp_") + r.name + "_" + type + " s2, s4");
      texts.push_back(std::string("s_cmpk_") + r.name + "_" + type + " s2, " + (*type == 'i' ? "-5" : "0xfffb"));
    }
  code const c(texts);
  std::mt19937 random(2);
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (u32 seed = 0; seed < 40; ++seed) {
      test_wave w(seed);
      w->s[2] = u32(edge_value(random, 32, false));
      w->s[4] = seed % 3 ? u32(edge_value(random, 32, false)) : w->s[2];
      if (seed % 7 == 0) w->s[2] = i % 4 < 2 ? u32(-5) : 0xfffb;
      bool const is_signed = i % 4 < 2;
      u32 const right = i % 2 ? (is_signed ? u32(-5) : 0xfffb) : w->s[4];
      INFO(texts[i] << " " << hex(w->s[2]) << " " << hex(right));
      REQUIRE(c.run(i, *w) == "");
      CHECK(w->scc == relations[i / 4].f(is_signed ? i64(i32(w->s[2])) : w->s[2], is_signed ? i64(i32(right)) : right));
    }
  code const more({"s_cmp_eq_u64 s[2:3], s[4:5]", "s_cmp_lg_u64 s[2:3], s[4:5]", "s_bitcmp0_b32 s2, 5",
                   "s_bitcmp1_b32 s2, 5", "s_bitcmp1_b64 s[2:3], 37"});
  test_wave w(1);
  w.set_s64(2, u64(1) << 37 | 1 << 5);
  w.set_s64(4, u64(1) << 38 | 1 << 5);
  bool const want[] = {false, true, false, true, true};
  for (std::size_t i = 0; i < 5; ++i) {
    REQUIRE(more.run(i, *w) == "");
    CHECK(w->scc == want[i]);
  }
}

TEST_CASE("scalar instructions with immediates, conditions and M0") {
  code const c(
      {"s_movk_i32 s10, 0x8001", "s_addk_i32 s10, 0x7fff", "s_mulk_i32 s10, -3",
       "s_cmp_eq_u32 s2, s2\ns_cmov_b32 s10, s2\ns_cmovk_i32 s11, -2",
       "s_mov_b32 m0, 3\ns_movrels_b32 s10, s2\ns_movreld_b32 s12, s6",
       "s_bitset1_b32 s10, 4\ns_bitset0_b64 s[12:13], 40", "s_mov_b64 s[10:11], 0x87654321",
       "s_mov_b32 s10, src_shared_base\ns_mov_b64 s[12:13], src_shared_base\ns_mov_b64 s[14:15], src_private_base",
       "s_mov_b32 s10, 0.5\ns_mov_b64 s[12:13], -7\ns_mov_b32 s14, 0.15915494309189532"});
  test_wave w(4);
  w->s[10] = 0x7fffffff;
  REQUIRE(c.run(0, *w) == "");
  CHECK(w->s[10] == 0xffff8001);
  w->s[10] = 0x7fffffff;
  REQUIRE(c.run(1, *w) == "");
  CHECK(w->s[10] == 0x80007ffe);
  CHECK(w->scc);
  w->s[10] = 7;
  REQUIRE(c.run(2, *w) == "");
  CHECK(i32(w->s[10]) == -21);
  REQUIRE(c.run(3, *w) == "");
  CHECK(w->s[10] == w->s[2]);
  CHECK(i32(w->s[11]) == -2);
  REQUIRE(c.run(4, *w) == "");
  CHECK(w->s[10] == w->s[5]);
  CHECK(w->s[15] == w->s[6]);
  w->s[10] = 0;
  w.set_s64(12, ~u64(0));
  REQUIRE(c.run(5, *w) == "");
  CHECK(w->s[10] == 16);
  CHECK(w.s64(12) == ~(u64(1) << 40));
  REQUIRE(c.run(6, *w) == "");
  CHECK(w.s64(10) == 0x87654321);
  REQUIRE(c.run(7, *w) == "");
  CHECK(w.s64(12) == shared_aperture);
  CHECK(w.s64(14) == private_aperture);
  REQUIRE(c.run(8, *w) == "");
  CHECK(w->s[10] == 0x3f000000);
  CHECK(i64(w.s64(12)) == -7);
  CHECK(w->s[14] == 0x3e22f983);
}

TEST_CASE("EXEC masks") {
  code const c({"s_and_saveexec_b64 s[10:11], s[2:3]", "s_or_saveexec_b64 s[10:11], s[2:3]",
                "s_xor_saveexec_b64 s[10:11], s[2:3]", "s_andn2_saveexec_b64 s[10:11], s[2:3]",
                "s_orn2_saveexec_b64 s[10:11], s[2:3]", "s_nand_saveexec_b64 s[10:11], s[2:3]",
                "s_nor_saveexec_b64 s[10:11], s[2:3]", "s_xnor_saveexec_b64 s[10:11], s[2:3]",
                "s_andn1_saveexec_b64 s[10:11], s[2:3]", "s_orn1_saveexec_b64 s[10:11], s[2:3]",
                "s_andn1_wrexec_b64 s[10:11], s[2:3]", "s_andn2_wrexec_b64 s[10:11], s[2:3]"});
  for (std::size_t i = 0; i < 12; ++i) {
    test_wave w(u32(i) + 1);
    u64 const s = w.s64(2), e = w->exec();
    u64 const want[] = {s & e,    s | e,    s ^ e,  s & ~e, s | ~e, ~(s & e),
                        ~(s | e), ~(s ^ e), ~s & e, ~s | e, ~s & e, s & ~e};
    REQUIRE(c.run(i, *w) == "");
    CHECK(w->exec() == want[i]);
    CHECK(w.s64(10) == (i < 10 ? e : want[i]));
    CHECK(w->scc == (want[i] != 0));
  }
}

TEST_CASE("branches, calls and program counters") {
  code const c({R"(
      s_mov_b32 s10, 0
      s_mov_b32 s11, 5
    loop:
      s_add_u32 s10, s10, s11
      s_sub_u32 s11, s11, 1
      s_cmp_lg_u32 s11, 0
      s_cbranch_scc1 loop
      s_branch over
      s_mov_b32 s10, 99
    over:)",
                R"(
      s_getpc_b64 s[20:21]
    here:
      s_add_u32 s20, s20, target-here
      s_addc_u32 s21, s21, 0
      s_swappc_b64 s[30:31], s[20:21]
      s_add_u32 s10, s10, 1
      s_call_b64 s[30:31], target
      s_endpgm
    target:
      s_mov_b32 s10, 41
      s_setpc_b64 s[30:31])",
                "s_mov_b64 exec, 0\ns_cbranch_execz skip\ns_mov_b32 s10, 1\nskip:\ns_mov_b64 vcc, 1\ns_cbranch_vccz "
                "skip\ns_cbranch_vccnz out\ns_mov_b32 s10, 2\nout:",
                "s_mov_b64 s[20:21], 0x1234\ns_setpc_b64 s[20:21]", "s_trap 2"});
  test_wave w(1);
  REQUIRE(c.run(0, *w) == "");
  CHECK(w->s[10] == 15);
  REQUIRE(c.run(1, *w) == "");
  CHECK(w->s[10] == 41);
  w->s[10] = 7;
  REQUIRE(c.run(2, *w) == "");
  CHECK(w->s[10] == 7);
  CHECK(c.run(3, *w).find("jump to 0x1234") != std::string::npos);
  CHECK(where(*w).instruction.starts_with("s_setpc_b64"));
  CHECK(c.run(4, *w).find("s_trap 2") != std::string::npos);
}

TEST_CASE("waits, sleeps, barriers, clocks and hardware registers") {
  code const c({"s_waitcnt vmcnt(37)", "s_waitcnt lgkmcnt(0)", "s_memtime s[10:11]\ns_memrealtime s[12:13]",
                "s_getreg_b32 s10, hwreg(HW_REG_XCC_ID)",
                "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 5\ns_getreg_b32 s10, hwreg(HW_REG_MODE, 4, "
                "4)\ns_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s2\ns_getreg_b32 s11, hwreg(HW_REG_MODE, 0, 8)",
                "buffer_wbl2 sc0 sc1\nbuffer_inv sc1", "s_barrier", "s_sleep 1"});
  test_wave w(1);
  REQUIRE(c.run(0, *w) == "");
  CHECK(w.memory().last_vmcnt == 37);
  w.memory().last_vmcnt = -1;
  REQUIRE(c.run(1, *w) == "");
  CHECK(w.memory().last_vmcnt == -1);
  REQUIRE(c.run(2, *w) == "");
  CHECK(w.s64(10) == 1);
  CHECK(w.s64(12) == 2);
  w->group->xcd = 5;
  REQUIRE(c.run(3, *w) == "");
  CHECK(w->s[10] == 5);
  w->s[2] = 0xa;
  REQUIRE(c.run(4, *w) == "");
  CHECK(w->s[10] == 5);
  CHECK(w->s[11] == 0x5a);
  REQUIRE(c.run(5, *w) == "");
  CHECK(w.memory().writebacks == 1);
  CHECK(w.memory().invalidates == 1);
  REQUIRE(c.run(6, *w) == "");
  CHECK(w->state == wave_state::at_barrier);
  u32 const after = w->pc;
  CHECK(where(*w).instruction.starts_with("s_endpgm"));
  REQUIRE(c.run(7, *w) == "");
  CHECK(w->state == wave_state::sleeping);
  CHECK(w->pc > after);
}

TEST_CASE("indexed vector registers") {
  code const c({"s_mov_b32 s4, 3\ns_set_gpr_idx_on s4, gpr_idx(SRC0)\nv_mov_b32 v10, v2\ns_set_gpr_idx_idx "
                "s5\ns_set_gpr_idx_mode gpr_idx(DST)\nv_mov_b32 v10, v2\ns_set_gpr_idx_off\nv_mov_b32 v20, v2"});
  test_wave w(1);
  w.set_exec(~u64(0));
  w->s[5] = 4;
  auto const before = std::make_unique<wave>(*w);
  REQUIRE(c.run(0, *w) == "");
  for (int l = 0; l < lanes; ++l) {
    CHECK(w->v[10][l] == before->v[5][l]);
    CHECK(w->v[14][l] == before->v[2][l]);
    CHECK(w->v[20][l] == before->v[2][l]);
  }
}

TEST_CASE("scalar loads") {
  code const c({"s_load_dword s10, s[2:3], 0x8", "s_load_dwordx2 s[10:11], s[2:3], s6",
                "s_load_dwordx4 s[12:15], s[2:3], s6 offset:0x10", "s_load_dwordx8 s[16:23], s[2:3], 0x0",
                "s_load_dwordx16 s[16:31], s[2:3], -4", "s_buffer_load_dwordx4 s[12:15], s[40:43], 0x18"});
  std::vector<u32> data(64);
  for (u32 i = 0; i < 64; ++i) data[i] = 0x1000 + i;
  test_wave w(1);
  w.set_s64(2, reinterpret_cast<u64>(&data[1]));
  w->s[6] = 12;
  for (std::size_t i = 0; i < 6; ++i) {
    w.set_s64(40, reinterpret_cast<u64>(data.data()));
    w->s[42] = 32, w->s[43] = 0x20000;
    REQUIRE(c.run(i, *w) == "");
    if (i == 0) CHECK(w->s[10] == data[3]);
    if (i == 1) CHECK(w.s64(10) == (data[4] | u64(data[5]) << 32));
    for (u32 k = 0; k < 4 && i == 2; ++k) CHECK(w->s[12 + k] == data[8 + k]);
    for (u32 k = 0; k < 8 && i == 3; ++k) CHECK(w->s[16 + k] == data[1 + k]);
    for (u32 k = 0; k < 16 && i == 4; ++k) CHECK(w->s[16 + k] == data[k]);
    for (u32 k = 0; k < 4 && i == 5; ++k) CHECK(w->s[12 + k] == (k < 2 ? data[6 + k] : 0));
  }
}

TEST_CASE("scalar stores and atomics") {
  struct update {
    std::string name;
    std::function<u64(u64 m, u64 d, u64 c)> f;
    bool is_signed = false;
  };
  std::vector<update> const updates{{"swap", [](u64, u64 d, u64) { return d; }},
                                    {"cmpswap", [](u64 m, u64 d, u64 c) { return m == c ? d : m; }},
                                    {"add", [](u64 m, u64 d, u64) { return m + d; }},
                                    {"sub", [](u64 m, u64 d, u64) { return m - d; }},
                                    {"umin", [](u64 m, u64 d, u64) { return std::min(m, d); }},
                                    {"umax", [](u64 m, u64 d, u64) { return std::max(m, d); }},
                                    {"smin", [](u64 m, u64 d, u64) { return i64(m) < i64(d) ? m : d; }, true},
                                    {"smax", [](u64 m, u64 d, u64) { return i64(m) < i64(d) ? d : m; }, true},
                                    {"and", [](u64 m, u64 d, u64) { return m & d; }},
                                    {"or", [](u64 m, u64 d, u64) { return m | d; }},
                                    {"xor", [](u64 m, u64 d, u64) { return m ^ d; }},
                                    {"inc", [](u64 m, u64 d, u64) { return m >= d ? 0 : m + 1; }},
                                    {"dec", [](u64 m, u64 d, u64) { return m == 0 || m > d ? d : m - 1; }}};
  std::vector<std::string> texts;
  for (auto const& u : updates)
    for (bool const wide : {false, true})
      for (bool const glc : {false, true}) {
        bool const two = u.name == "cmpswap";
        std::string const data = wide ? two ? "s[8:11]" : "s[8:9]" : two ? "s[8:9]" : "s8";
        texts.push_back("s_atomic_" + u.name + (wide ? "_x2 " : " ") + data + ", s[2:3], s6" + (glc ? " glc" : "") +
                        "\ns_waitcnt lgkmcnt(0)");
      }
  std::size_t const stores = texts.size();
  for (auto const* text : {"s_store_dword s8, s[2:3], 0x10", "s_store_dwordx2 s[8:9], s[2:3], 0x10",
                           "s_store_dwordx4 s[8:11], s[2:3], 0x10 glc"})
    texts.push_back(text);
  code const c(texts);
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (u32 seed = 1; seed <= 4; ++seed) {
      test_wave w(seed);
      alignas(16) u64 memory[4] = {1, 2, 3, 4};
      auto const& u = updates[std::min(i / 4, updates.size() - 1)];
      bool const wide = i / 2 % 2, glc = i % 2;
      u64 const mask = wide ? ~u64(0) : 0xffffffff;
      auto const extended = [&](u64 x) { return wide ? x : u.is_signed ? u64(i64(i32(x))) : x & mask; };
      w.set_s64(2, reinterpret_cast<u64>(memory));
      w->s[6] = 16;
      if (seed == 2) w->s[8] = 3, w->s[9] = wide ? 0 : 3, w->s[10] = 3, w->s[11] = 0;  // equal: cmpswap exchanges
      auto const before = std::make_unique<wave>(*w);
      INFO(texts[i]);
      REQUIRE(c.run(i, *w) == "");
      CHECK((memory[0] == 1 && memory[1] == 2));
      if (i >= stores) {
        std::size_t const dwords = std::size_t(1) << (i - stores);
        u32 want[4] = {3, 0, 4, 0};
        std::copy_n(&before->s[8], dwords, want);
        CHECK(std::memcmp(&memory[2], want, 16) == 0);
        continue;
      }
      u64 const data = wide ? before->s[8] | u64(before->s[9]) << 32 : before->s[8],
                compare = wide ? before->s[10] | u64(before->s[11]) << 32 : before->s[9];
      CHECK((memory[2] & mask) == (u.f(extended(3), extended(data), extended(compare)) & mask));
      CHECK(w->s[8] == (glc ? 3 : before->s[8]));
      CHECK(w->s[9] == (glc && wide ? 0 : before->s[9]));
    }
}

TEST_CASE("s_setvskip turns vector instructions off and on") {
  code const c({"s_setvskip s4, 7\nv_mov_b32 v10, v2\nds_write_b32 v3, v2\ns_mov_b32 s10, 1\ns_setvskip 0, "
                "0\nv_mov_b32 v11, v2"});
  for (bool const on : {false, true}) {
    test_wave w(1);
    w.set_exec(~u64(0));
    w->s[4] = on ? 0x80 : ~u32(0x80);
    for (int l = 0; l < lanes; ++l) w->v[3][l] = 4 * u32(l);
    auto const before = std::make_unique<wave>(*w);
    auto const lds = w.lds();
    REQUIRE(c.run(0, *w) == "");
    CHECK(w->s[10] == 1);
    CHECK((std::memcmp(w->v[10], before->v[2], sizeof w->v[10]) == 0) != on);
    CHECK((w.lds() == lds) == on);
    CHECK(std::memcmp(w->v[11], before->v[2], sizeof w->v[11]) == 0);
  }
}
