// SOP1, SOP2, SOPC, SOPK: CDNA3 ISA, chapter 5 "Scalar ALU operations".
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

enum class scc_rule { kept, nonzero };

template <class F>
struct scalar_call;
template <class C, class R, class... A>
struct scalar_call<R (C::*)(A...) const> {
  template <auto F, scc_rule Rule, std::size_t... I>
  static void run(wave& w, op const& o, std::index_sequence<I...>) {
    R const r = F(read_scalar<A>(w, o.arg[1 + I])...);
    write_scalar<R>(w, o.arg[0], r);
    if constexpr (Rule == scc_rule::nonzero) w.scc = r != 0;
  }
  template <auto F, scc_rule Rule>
  static void run(wave& w, op const& o) {
    run<F, Rule>(w, o, std::index_sequence_for<A...>{});
  }
};
/// F also reads or writes SCC.
template <class C, class R, class... A>
struct scalar_call<R (C::*)(bool&, A...) const> {
  template <auto F, std::size_t... I>
  static void run(wave& w, op const& o, std::index_sequence<I...>) {
    write_scalar<R>(w, o.arg[0], F(w.scc, read_scalar<A>(w, o.arg[1 + I])...));
  }
  template <auto F, scc_rule>
  static void run(wave& w, op const& o) {
    run<F>(w, o, std::index_sequence_for<A...>{});
  }
};

template <auto F, scc_rule Rule = scc_rule::kept>
inline constexpr semantics scalar = {.run = scalar_call<decltype(&decltype(F)::operator())>::template run<F, Rule>};
/// SCC = result is not 0.
template <auto F>
inline constexpr semantics scalar_nz = scalar<F, scc_rule::nonzero>;

template <class T, auto F>
inline constexpr semantics scalar_compare = {
    .run = [](wave& w, op const& o) { w.scc = F(read_scalar<T>(w, o.arg[0]), read_scalar<T>(w, o.arg[1])); }};

/// SOPK: F(register, simm16).
template <auto F>
inline constexpr semantics compare_immediate = {
    .run = [](wave& w, op const& o) { w.scc = F(w.s[o.arg[0].reg], o.imm); }};

/// D = EXEC, EXEC = F(source, EXEC).
template <auto F>
inline constexpr semantics saveexec = {.run = [](wave& w, op const& o) {
  u64 const from = read_scalar64(w, o.arg[1]), exec = w.exec(), result = F(from, exec);
  write_scalar64(w, o.arg[0], exec);
  set_exec(w, result);
  w.scc = result != 0;
}};
/// EXEC = F(source, EXEC), and D becomes that too.
template <auto F>
inline constexpr semantics wrexec = {.run = [](wave& w, op const& o) {
  u64 const result = F(read_scalar64(w, o.arg[1]), w.exec());
  write_scalar64(w, o.arg[0], result);
  set_exec(w, result);
  w.scc = result != 0;
}};

template <class T>
T quad_mask(T x) {
  T r = 0;
  for (unsigned i = 0; i < 8 * sizeof(T) / 4; ++i)
    if (x >> 4 * i & 15) r |= T(1) << i;
  return r;
}
template <class T>
T whole_quads(T x) {
  T r = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); i += 4)
    if (x >> i & 15) r |= T(15) << i;
  return r;
}
u64 replicated_bits(u32 x) {
  u64 r = 0;
  for (int i = 0; i < 32; ++i) r |= u64(x >> i & 1) * 3 << 2 * i;
  return r;
}
u64 reversed64(u64 x) { return u64(reversed(u32(x))) << 32 | reversed(u32(x >> 32)); }

/// Leading bits equal to the sign.
template <class T>
u32 sign_run(T x) {
  using U = std::make_unsigned_t<T>;
  if (x == 0 || x == -1) return ~u32(0);
  return u32(std::countl_zero(U(x < 0 ? ~x : x)));
}

constexpr auto add_scaled = [](bool& scc, u32 a, u32 b, int shift) {
  u64 const r = (u64(a) << shift) + b;
  scc = r >> 32 != 0;
  return u32(r);
};

template <class T>
T extracted(T x, u32 field) {
  constexpr u32 size = 8 * sizeof(T);
  u32 const offset = field & (size - 1), width = std::min(field >> 16 & 127, size);
  using U = std::make_unsigned_t<T>;
  if (width == 0) return 0;
  T const shifted = x >> offset;
  if constexpr (std::is_signed_v<T>) return T(U(shifted) << (size - width)) >> (size - width);
  return T(U(shifted) & (~U(0) >> (size - width)));
}

