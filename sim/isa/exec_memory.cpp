// Global, flat, scratch and buffer loads and stores: CDNA3 ISA, chapters 8 "Vector memory" and 9 "Flat memory
// instructions".
#include "address.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

/// What a load does with the bytes it read.
enum class widen { none, u8, i8, u16, i16, u8_low, u8_high, i8_low, i8_high, low, high };

u32 widened(widen how, u32 old, u32 x) {
  switch (how) {
    case widen::none: return x;
    case widen::u8: return x & 0xff;
    case widen::i8: return u32(i32(i8(x)));
    case widen::u16: return x & 0xffff;
    case widen::i16: return u32(i32(i16(x)));
    case widen::u8_low: return (old & 0xffff0000) | (x & 0xff);
    case widen::u8_high: return (old & 0xffff) | (x & 0xff) << 16;
    case widen::i8_low: return (old & 0xffff0000) | u16(i16(i8(x)));
    case widen::i8_high: return (old & 0xffff) | u32(u16(i16(i8(x)))) << 16;
    case widen::low: return (old & 0xffff0000) | (x & 0xffff);
    case widen::high: return (old & 0xffff) | x << 16;
  }
  return x;
}

template <widen How>
void put_in_registers(wave& w, destination const& to, u64 mask, u32 const (*data)[lanes]) {
  for (int d = 0; d < to.dwords; ++d) {
    u32* const at = w.v[to.reg + d];
    if constexpr (How == widen::none) {
      write_row(at, data[d], mask);
    } else {
      row wide;
      for (int l = 0; l < lanes; ++l) wide[l] = widened(How, at[l], data[d][l]);
      write_row(at, wide.lane, mask);
    }
  }
}
template <widen How>
void put_in_lds(wave& w, destination const& to, u64 mask, u32 const (*data)[lanes]) {
  row wide;
  for (int l = 0; l < lanes; ++l) wide[l] = widened(How, 0, data[0][l]);
  store_lane_dwords(w, to.lds, mask, wide.lane);
}

template <segment Segment, int Bytes, widen How>
void load(wave& w, op const& o) {
  w.memory->issue(w);
  u64 const mask = w.exec();
  if (mask == 0) return;
  destination const to = o.to_lds ? destination{put_in_lds<How>, 0, 1, (w.s[124] & 0xffff) + u32(o.imm)}
                                  : destination{put_in_registers<How>, o.arg[0].reg, (Bytes + 3) / 4, 0};
  load_segment(w, o, Segment, mask, Bytes, to);
}

template <segment Segment, int Bytes, bool High>
void store(wave& w, op const& o) {
  w.memory->issue(w);
  u64 const mask = w.exec();
  if (mask == 0) return;
  u32 const(*data)[lanes] = &w.v[o.arg[2].reg];
  row shifted;
  if constexpr (High) {
    for (int l = 0; l < lanes; ++l) shifted[l] = data[0][l] >> 16;
    data = &shifted.lane;
  }
  store_segment(w, o, Segment, mask, Bytes, data);
}

template <segment Segment>
void add_segment(registry& r, std::string const& prefix) {
  auto const add = [&](char const* name, handler run) { r.add(prefix + name, {.run = run, .destinations = 0}); };
  add("_load_dword", load<Segment, 4, widen::none>);
  add("_load_dwordx2", load<Segment, 8, widen::none>);
  add("_load_dwordx3", load<Segment, 12, widen::none>);
  add("_load_dwordx4", load<Segment, 16, widen::none>);
  add("_load_ubyte", load<Segment, 1, widen::u8>);
  add("_load_sbyte", load<Segment, 1, widen::i8>);
  add("_load_ushort", load<Segment, 2, widen::u16>);
  add("_load_sshort", load<Segment, 2, widen::i16>);
  add("_load_ubyte_d16", load<Segment, 1, widen::u8_low>);
  add("_load_ubyte_d16_hi", load<Segment, 1, widen::u8_high>);
  add("_load_sbyte_d16", load<Segment, 1, widen::i8_low>);
  add("_load_sbyte_d16_hi", load<Segment, 1, widen::i8_high>);
  add("_load_short_d16", load<Segment, 2, widen::low>);
  add("_load_short_d16_hi", load<Segment, 2, widen::high>);
  add("_store_dword", store<Segment, 4, false>);
  add("_store_dwordx2", store<Segment, 8, false>);
  add("_store_dwordx3", store<Segment, 12, false>);
  add("_store_dwordx4", store<Segment, 16, false>);
  add("_store_byte", store<Segment, 1, false>);
  add("_store_short", store<Segment, 2, false>);
  add("_store_byte_d16_hi", store<Segment, 1, true>);
  add("_store_short_d16_hi", store<Segment, 2, true>);
}

}  // namespace

void add_memory(registry& r) {
  add_segment<segment::global>(r, "global");
  add_segment<segment::flat>(r, "flat");
  add_segment<segment::scratch>(r, "scratch");
  add_segment<segment::buffer>(r, "buffer");
  auto const to_lds = [&](char const* name, handler run) {
    r.add(std::string("global_load_lds_") + name, {.run = run, .to_lds = true});
  };
  to_lds("dword", load<segment::global, 4, widen::none>);
  to_lds("ubyte", load<segment::global, 1, widen::u8>);
  to_lds("sbyte", load<segment::global, 1, widen::i8>);
  to_lds("ushort", load<segment::global, 2, widen::u16>);
  to_lds("sshort", load<segment::global, 2, widen::i16>);
}

}  // namespace fusewire::sim
