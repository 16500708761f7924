// Packed, mixed-precision and dot instructions (VOP3P): CDNA3 ISA, "Packed math".
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

/// A 16-bit inline constant: floats stand in the low half alone, integers are sign-extended over both.
u32 packed_constant(operand const& p) {
  u32 const extended = u32(i32(i16(p.half)));
  return p.word == extended ? extended : p.half;
}

/// A register of two halves, with op_sel and neg applied: low() is what the low result uses.
class half_pairs {
 public:
  half_pairs(wave& w, op const& o, int source_index, bool negatable) {
    operand const& p = o.arg[1 + source_index];
    if (p.kind == source::vgpr) {
      from_ = w.v[p.reg];
    } else {
      u32 const x = p.kind == source::constant ? packed_constant(p) : read_scalar32(w, p);
      for (int l = 0; l < lanes; ++l) buffer_[l] = x;
      from_ = buffer_.lane;
    }
    low_shift_ = o.op_sel >> source_index & 1 ? 16 : 0;
    high_shift_ = o.op_sel_hi >> source_index & 1 ? 16 : 0;
    if (!negatable) return;
    low_sign_ = o.neg_lo >> source_index & 1 ? 0x8000 : 0;
    high_sign_ = o.neg_hi >> source_index & 1 ? 0x8000 : 0;
  }
  template <class T>
  T low(int l) const {
    return as<T>(u16(from_[l] >> low_shift_ ^ low_sign_));
  }
  template <class T>
  T high(int l) const {
    return as<T>(u16(from_[l] >> high_shift_ ^ high_sign_));
  }

 private:
  u32 const* from_;
  row buffer_;
  int low_shift_, high_shift_;
  u32 low_sign_ = 0, high_sign_ = 0;
};

template <class T, class R>
u16 half_result(op const& o, R x) {
  if constexpr (is_float<T>) return as<u16>(o.clamp ? finished(o, T(x)) : T(x));
  else return u16(o.clamp ? R(std::clamp<i64>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max())) : x);
}

/// F over the low and the high halves; integer F returns the wide result, for the clamp.
template <class T, auto F, int Sources>
void on_halves(wave& w, op const& o) {
  half_pairs const a(w, o, 0, is_float<T>), b(w, o, 1, is_float<T>), c(w, o, Sources - 1, is_float<T>);
  row r;
  for (int l = 0; l < lanes; ++l) {
    if constexpr (Sources == 3)
      r[l] = packed(half_result<T>(o, F(a.low<T>(l), b.low<T>(l), c.low<T>(l))),
                    half_result<T>(o, F(a.high<T>(l), b.high<T>(l), c.high<T>(l))));
    else
      r[l] = packed(half_result<T>(o, F(a.low<T>(l), b.low<T>(l))), half_result<T>(o, F(a.high<T>(l), b.high<T>(l))));
  }
  write_row(w.v[o.arg[0].reg], r.lane, w.exec());
}
template <class T, auto F>
inline constexpr semantics halves2 = {.run = on_halves<T, F, 2>,
                                      .math = is_float<T> ? arithmetic::f16_f64 : arithmetic::none};
template <class T, auto F>
inline constexpr semantics halves3 = {.run = on_halves<T, F, 3>,
                                      .math = is_float<T> ? arithmetic::f16_f64 : arithmetic::none};

// ----------------------------------------------------------------------------------------------------- pairs of dwords

/// Source `index` of the low (half 0) or high result: op_sel picks the register of the pair.
u32 const* dword_of(wave const& w, op const& o, int index, u32 selection, row& buffer) {
  operand const& p = o.arg[1 + index];
  u32 const which = selection >> index & 1;
  if (p.kind == source::vgpr) return w.v[p.reg + which];
  u32 const x = p.kind == source::sgpr ? w.s[p.reg + which] : read_scalar32(w, p);
  for (int l = 0; l < lanes; ++l) buffer[l] = x;
  return buffer.lane;
}

template <auto F, int Sources>
void on_dwords(wave& w, op const& o) {
  row result[2], buffer[3];
  for (int half = 0; half < 2; ++half) {
    u32 const selection = half ? o.op_sel_hi : o.op_sel, negated = half ? o.neg_hi : o.neg_lo;
    u32 const* from[3] = {};
    u32 sign[3] = {};
    for (int i = 0; i < Sources; ++i) {
      from[i] = dword_of(w, o, i, selection, buffer[i]);
      sign[i] = negated >> i & 1 ? 0x80000000 : 0;
    }
    auto const get = [&](int i, int l) { return as<float>(from[i][l] ^ sign[i]); };
    for (int l = 0; l < lanes; ++l) {
      float x;
      if constexpr (Sources == 3) x = F(get(0, l), get(1, l), get(2, l));
      else x = F(get(0, l), get(1, l));
      result[half][l] = as<u32>(x);
    }
    if (o.clamp)
      for (int l = 0; l < lanes; ++l) result[half][l] = as<u32>(finished(o, as<float>(result[half][l])));
  }
  for (int half = 0; half < 2; ++half) write_row(w.v[o.arg[0].reg + half], result[half].lane, w.exec());
}
template <auto F, int Sources>
inline constexpr semantics dwords = {.run = on_dwords<F, Sources>, .math = arithmetic::f32};