void add_moves(registry& r) {
  r.add({
      {"s_mov_b32", scalar<[](u32 a) { return a; }>},
      {"s_mov_b64", scalar<[](u64 a) { return a; }>},
      {"s_movk_i32", {.run = [](wave& w, op const& o) { w.s[o.arg[0].reg] = u32(o.imm); }}},
      {"s_cmov_b32",
       {.run =
            [](wave& w, op const& o) {
              if (w.scc) write_scalar(w, o.arg[0], read_scalar32(w, o.arg[1]));
            }}},
      {"s_cmov_b64",
       {.run =
            [](wave& w, op const& o) {
              if (w.scc) write_scalar64(w, o.arg[0], read_scalar64(w, o.arg[1]));
            }}},
      {"s_cmovk_i32",
       {.run =
            [](wave& w, op const& o) {
              if (w.scc) w.s[o.arg[0].reg] = u32(o.imm);
            }}},
      {"s_cselect_b32", scalar<[](bool& scc, u32 a, u32 b) { return scc ? a : b; }>},
      {"s_cselect_b64", scalar<[](bool& scc, u64 a, u64 b) { return scc ? a : b; }>},
      // relative to M0
      {"s_movrels_b32",
       {.run = [](wave& w, op const& o) { w.s[o.arg[0].reg] = w.s[(o.arg[1].reg + w.s[124]) & 127]; }}},
      {"s_movrels_b64",
       {.run =
            [](wave& w, op const& o) {
              u32 const from = (o.arg[1].reg + w.s[124]) & 126;
              write_scalar64(w, o.arg[0], w.s[from] | u64(w.s[from + 1]) << 32);
            }}},
      {"s_movreld_b32",
       {.run = [](wave& w, op const& o) { w.s[(o.arg[0].reg + w.s[124]) & 127] = read_scalar32(w, o.arg[1]); }}},
      {"s_movreld_b64",
       {.run =
            [](wave& w, op const& o) {
              u32 const to = (o.arg[0].reg + w.s[124]) & 126;
              u64 const x = read_scalar64(w, o.arg[1]);
              w.s[to] = u32(x), w.s[to + 1] = u32(x >> 32);
            }}},
  });
}

