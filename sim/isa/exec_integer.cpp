// Integer and bit instructions of the vector ALU: CDNA3 ISA, chapter 6 "Vector ALU operations".
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

constexpr i32 low24(i32 x) { return i32(u32(x) << 8) >> 8; }
constexpr u32 low24(u32 x) { return x & 0xffffff; }

/// v_perm_b32: each selector byte picks one of the eight bytes {a, b}, a sign, 0 or 0xff.
u32 permuted_bytes(u32 a, u32 b, u32 selector) {
  u64 const data = u64(a) << 32 | b;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    u32 const s = selector >> 8 * i & 255;
    u32 byte;
    if (s < 8) byte = u32(data >> 8 * s) & 255;
    else if (s < 12) byte = data >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
    else byte = s == 12 ? 0 : 255;
    r |= byte << 8 * i;
  }
  return r;
}

u32 distance(u32 a, u32 b) { return a > b ? a - b : b - a; }
u32 byte_of(u64 x, int i) { return u32(x >> 8 * i) & 255; }
u32 sum_of_distances(u32 a, u32 b, u32 sum) {
  for (int i = 0; i < 4; ++i) sum += distance(byte_of(a, i), byte_of(b, i));
  return sum;
}
/// ... over the bytes that are not 0 in the reference.
u32 masked_sum_of_distances(u32 a, u32 b, u32 sum) {
  for (int i = 0; i < 4; ++i)
    if (byte_of(b, i)) sum += distance(byte_of(a, i), byte_of(b, i));
  return sum;
}
template <u32 (*Sum)(u32, u32, u32)>
u64 four_windows(u64 a, u32 b, u64 c) {
  u64 r = 0;
  for (int i = 0; i < 4; ++i) r |= u64(u16(Sum(u32(a >> 8 * i), b, u32(c >> 16 * i) & 0xffff))) << 16 * i;
  return r;
}
u32 averaged_bytes(u32 a, u32 b, u32 round) {
  u32 r = 0;
  for (int i = 0; i < 4; ++i) r |= (byte_of(a, i) + byte_of(b, i) + (byte_of(round, i) & 1)) >> 1 << 8 * i;
  return r;
}

// ----------------------------------------------------------------------------------------- carries and 64-bit products

/// F(a, b, carry in) gives 33 bits.
template <auto F, bool CarryIn>
void with_carry(wave& w, op const& o) {
  reader<u32> const a(w, o, o.arg[2]), b(w, o, o.arg[3]);
  u64 const in = CarryIn ? read_scalar64(w, o.arg[4]) : 0, active = write_mask(w, o);
  row r;
  u64 out = 0;
  for (int l = 0; l < lanes; ++l) {
    u64 const x = F(a[l], b[l], u32(in >> l & 1));
    r[l] = o.clamp && x >> 32 ? (i64(x) < 0 ? 0 : ~u32(0)) : u32(x);
    out |= (x >> 32 & 1) << l;
  }
  if (o.destination_part != select::dword) merge_destination(o, w.v[o.arg[0].reg], r.lane, false);
  write_row(w.v[o.arg[0].reg], r.lane, active);
  write_scalar64(w, o.arg[1], out & active);
}
template <auto F>
inline constexpr semantics carry_out = {.run = with_carry<F, false>, .destinations = 2};
template <auto F>
inline constexpr semantics carry_through = {.run = with_carry<F, true>, .destinations = 2, .carry_in = true};

template <class T, class Wide>
void multiply_add_64(wave& w, op const& o) {
  reader<T> const a(w, o, o.arg[2]), b(w, o, o.arg[3]);
  reader<Wide> const c(w, o, o.arg[4]);
  u64 overflow = 0;
  write_lanes<Wide>(w, o, o.arg[0], [&](int l) {
    Wide sum;
    if (__builtin_add_overflow(Wide(Wide(a[l]) * Wide(b[l])), c[l], &sum)) overflow |= u64(1) << l;
    return sum;
  });
  write_scalar64(w, o.arg[1], overflow & w.exec());
}