/// The low result from source 0, the high one from source 1, each half of its pair by op_sel.
void move_pair(wave& w, op const& o) {
  row buffer[2];
  u32 const* const low = dword_of(w, o, 0, o.op_sel, buffer[0]);
  u32 const* const high = dword_of(w, o, 1, o.op_sel, buffer[1]);
  row const a = *reinterpret_cast<row const*>(low), b = *reinterpret_cast<row const*>(high);
  write_row(w.v[o.arg[0].reg], a.lane, w.exec());
  write_row(w.v[o.arg[0].reg + 1], b.lane, w.exec());
}

// ----------------------------------------------------------------------------------------------------- mixed precision

/// Source `index` of v_fma_mix: a float, or the half that op_sel picks if op_sel_hi says so. neg_lo negates, neg_hi is
/// abs.
void mixed_source(wave& w, op const& o, int index, float* to) {
  operand const& p = o.arg[1 + index];
  bool const is_half = o.op_sel_hi >> index & 1, upper = o.op_sel >> index & 1;
  bool const negate = o.neg_lo >> index & 1, absolute = o.neg_hi >> index & 1;
  u32 const fixed = p.kind == source::constant ? (is_half ? packed_constant(p) : p.word)
                    : p.kind == source::vgpr   ? 0
                                               : read_scalar32(w, p);
  for (int l = 0; l < lanes; ++l) {
    u32 const x = p.kind == source::vgpr ? w.v[p.reg][l] : fixed;
    float f = is_half ? float(as<f16>(u16(upper ? x >> 16 : x))) : as<float>(x);
    if (absolute) f = std::fabs(f);
    to[l] = negate ? -f : f;
  }
}

enum class mixed_result { f32, low, high };

template <mixed_result Where>
void mixed_fma(wave& w, op const& o) {
  alignas(64) float a[lanes], b[lanes], c[lanes];
  mixed_source(w, o, 0, a);
  mixed_source(w, o, 1, b);
  mixed_source(w, o, 2, c);
  u32* const to = w.v[o.arg[0].reg];
  row r;
  for (int l = 0; l < lanes; ++l) {
    float const x = finished(o, std::fma(a[l], b[l], c[l]));
    if constexpr (Where == mixed_result::f32) r[l] = as<u32>(x);
    else if constexpr (Where == mixed_result::low) r[l] = (to[l] & 0xffff0000) | as<u16>(f16(x));
    else r[l] = (to[l] & 0xffff) | u32(as<u16>(f16(x))) << 16;
  }
  write_row(to, r.lane, w.exec());
}

// -------------------------------------------------------------------------------------------------------- dot products

template <int Bits, bool Signed>
i64 element(u32 x, int i) {
  u32 const field = x >> Bits * i & ((1u << Bits) - 1);
  return Signed ? i64(i32(field << (32 - Bits)) >> (32 - Bits)) : i64(field);
}
template <int Bits, bool Signed>
i64 dot(u32 a, u32 b, i64 c) {
  for (int i = 0; i < 32 / Bits; ++i) c += element<Bits, Signed>(a, i) * element<Bits, Signed>(b, i);
  return c;
}
float half_dot(u32 a, u32 b, float c) {
  auto const half = [](u32 x, int i) { return float(as<f16>(u16(x >> 16 * i))); };
  return std::fma(half(a, 1), half(b, 1), std::fma(half(a, 0), half(b, 0), c));
}

template <int Bits, class T>
void integer_dot(wave& w, op const& o) {
  reader<u32> const a(w, o, o.arg[1]), b(w, o, o.arg[2]);
  reader<T> const c(w, o, o.arg[3]);
  write_lanes<T>(w, o, o.arg[0], [&](int l) {
    i64 const x = dot<Bits, std::is_signed_v<T>>(a[l], b[l], c[l]);
    return T(o.clamp ? std::clamp<i64>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()) : x);
  });
}

void float_dot(wave& w, op const& o) {
  half_pairs const a(w, o, 0, true), b(w, o, 1, true);
  reader<float> const c(w, o, o.arg[3]);
  u32 const sign = o.neg_lo & 4 ? 0x80000000 : 0;
  write_lanes<float>(w, o, o.arg[0], [&](int l) {
    return half_dot(packed(a.low<u16>(l), a.high<u16>(l)), packed(b.low<u16>(l), b.high<u16>(l)),
                    as<float>(as<u32>(c[l]) ^ sign));
  });
}