void add_bits(registry& r) {
  r.add({
      {"s_not_b32", scalar_nz<[](u32 a) { return ~a; }>},
      {"s_not_b64", scalar_nz<[](u64 a) { return ~a; }>},
      {"s_wqm_b32", scalar_nz<[](u32 a) { return whole_quads(a); }>},
      {"s_wqm_b64", scalar_nz<[](u64 a) { return whole_quads(a); }>},
      {"s_quadmask_b32", scalar_nz<[](u32 a) { return quad_mask(a); }>},
      {"s_quadmask_b64", scalar_nz<[](u64 a) { return quad_mask(a); }>},
      {"s_brev_b32", scalar<[](u32 a) { return reversed(a); }>},
      {"s_brev_b64", scalar<[](u64 a) { return reversed64(a); }>},
      {"s_bcnt0_i32_b32", scalar_nz<[](u32 a) { return u32(std::popcount(~a)); }>},
      {"s_bcnt0_i32_b64", scalar_nz<[](u64 a) { return u32(std::popcount(~a)); }>},
      {"s_bcnt1_i32_b32", scalar_nz<[](u32 a) { return u32(std::popcount(a)); }>},
      {"s_bcnt1_i32_b64", scalar_nz<[](u64 a) { return u32(std::popcount(a)); }>},
      {"s_ff0_i32_b32", scalar<[](u32 a) { return ~a ? u32(std::countr_one(a)) : ~u32(0); }>},
      {"s_ff0_i32_b64", scalar<[](u64 a) { return ~a ? u32(std::countr_one(a)) : ~u32(0); }>},
      {"s_ff1_i32_b32", scalar<[](u32 a) { return a ? u32(std::countr_zero(a)) : ~u32(0); }>},
      {"s_ff1_i32_b64", scalar<[](u64 a) { return a ? u32(std::countr_zero(a)) : ~u32(0); }>},
      {"s_flbit_i32_b32", scalar<[](u32 a) { return a ? u32(std::countl_zero(a)) : ~u32(0); }>},
      {"s_flbit_i32_b64", scalar<[](u64 a) { return a ? u32(std::countl_zero(a)) : ~u32(0); }>},
      {"s_flbit_i32", scalar<[](i32 a) { return sign_run(a); }>},
      {"s_flbit_i32_i64", scalar<[](i64 a) { return sign_run(a); }>},
      {"s_sext_i32_i8", scalar<[](u32 a) { return i32(i8(a)); }>},
      {"s_sext_i32_i16", scalar<[](u32 a) { return i32(i16(a)); }>},
      {"s_bitreplicate_b64_b32", scalar<[](u32 a) { return replicated_bits(a); }>},
      {"s_bitset0_b32",
       {.run = [](wave& w, op const& o) { w.s[o.arg[0].reg] &= ~(1u << (read_scalar32(w, o.arg[1]) & 31)); }}},
      {"s_bitset1_b32",
       {.run = [](wave& w, op const& o) { w.s[o.arg[0].reg] |= 1u << (read_scalar32(w, o.arg[1]) & 31); }}},
      {"s_bitset0_b64",
       {.run =
            [](wave& w, op const& o) {
              write_scalar64(w, o.arg[0], read_scalar64(w, o.arg[0]) & ~(u64(1) << (read_scalar32(w, o.arg[1]) & 63)));
            }}},
      {"s_bitset1_b64",
       {.run =
            [](wave& w, op const& o) {
              write_scalar64(w, o.arg[0], read_scalar64(w, o.arg[0]) | u64(1) << (read_scalar32(w, o.arg[1]) & 63));
            }}},
      {"s_and_b32", scalar_nz<[](u32 a, u32 b) { return a & b; }>},
      {"s_and_b64", scalar_nz<[](u64 a, u64 b) { return a & b; }>},
      {"s_or_b32", scalar_nz<[](u32 a, u32 b) { return a | b; }>},
      {"s_or_b64", scalar_nz<[](u64 a, u64 b) { return a | b; }>},
      {"s_xor_b32", scalar_nz<[](u32 a, u32 b) { return a ^ b; }>},
      {"s_xor_b64", scalar_nz<[](u64 a, u64 b) { return a ^ b; }>},
      {"s_andn2_b32", scalar_nz<[](u32 a, u32 b) { return a & ~b; }>},
      {"s_andn2_b64", scalar_nz<[](u64 a, u64 b) { return a & ~b; }>},
      {"s_orn2_b32", scalar_nz<[](u32 a, u32 b) { return a | ~b; }>},
      {"s_orn2_b64", scalar_nz<[](u64 a, u64 b) { return a | ~b; }>},
      {"s_nand_b32", scalar_nz<[](u32 a, u32 b) { return ~(a & b); }>},
      {"s_nand_b64", scalar_nz<[](u64 a, u64 b) { return ~(a & b); }>},
      {"s_nor_b32", scalar_nz<[](u32 a, u32 b) { return ~(a | b); }>},
      {"s_nor_b64", scalar_nz<[](u64 a, u64 b) { return ~(a | b); }>},
      {"s_xnor_b32", scalar_nz<[](u32 a, u32 b) { return ~(a ^ b); }>},
      {"s_xnor_b64", scalar_nz<[](u64 a, u64 b) { return ~(a ^ b); }>},
      {"s_lshl_b32", scalar_nz<[](u32 a, u32 b) { return a << (b & 31); }>},
      {"s_lshl_b64", scalar_nz<[](u64 a, u32 b) { return a << (b & 63); }>},
      {"s_lshr_b32", scalar_nz<[](u32 a, u32 b) { return a >> (b & 31); }>},
      {"s_lshr_b64", scalar_nz<[](u64 a, u32 b) { return a >> (b & 63); }>},
      {"s_ashr_i32", scalar_nz<[](i32 a, u32 b) { return a >> (b & 31); }>},
      {"s_ashr_i64", scalar_nz<[](i64 a, u32 b) { return a >> (b & 63); }>},
      {"s_bfm_b32", scalar<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>},
      {"s_bfm_b64", scalar<[](u32 a, u32 b) { return ((u64(1) << (a & 63)) - 1) << (b & 63); }>},
      {"s_bfe_u32", scalar_nz<[](u32 a, u32 b) { return extracted(a, b); }>},
      {"s_bfe_i32", scalar_nz<[](i32 a, u32 b) { return extracted(a, b); }>},
      {"s_bfe_u64", scalar_nz<[](u64 a, u32 b) { return extracted(a, b); }>},
      {"s_bfe_i64", scalar_nz<[](i64 a, u32 b) { return extracted(a, b); }>},
      {"s_pack_ll_b32_b16", scalar<[](u32 a, u32 b) { return (a & 0xffff) | b << 16; }>},
      {"s_pack_lh_b32_b16", scalar<[](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }>},
      {"s_pack_hh_b32_b16", scalar<[](u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); }>},
  });
}

