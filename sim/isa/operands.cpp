#include "operands.hpp"

namespace fusewire::sim {
namespace {

u32 selected(u32 x, operand const& p) {
  if (p.part == select::dword) return x;
  bool const byte = p.part < select::word_0;
  int const shift = byte ? 8 * int(p.part) : 16 * (int(p.part) - int(select::word_0));
  u32 const part = x >> shift & (byte ? 0xff : 0xffff);
  if (!p.sign_extend) return part;
  return byte ? u32(i32(i8(part))) : u32(i32(i16(part)));
}

u32 modified(u32 x, operand const& p, u32 sign) {
  if (p.absolute) x &= ~sign;
  if (p.negate) x ^= sign;
  return x;
}

void broadcast(u32* to, u32 value) {
  for (int l = 0; l < lanes; ++l) to[l] = value;
}

u32 const* permuted(wave const& w, op const& o, u32 const* from, u32* to) {
  u64 const exec = w.exec();
  for (int l = 0; l < lanes; ++l) {
    int const source = (*o.dpp)[l];
    to[l] = source >= 0 && lane_on(exec, source) ? from[source] : 0;
  }
  return to;
}

constexpr u32 sign_of(width bits) { return bits == width::b16 ? 0x8000u : 0x80000000u; }

}  // namespace

u32 const* fill(wave& w, op const& o, operand const& p, width bits, u32* buffer) {
  u32* const high = buffer + lanes;  // 64-bit operands only
  if (!p.is_vgpr()) {
    u32 x = bits == width::b16 && p.kind == source::constant ? p.half : read_scalar32(w, p);
    if (bits == width::b64) {
      u64 const both = read_scalar64(w, p);
      broadcast(buffer, u32(both));
      broadcast(high, modified(u32(both >> 32), p, sign_of(bits)));
      return buffer;
    }
    if (p.kind != source::constant) x = selected(bits == width::b16 && p.high_half ? x >> 16 : x, p);
    broadcast(buffer, modified(x, p, sign_of(bits)));
    return buffer;
  }
  u32 const* from = w.v[p.reg];
  if (bits == width::b64) {
    u32 const* upper = w.v[p.reg + 1];
    row swapped[2];
    if (p.permuted) {
      from = permuted(w, o, from, swapped[0].lane);
      upper = permuted(w, o, upper, swapped[1].lane);
    }
    for (int l = 0; l < lanes; ++l) buffer[l] = from[l];
    for (int l = 0; l < lanes; ++l) high[l] = modified(upper[l], p, sign_of(bits));
    return buffer;
  }
  row swapped;
  if (p.permuted) from = permuted(w, o, from, swapped.lane);
  int const shift = bits == width::b16 && p.high_half ? 16 : 0;
  for (int l = 0; l < lanes; ++l) buffer[l] = modified(selected(from[l] >> shift, p), p, sign_of(bits));
  return buffer;
}

u64 dpp_write_mask(wave const& w, op const& o) {
  u64 const exec = w.exec();
  u64 mask = exec & o.dpp_rows;
  if (o.bound_zero) return mask;
  for (int l = 0; l < lanes; ++l) {
    int const source = (*o.dpp)[l];
    if (source < 0 || !lane_on(exec, source)) mask &= ~(u64(1) << l);
  }
  return mask;
}

void merge_destination(op const& o, u32 const* old, u32* r, bool half) {
  if (half && o.destination_part == select::dword) {
    for (int l = 0; l < lanes; ++l)
      r[l] = o.high_destination ? (old[l] & 0xffff) | r[l] << 16 : (old[l] & ~0xffffu) | (r[l] & 0xffff);
    return;
  }
  bool const byte = o.destination_part < select::word_0;
  int const shift = byte ? 8 * int(o.destination_part) : 16 * (int(o.destination_part) - int(select::word_0));
  u32 const part = byte ? 0xff : 0xffff, mask = part << shift;
  int const top = byte ? 24 : 16;
  for (int l = 0; l < lanes; ++l) {
    u32 const placed = (r[l] & part) << shift;
    switch (o.unused) {
      case unused_bits::pad: r[l] = placed; break;
      case unused_bits::sign_extend: r[l] = u32(i32(r[l] << top) >> top) << shift; break;
      case unused_bits::preserve: r[l] = (old[l] & ~mask) | placed; break;
    }
  }
}

}  // namespace fusewire::sim
