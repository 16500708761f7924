// Conversions of the vector ALU: CDNA3 ISA, chapter 6.
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

/// Toward zero; an overflow gives the largest finite number.
u16 half_toward_zero(float x) {
  f16 const h = f16(x);
  u16 const bits = as<u16>(h);
  if (std::isinf(float(h)) && !std::isinf(x)) return u16((bits & 0x8000) | 0x7bff);
  return std::isfinite(x) && std::fabs(float(h)) > std::fabs(x) ? u16(bits - 1) : bits;
}

i16 signed_norm(float x) { return x != x ? i16(0) : i16(std::nearbyint(std::clamp(x, -1.0f, 1.0f) * 32767.0f)); }
u16 unsigned_norm(float x) { return x != x ? u16(0) : u16(std::nearbyint(std::clamp(x, 0.0f, 1.0f) * 65535.0f)); }

/// v_cvt_pk_u8_f32: byte `index` of c becomes a.
u32 inserted_byte(float a, u32 index, u32 c) {
  int const shift = 8 * int(index & 3);
  return (c & ~(255u << shift)) | u32(saturated<u8>(std::nearbyint(a))) << shift;
}

/// Two floats to the low or (op_sel) high half of the destination.
template <u8 (*Convert)(float)>
void pack_two_bytes(wave& w, op const& o) {
  reader<float> const a(w, o, o.arg[1]), b(w, o, o.arg[2]);
  u32* const to = w.v[o.arg[0].reg];
  row r;
  for (int l = 0; l < lanes; ++l) {
    u32 const pair = Convert(a[l]) | u32(Convert(b[l])) << 8;
    r[l] = o.high_destination ? (to[l] & 0xffff) | pair << 16 : (to[l] & 0xffff0000) | pair;
  }
  write_row(to, r.lane, w.exec());
}

/// One float, rounded with random bits, to the byte that op_sel[3:2] names.
template <u8 (*Convert)(float, u32)>
void pack_stochastic(wave& w, op const& o) {
  operand first = o.arg[1], second = o.arg[2];
  first.high_half = second.high_half = false;
  reader<float> const a(w, o, first);
  reader<u32> const random(w, o, second);
  u32* const to = w.v[o.arg[0].reg];
  int const shift = 8 * (o.op_sel >> 2 & 3);
  row r;
  for (int l = 0; l < lanes; ++l) r[l] = (to[l] & ~(255u << shift)) | u32(Convert(a[l], random[l])) << shift;
  write_row(to, r.lane, w.exec());
}

/// Two bytes to two floats; the high half of the source under op_sel or an SDWA selection.
template <float (*Convert)(u8)>
void unpack_two_bytes(wave& w, op const& o) {
  operand const& p = o.arg[1];
  reader<u32> const a(w, o, p);
  int const shift = p.high_half ? 16 : 0;
  row low, high;
  for (int l = 0; l < lanes; ++l) {
    low[l] = as<u32>(Convert(u8(a[l] >> shift)));
    high[l] = as<u32>(Convert(u8(a[l] >> (shift + 8))));
  }
  write_row(w.v[o.arg[0].reg], low.lane, write_mask(w, o));
  write_row(w.v[o.arg[0].reg + 1], high.lane, write_mask(w, o));
}

}  // namespace