void add_arithmetic(registry& r) {
  r.add({
      {"s_add_u32", scalar<[](bool& scc, u32 a, u32 b) {
         u32 r;
         scc = __builtin_add_overflow(a, b, &r);
         return r;
       }>},
      {"s_sub_u32", scalar<[](bool& scc, u32 a, u32 b) {
         u32 r;
         scc = __builtin_sub_overflow(a, b, &r);
         return r;
       }>},
      {"s_add_i32", scalar<[](bool& scc, i32 a, i32 b) {
         i32 r;
         scc = __builtin_add_overflow(a, b, &r);
         return r;
       }>},
      {"s_sub_i32", scalar<[](bool& scc, i32 a, i32 b) {
         i32 r;
         scc = __builtin_sub_overflow(a, b, &r);
         return r;
       }>},
      {"s_addc_u32", scalar<[](bool& scc, u32 a, u32 b) {
         u64 const r = u64(a) + b + scc;
         scc = r >> 32;
         return u32(r);
       }>},
      {"s_subb_u32", scalar<[](bool& scc, u32 a, u32 b) {
         u64 const r = u64(a) - b - scc;
         scc = r >> 32 & 1;
         return u32(r);
       }>},
      {"s_min_i32", scalar<[](bool& scc, i32 a, i32 b) {
         scc = a < b;
         return std::min(a, b);
       }>},
      {"s_min_u32", scalar<[](bool& scc, u32 a, u32 b) {
         scc = a < b;
         return std::min(a, b);
       }>},
      {"s_max_i32", scalar<[](bool& scc, i32 a, i32 b) {
         scc = a > b;
         return std::max(a, b);
       }>},
      {"s_max_u32", scalar<[](bool& scc, u32 a, u32 b) {
         scc = a > b;
         return std::max(a, b);
       }>},
      {"s_mul_i32", scalar<[](u32 a, u32 b) { return a * b; }>},
      {"s_mul_hi_u32", scalar<[](u32 a, u32 b) { return u32(u64(a) * b >> 32); }>},
      {"s_mul_hi_i32", scalar<[](i32 a, i32 b) { return u32(u64(i64(a) * b) >> 32); }>},
      {"s_abs_i32", scalar_nz<[](i32 a) { return a < 0 ? 0 - u32(a) : u32(a); }>},
      {"s_absdiff_i32", scalar_nz<[](i32 a, i32 b) {
         u32 const d = u32(a) - u32(b);
         return i32(d) < 0 ? 0 - d : d;
       }>},
      {"s_lshl1_add_u32", scalar<[](bool& scc, u32 a, u32 b) { return add_scaled(scc, a, b, 1); }>},
      {"s_lshl2_add_u32", scalar<[](bool& scc, u32 a, u32 b) { return add_scaled(scc, a, b, 2); }>},
      {"s_lshl3_add_u32", scalar<[](bool& scc, u32 a, u32 b) { return add_scaled(scc, a, b, 3); }>},
      {"s_lshl4_add_u32", scalar<[](bool& scc, u32 a, u32 b) { return add_scaled(scc, a, b, 4); }>},
      {"s_addk_i32",
       {.run =
            [](wave& w, op const& o) {
              i32 sum;
              w.scc = __builtin_add_overflow(i32(w.s[o.arg[0].reg]), o.imm, &sum);
              w.s[o.arg[0].reg] = u32(sum);
            }}},
      {"s_mulk_i32", {.run = [](wave& w, op const& o) { w.s[o.arg[0].reg] *= u32(o.imm); }}},
  });
}