/// Integer add and subtract saturate under the clamp bit.
template <class T, bool Subtract, bool Reverse>
void add_or_subtract(wave& w, op const& o) {
  reader<T> const x(w, o, o.arg[1]), y(w, o, o.arg[2]);
  write_lanes<T>(w, o, o.arg[0], [&](int l) {
    i64 const a = Reverse ? y[l] : x[l], b = Reverse ? x[l] : y[l], r = Subtract ? a - b : a + b;
    return o.clamp ? T(std::clamp<i64>(r, std::numeric_limits<T>::min(), std::numeric_limits<T>::max())) : T(r);
  });
}
template <class T>
inline constexpr semantics add_of = {.run = add_or_subtract<T, false, false>};
template <class T>
inline constexpr semantics subtract_of = {.run = add_or_subtract<T, true, false>};
template <class T>
inline constexpr semantics subtract_reverse_of = {.run = add_or_subtract<T, true, true>};
inline semantics half(semantics s) {
  s.keeps_high = true;
  return s;
}

void add_32(registry& r) {
  r.add({
      {"v_mov_b32", lanewise<[](u32 a) { return a; }>},
      {"v_accvgpr_read_b32", lanewise<[](u32 a) { return a; }>},
      {"v_accvgpr_write_b32", lanewise<[](u32 a) { return a; }>},
      {"v_accvgpr_mov_b32", lanewise<[](u32 a) { return a; }>},
      {"v_not_b32", lanewise<[](u32 a) { return ~a; }>},
      {"v_bfrev_b32", lanewise<[](u32 a) { return reversed(a); }>},
      {"v_ffbh_u32", lanewise<[](u32 a) { return a ? u32(std::countl_zero(a)) : ~u32(0); }>},
      {"v_ffbl_b32", lanewise<[](u32 a) { return a ? u32(std::countr_zero(a)) : ~u32(0); }>},
      {"v_ffbh_i32",
       lanewise<[](i32 a) { return a == 0 || a == -1 ? ~u32(0) : u32(std::countl_zero(u32(a < 0 ? ~a : a))); }>},
      {"v_add_u32", add_of<u32>},
      {"v_sub_u32", subtract_of<u32>},
      {"v_subrev_u32", subtract_reverse_of<u32>},
      {"v_add_i32", add_of<i32>},
      {"v_sub_i32", subtract_of<i32>},
      {"v_and_b32", lanewise<[](u32 a, u32 b) { return a & b; }>},
      {"v_or_b32", lanewise<[](u32 a, u32 b) { return a | b; }>},
      {"v_xor_b32", lanewise<[](u32 a, u32 b) { return a ^ b; }>},
      {"v_xnor_b32", lanewise<[](u32 a, u32 b) { return ~(a ^ b); }>},
      {"v_min_u32", lanewise<[](u32 a, u32 b) { return std::min(a, b); }>},
      {"v_max_u32", lanewise<[](u32 a, u32 b) { return std::max(a, b); }>},
      {"v_min_i32", lanewise<[](i32 a, i32 b) { return std::min(a, b); }>},
      {"v_max_i32", lanewise<[](i32 a, i32 b) { return std::max(a, b); }>},
      {"v_lshlrev_b32", lanewise<[](u32 a, u32 b) { return b << (a & 31); }>},
      {"v_lshrrev_b32", lanewise<[](u32 a, u32 b) { return b >> (a & 31); }>},
      {"v_ashrrev_i32", lanewise<[](u32 a, i32 b) { return b >> (a & 31); }>},
      {"v_mul_lo_u32", lanewise<[](u32 a, u32 b) { return a * b; }>},
      {"v_mul_hi_u32", lanewise<[](u32 a, u32 b) { return u32(u64(a) * b >> 32); }>},
      {"v_mul_hi_i32", lanewise<[](i32 a, i32 b) { return u32(u64(i64(a) * b) >> 32); }>},
      {"v_mul_u32_u24", lanewise<[](u32 a, u32 b) { return low24(a) * low24(b); }>},
      {"v_mul_hi_u32_u24", lanewise<[](u32 a, u32 b) { return u32(u64(low24(a)) * low24(b) >> 32); }>},
      {"v_mul_i32_i24", lanewise<[](i32 a, i32 b) { return u32(low24(a)) * u32(low24(b)); }>},
      {"v_mul_hi_i32_i24", lanewise<[](i32 a, i32 b) { return u32(u64(i64(low24(a)) * low24(b)) >> 32); }>},
      {"v_bfm_b32", lanewise<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>},
      {"v_bcnt_u32_b32", lanewise<[](u32 a, u32 b) { return u32(std::popcount(a)) + b; }>},
      {"v_add3_u32", lanewise<[](u32 a, u32 b, u32 c) { return a + b + c; }>},
      {"v_add_lshl_u32", lanewise<[](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }>},
      {"v_lshl_add_u32", lanewise<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }>},
      {"v_lshl_or_b32", lanewise<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; }>},
      {"v_and_or_b32", lanewise<[](u32 a, u32 b, u32 c) { return (a & b) | c; }>},
      {"v_or3_b32", lanewise<[](u32 a, u32 b, u32 c) { return a | b | c; }>},
      {"v_xad_u32", lanewise<[](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>},
      {"v_bfe_u32", lanewise<[](u32 a, u32 b, u32 c) { return bitfield(a, b & 31, c & 31); }>},
      {"v_bfe_i32", lanewise<[](i32 a, u32 b, u32 c) { return signed_bitfield(a, b & 31, c & 31); }>},
      {"v_bfi_b32", lanewise<[](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }>},
      {"v_alignbit_b32", lanewise<[](u32 a, u32 b, u32 c) { return u32((u64(a) << 32 | b) >> (c & 31)); }>},
      {"v_alignbyte_b32", lanewise<[](u32 a, u32 b, u32 c) { return u32((u64(a) << 32 | b) >> 8 * (c & 3)); }>},
      {"v_perm_b32", lanewise<[](u32 a, u32 b, u32 c) { return permuted_bytes(a, b, c); }>},
      {"v_mad_u32_u24", lanewise<[](u32 a, u32 b, u32 c) { return low24(a) * low24(b) + c; }>},
      {"v_mad_i32_i24", lanewise<[](i32 a, i32 b, u32 c) { return u32(low24(a)) * u32(low24(b)) + c; }>},
      {"v_mad_u32_u16", lanewise<[](u16 a, u16 b, u32 c) { return u32(a) * b + c; }>},
      {"v_mad_i32_i16", lanewise<[](i16 a, i16 b, u32 c) { return u32(i32(a) * b) + c; }>},
      {"v_min3_u32", lanewise<[](u32 a, u32 b, u32 c) { return std::min(a, std::min(b, c)); }>},
      {"v_max3_u32", lanewise<[](u32 a, u32 b, u32 c) { return std::max(a, std::max(b, c)); }>},
      {"v_med3_u32", lanewise<[](u32 a, u32 b, u32 c) { return median(a, b, c); }>},
      {"v_min3_i32", lanewise<[](i32 a, i32 b, i32 c) { return std::min(a, std::min(b, c)); }>},
      {"v_max3_i32", lanewise<[](i32 a, i32 b, i32 c) { return std::max(a, std::max(b, c)); }>},
      {"v_med3_i32", lanewise<[](i32 a, i32 b, i32 c) { return median(a, b, c); }>},
      {"v_sad_u8", lanewise<[](u32 a, u32 b, u32 c) { return sum_of_distances(a, b, c); }>},
      {"v_sad_hi_u8", lanewise<[](u32 a, u32 b, u32 c) { return (sum_of_distances(a, b, 0) << 16) + c; }>},
      {"v_msad_u8", lanewise<[](u32 a, u32 b, u32 c) { return masked_sum_of_distances(a, b, c); }>},
      {"v_sad_u16",
       lanewise<[](u32 a, u32 b, u32 c) { return distance(a & 0xffff, b & 0xffff) + distance(a >> 16, b >> 16) + c; }>},
      {"v_sad_u32", lanewise<[](u32 a, u32 b, u32 c) { return distance(a, b) + c; }>},
      {"v_lerp_u8", lanewise<[](u32 a, u32 b, u32 c) { return averaged_bytes(a, b, c); }>},
      {"v_sat_pk_u8_i16", lanewise<[](u32 a) {
         return u32(std::clamp<int>(i16(a), 0, 255)) | u32(std::clamp<int>(i16(a >> 16), 0, 255)) << 8;
       }>},
      {"v_add_co_u32", carry_out<[](u32 a, u32 b, u32) { return u64(a) + b; }>},
      {"v_sub_co_u32", carry_out<[](u32 a, u32 b, u32) { return u64(a) - b; }>},
      {"v_subrev_co_u32", carry_out<[](u32 a, u32 b, u32) { return u64(b) - a; }>},
      {"v_addc_co_u32", carry_through<[](u32 a, u32 b, u32 c) { return u64(a) + b + c; }>},
      {"v_subb_co_u32", carry_through<[](u32 a, u32 b, u32 c) { return u64(a) - b - c; }>},
      {"v_subbrev_co_u32", carry_through<[](u32 a, u32 b, u32 c) { return u64(b) - a - c; }>},
  });
}