void add_convert(registry& r) {
  r.add({
      {"v_cvt_f32_i32", lanewise<[](i32 a) { return float(a); }>},
      {"v_cvt_f32_u32", lanewise<[](u32 a) { return float(a); }>},
      {"v_cvt_i32_f32", lanewise<[](float a) { return saturated<i32>(a); }>},
      {"v_cvt_u32_f32", lanewise<[](float a) { return saturated<u32>(a); }>},
      {"v_cvt_i32_f64", lanewise<[](double a) { return saturated<i32>(a); }>},
      {"v_cvt_u32_f64", lanewise<[](double a) { return saturated<u32>(a); }>},
      {"v_cvt_flr_i32_f32", lanewise<[](float a) { return saturated<i32>(std::floor(a)); }>},
      {"v_cvt_rpi_i32_f32", lanewise<[](float a) { return saturated<i32>(std::floor(double(a) + 0.5)); }>},
      {"v_cvt_f64_f32", lanewise<[](float a) { return double(a); }>},
      {"v_cvt_f32_f64", lanewise<[](double a) { return float(a); }>},
      {"v_cvt_f64_i32", lanewise<[](i32 a) { return double(a); }>},
      {"v_cvt_f64_u32", lanewise<[](u32 a) { return double(a); }>},
      {"v_cvt_f32_f16", lanewise<[](f16 a) { return float(a); }>},
      {"v_cvt_f16_f32", lanewise<[](float a) { return f16(a); }>},
      {"v_cvt_f16_u16", lanewise<[](u16 a) { return f16(float(a)); }>},
      {"v_cvt_f16_i16", lanewise<[](i16 a) { return f16(float(a)); }>},
      {"v_cvt_u16_f16", lanewise<[](f16 a) { return saturated<u16>(float(a)); }>},
      {"v_cvt_i16_f16", lanewise<[](f16 a) { return saturated<i16>(float(a)); }>},
      {"v_cvt_norm_i16_f16", lanewise<[](f16 a) { return signed_norm(float(a)); }>},
      {"v_cvt_norm_u16_f16", lanewise<[](f16 a) { return unsigned_norm(float(a)); }>},
      {"v_cvt_f32_ubyte0", lanewise<[](u32 a) { return float(a & 255); }>},
      {"v_cvt_f32_ubyte1", lanewise<[](u32 a) { return float(a >> 8 & 255); }>},
      {"v_cvt_f32_ubyte2", lanewise<[](u32 a) { return float(a >> 16 & 255); }>},
      {"v_cvt_f32_ubyte3", lanewise<[](u32 a) { return float(a >> 24); }>},
      {"v_cvt_off_f32_i4", lanewise<[](u32 a) { return float(i32(a << 28) >> 28) / 16; }>},
      {"v_cvt_f32_fp8", lanewise<[](u32 a) { return from_fp8(u8(a)); }>},
      {"v_cvt_f32_bf8", lanewise<[](u32 a) { return from_bf8(u8(a)); }>},
      {"v_cvt_pkrtz_f16_f32",
       lanewise<[](float a, float b) { return packed(half_toward_zero(a), half_toward_zero(b)); }>},
      {"v_cvt_pk_i16_i32", lanewise<[](i32 a, i32 b) {
         return packed(u16(std::clamp(a, -32768, 32767)), u16(std::clamp(b, -32768, 32767)));
       }>},
      {"v_cvt_pk_u16_u32",
       lanewise<[](u32 a, u32 b) { return packed(u16(std::min(a, 65535u)), u16(std::min(b, 65535u))); }>},
      {"v_cvt_pknorm_i16_f32",
       lanewise<[](float a, float b) { return packed(u16(signed_norm(a)), u16(signed_norm(b))); }>},
      {"v_cvt_pknorm_u16_f32", lanewise<[](float a, float b) { return packed(unsigned_norm(a), unsigned_norm(b)); }>},
      {"v_cvt_pknorm_i16_f16",
       lanewise<[](f16 a, f16 b) { return packed(u16(signed_norm(float(a))), u16(signed_norm(float(b)))); }>},
      {"v_cvt_pknorm_u16_f16",
       lanewise<[](f16 a, f16 b) { return packed(unsigned_norm(float(a)), unsigned_norm(float(b))); }>},
      {"v_cvt_pk_u8_f32", lanewise<[](float a, u32 b, u32 c) { return inserted_byte(a, b, c); }>},
      {"v_cvt_pkaccum_u8_f32", accumulate<[](float a, u32 b, u32 c) { return inserted_byte(a, b, c); }>},
      {"v_pack_b32_f16", lanewise<[](f16 a, f16 b) { return packed(as<u16>(a), as<u16>(b)); }>},
      {"v_cvt_pk_fp8_f32", {.run = pack_two_bytes<to_fp8>}},
      {"v_cvt_pk_bf8_f32", {.run = pack_two_bytes<to_bf8>}},
      {"v_cvt_sr_fp8_f32", {.run = pack_stochastic<to_fp8_stochastic>}},
      {"v_cvt_sr_bf8_f32", {.run = pack_stochastic<to_bf8_stochastic>}},
      {"v_cvt_pk_f32_fp8", {.run = unpack_two_bytes<from_fp8>}},
      {"v_cvt_pk_f32_bf8", {.run = unpack_two_bytes<from_bf8>}},
  });
}

}  // namespace fusewire::sim