template <class T>
void add_compares(registry& r, std::string const& type) {
  r.add("s_cmp_eq_" + type, scalar_compare<T, [](T a, T b) { return a == b; }>);
  r.add("s_cmp_lg_" + type, scalar_compare<T, [](T a, T b) { return a != b; }>);
  r.add("s_cmp_gt_" + type, scalar_compare<T, [](T a, T b) { return a > b; }>);
  r.add("s_cmp_ge_" + type, scalar_compare<T, [](T a, T b) { return a >= b; }>);
  r.add("s_cmp_lt_" + type, scalar_compare<T, [](T a, T b) { return a < b; }>);
  r.add("s_cmp_le_" + type, scalar_compare<T, [](T a, T b) { return a <= b; }>);
}
template <class T, class Immediate>
void add_immediate_compares(registry& r, std::string const& type) {
  r.add("s_cmpk_eq_" + type, compare_immediate<[](u32 a, i32 b) { return T(a) == T(Immediate(b)); }>);
  r.add("s_cmpk_lg_" + type, compare_immediate<[](u32 a, i32 b) { return T(a) != T(Immediate(b)); }>);
  r.add("s_cmpk_gt_" + type, compare_immediate<[](u32 a, i32 b) { return T(a) > T(Immediate(b)); }>);
  r.add("s_cmpk_ge_" + type, compare_immediate<[](u32 a, i32 b) { return T(a) >= T(Immediate(b)); }>);
  r.add("s_cmpk_lt_" + type, compare_immediate<[](u32 a, i32 b) { return T(a) < T(Immediate(b)); }>);
  r.add("s_cmpk_le_" + type, compare_immediate<[](u32 a, i32 b) { return T(a) <= T(Immediate(b)); }>);
}

void add_exec_masks(registry& r) {
  r.add({
      {"s_and_saveexec_b64", saveexec<[](u64 s, u64 e) { return s & e; }>},
      {"s_or_saveexec_b64", saveexec<[](u64 s, u64 e) { return s | e; }>},
      {"s_xor_saveexec_b64", saveexec<[](u64 s, u64 e) { return s ^ e; }>},
      {"s_andn2_saveexec_b64", saveexec<[](u64 s, u64 e) { return s & ~e; }>},
      {"s_orn2_saveexec_b64", saveexec<[](u64 s, u64 e) { return s | ~e; }>},
      {"s_nand_saveexec_b64", saveexec<[](u64 s, u64 e) { return ~(s & e); }>},
      {"s_nor_saveexec_b64", saveexec<[](u64 s, u64 e) { return ~(s | e); }>},
      {"s_xnor_saveexec_b64", saveexec<[](u64 s, u64 e) { return ~(s ^ e); }>},
      {"s_andn1_saveexec_b64", saveexec<[](u64 s, u64 e) { return ~s & e; }>},
      {"s_orn1_saveexec_b64", saveexec<[](u64 s, u64 e) { return ~s | e; }>},
      {"s_andn1_wrexec_b64", wrexec<[](u64 s, u64 e) { return ~s & e; }>},
      {"s_andn2_wrexec_b64", wrexec<[](u64 s, u64 e) { return s & ~e; }>},
  });
}

}  // namespace

void add_scalar(registry& r) {
  add_moves(r);
  add_bits(r);
  add_arithmetic(r);
  add_exec_masks(r);
  add_compares<i32>(r, "i32");
  add_compares<u32>(r, "u32");
  r.add("s_cmp_eq_u64", scalar_compare<u64, [](u64 a, u64 b) { return a == b; }>);
  r.add("s_cmp_lg_u64", scalar_compare<u64, [](u64 a, u64 b) { return a != b; }>);
  add_immediate_compares<i32, i16>(r, "i32");
  add_immediate_compares<u32, u16>(r, "u32");
  r.add({
      {"s_bitcmp0_b32",
       {.run = [](wave& w,
                  op const& o) { w.scc = !(read_scalar32(w, o.arg[0]) >> (read_scalar32(w, o.arg[1]) & 31) & 1); }}},
      {"s_bitcmp1_b32",
       {.run = [](wave& w,
                  op const& o) { w.scc = read_scalar32(w, o.arg[0]) >> (read_scalar32(w, o.arg[1]) & 31) & 1; }}},
      {"s_bitcmp0_b64",
       {.run = [](wave& w,
                  op const& o) { w.scc = !(read_scalar64(w, o.arg[0]) >> (read_scalar32(w, o.arg[1]) & 63) & 1); }}},
      {"s_bitcmp1_b64",
       {.run = [](wave& w,
                  op const& o) { w.scc = read_scalar64(w, o.arg[0]) >> (read_scalar32(w, o.arg[1]) & 63) & 1; }}},
  });
}

}  // namespace fusewire::sim