void add_64(registry& r) {
  r.add({
      {"v_mov_b64", lanewise<[](u64 a) { return a; }>},
      {"v_lshlrev_b64", lanewise<[](u32 a, u64 b) { return b << (a & 63); }>},
      {"v_lshrrev_b64", lanewise<[](u32 a, u64 b) { return b >> (a & 63); }>},
      {"v_ashrrev_i64", lanewise<[](u32 a, i64 b) { return b >> (a & 63); }>},
      {"v_lshl_add_u64", lanewise<[](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; }>},
      {"v_mad_u64_u32", {.run = multiply_add_64<u32, u64>, .destinations = 2}},
      {"v_mad_i64_i32", {.run = multiply_add_64<i32, i64>, .destinations = 2}},
      {"v_qsad_pk_u16_u8", lanewise<[](u64 a, u32 b, u64 c) { return four_windows<sum_of_distances>(a, b, c); }>},
      {"v_mqsad_pk_u16_u8",
       lanewise<[](u64 a, u32 b, u64 c) { return four_windows<masked_sum_of_distances>(a, b, c); }>},
  });
}

void add_16(registry& r) {
  r.add({
      {"v_add_u16", add_of<u16>},
      {"v_sub_u16", subtract_of<u16>},
      {"v_subrev_u16", subtract_reverse_of<u16>},
      {"v_add_i16", half(add_of<i16>)},
      {"v_sub_i16", half(subtract_of<i16>)},
      {"v_mul_lo_u16", lanewise<[](u16 a, u16 b) { return u16(u32(a) * b); }>},
      {"v_lshlrev_b16", lanewise<[](u16 a, u16 b) { return u16(b << (a & 15)); }>},
      {"v_lshrrev_b16", lanewise<[](u16 a, u16 b) { return u16(b >> (a & 15)); }>},
      {"v_ashrrev_i16", lanewise<[](u16 a, i16 b) { return i16(b >> (a & 15)); }>},
      {"v_min_u16", lanewise<[](u16 a, u16 b) { return std::min(a, b); }>},
      {"v_max_u16", lanewise<[](u16 a, u16 b) { return std::max(a, b); }>},
      {"v_min_i16", lanewise<[](i16 a, i16 b) { return std::min(a, b); }>},
      {"v_max_i16", lanewise<[](i16 a, i16 b) { return std::max(a, b); }>},
      {"v_mad_u16", lanewise_half<[](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); }>},
      {"v_mad_i16", lanewise_half<[](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); }>},
      {"v_mad_legacy_u16", lanewise<[](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); }>},
      {"v_mad_legacy_i16", lanewise<[](u16 a, u16 b, u16 c) { return u16(u32(a) * b + c); }>},
      {"v_min3_u16", lanewise_half<[](u16 a, u16 b, u16 c) { return std::min(a, std::min(b, c)); }>},
      {"v_max3_u16", lanewise_half<[](u16 a, u16 b, u16 c) { return std::max(a, std::max(b, c)); }>},
      {"v_med3_u16", lanewise_half<[](u16 a, u16 b, u16 c) { return median(a, b, c); }>},
      {"v_min3_i16", lanewise_half<[](i16 a, i16 b, i16 c) { return std::min(a, std::min(b, c)); }>},
      {"v_max3_i16", lanewise_half<[](i16 a, i16 b, i16 c) { return std::max(a, std::max(b, c)); }>},
      {"v_med3_i16", lanewise_half<[](i16 a, i16 b, i16 c) { return median(a, b, c); }>},
  });
}

}  // namespace

void add_integer(registry& r) {
  add_32(r);
  add_64(r);
  add_16(r);
}

}  // namespace fusewire::sim