u32 packed_fma(u32 a, u32 b, u32 c) {
  auto const half = [](u32 x, int i) { return double(as<f16>(u16(x >> 16 * i))); };
  return packed(as<u16>(f16(std::fma(half(a, 0), half(b, 0), half(c, 0)))),
                as<u16>(f16(std::fma(half(a, 1), half(b, 1), half(c, 1)))));
}

}  // namespace

void add_packed(registry& r) {
  r.add({
      {"v_pk_add_f16", halves2<f16, [](f16 a, f16 b) { return f16(a + b); }>},
      {"v_pk_mul_f16", halves2<f16, [](f16 a, f16 b) { return f16(a * b); }>},
      {"v_pk_min_f16", halves2<f16, [](f16 a, f16 b) { return f16(lesser(float(a), float(b))); }>},
      {"v_pk_max_f16", halves2<f16, [](f16 a, f16 b) { return f16(greater(float(a), float(b))); }>},
      {"v_pk_fma_f16",
       halves3<f16, [](f16 a, f16 b, f16 c) { return f16(std::fma(double(a), double(b), double(c))); }>},
      {"v_pk_fmac_f16", accumulate<[](u32 a, u32 b, u32 c) { return packed_fma(a, b, c); }>},
      {"v_pk_add_i16", halves2<i16, [](i16 a, i16 b) { return a + b; }>},
      {"v_pk_sub_i16", halves2<i16, [](i16 a, i16 b) { return a - b; }>},
      {"v_pk_add_u16", halves2<u16, [](u16 a, u16 b) { return a + b; }>},
      {"v_pk_sub_u16", halves2<u16, [](u16 a, u16 b) { return a - b; }>},
      {"v_pk_mul_lo_u16", halves2<u16, [](u16 a, u16 b) { return u16(u32(a) * b); }>},
      {"v_pk_mad_i16", halves3<i16, [](i16 a, i16 b, i16 c) { return i64(a) * b + c; }>},
      {"v_pk_mad_u16", halves3<u16, [](u16 a, u16 b, u16 c) { return i64(a) * b + c; }>},
      {"v_pk_lshlrev_b16", halves2<u16, [](u16 a, u16 b) { return u16(b << (a & 15)); }>},
      {"v_pk_lshrrev_b16", halves2<u16, [](u16 a, u16 b) { return u16(b >> (a & 15)); }>},
      {"v_pk_ashrrev_i16", halves2<i16, [](i16 a, i16 b) { return i16(b >> (a & 15)); }>},
      {"v_pk_min_i16", halves2<i16, [](i16 a, i16 b) { return std::min(a, b); }>},
      {"v_pk_max_i16", halves2<i16, [](i16 a, i16 b) { return std::max(a, b); }>},
      {"v_pk_min_u16", halves2<u16, [](u16 a, u16 b) { return std::min(a, b); }>},
      {"v_pk_max_u16", halves2<u16, [](u16 a, u16 b) { return std::max(a, b); }>},
      {"v_pk_add_f32", dwords<[](float a, float b) { return a + b; }, 2>},
      {"v_pk_mul_f32", dwords<[](float a, float b) { return a * b; }, 2>},
      {"v_pk_fma_f32", dwords<[](float a, float b, float c) { return std::fma(a, b, c); }, 3>},
      {"v_pk_mov_b32", {.run = move_pair}},
      {"v_fma_mix_f32", {.run = mixed_fma<mixed_result::f32>, .math = arithmetic::f32}},
      {"v_fma_mixlo_f16", {.run = mixed_fma<mixed_result::low>, .math = arithmetic::f32}},
      {"v_fma_mixhi_f16", {.run = mixed_fma<mixed_result::high>, .math = arithmetic::f32}},
      {"v_dot2_f32_f16", {.run = float_dot, .math = arithmetic::f32}},
      {"v_dot2_i32_i16", {.run = integer_dot<16, i32>}},
      {"v_dot2_u32_u16", {.run = integer_dot<16, u32>}},
      {"v_dot4_i32_i8", {.run = integer_dot<8, i32>}},
      {"v_dot4_u32_u8", {.run = integer_dot<8, u32>}},
      {"v_dot8_i32_i4", {.run = integer_dot<4, i32>}},
      {"v_dot8_u32_u4", {.run = integer_dot<4, u32>}},
      {"v_dot2c_f32_f16", accumulate<[](u32 a, u32 b, float c) { return half_dot(a, b, c); }>},
      {"v_dot2c_i32_i16", accumulate<[](u32 a, u32 b, i32 c) { return i32(dot<16, true>(a, b, c)); }>},
      {"v_dot4c_i32_i8", accumulate<[](u32 a, u32 b, i32 c) { return i32(dot<8, true>(a, b, c)); }>},
      {"v_dot8c_i32_i4", accumulate<[](u32 a, u32 b, i32 c) { return i32(dot<4, true>(a, b, c)); }>},
  });
}

}  // namespace fusewire::sim
