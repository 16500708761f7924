// LDS: CDNA3 ISA, chapter 11 "Data share".
#include "address.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

u32 first_offset(op const& o) { return u32(o.imm) & 0xff; }
u32 second_offset(op const& o) { return u32(o.imm) >> 8; }

/// Calls access(lane, bytes of LDS) for every enabled lane at its address + offset, modulo 2^32; false, with nothing
/// done, if one is outside.
template <int Bytes, class Access>
bool each_address(wave& w, u64 mask, u32 const* address, u32 offset, Access access) {
  auto& lds = w.group->lds;
  u32 highest = 0;
  for (int l = 0; l < lanes; ++l) highest = std::max(highest, mask >> l & 1 ? address[l] + offset : 0);
  if (u64(highest) + Bytes > lds.size()) [[unlikely]] {
    if (mask) lds_at(w, highest, Bytes);
    return mask == 0;
  }
  u8* const begin = lds.data();
  if (mask == ~u64(0)) [[likely]]
    for (int l = 0; l < lanes; ++l) access(l, begin + u32(address[l] + offset));
  else
    for (u64 left = mask; left; left &= left - 1)
      access(std::countr_zero(left), begin + u32(address[std::countr_zero(left)] + offset));
  return true;
}

/// The addresses are lane after lane, `Bytes` apart, all enabled: one copy does it.
template <int Bytes>
u8* contiguous(wave& w, u64 mask, u32 const* address, u32 offset) {
  if (mask != ~u64(0)) return nullptr;
  u32 off = 0;
  for (u32 l = 0; l < u32(lanes); ++l) off |= address[l] - (address[0] + Bytes * l);
  u64 const from = u32(address[0] + offset);
  if (off != 0 || from + u64(Bytes) * lanes > w.group->lds.size()) return nullptr;
  return w.group->lds.data() + from;
}

// ------------------------------------------------------------------------------------------------------- loads, stores

template <int Bytes>
void read(wave& w, op const& o) {
  u64 const mask = w.exec();
  constexpr int dwords = Bytes / 4;
  row data[dwords];
  u32 const* const address = w.v[o.arg[1].reg];
  if (u8 const* const at = contiguous<Bytes>(w, mask, address, u32(o.imm))) {
    for (int l = 0; l < lanes; ++l)
      for (int d = 0; d < dwords; ++d) std::memcpy(&data[d][l], at + Bytes * l + 4 * d, 4);
  } else if (!each_address<Bytes>(w, mask, address, u32(o.imm), [&](int l, u8 const* from) {
               for (int d = 0; d < dwords; ++d) std::memcpy(&data[d][l], from + 4 * d, 4);
             })) {
    return;
  }
  for (int d = 0; d < dwords; ++d) write_row(w.v[o.arg[0].reg + d], data[d].lane, mask);
}

template <int Bytes>
void write(wave& w, op const& o) {
  u64 const mask = w.exec();
  u32 const(*data)[lanes] = &w.v[o.arg[2].reg];
  u32 const* const address = w.v[o.arg[1].reg];
  if (u8* const at = contiguous<Bytes>(w, mask, address, u32(o.imm))) {
    for (int l = 0; l < lanes; ++l)
      for (int d = 0; d < Bytes / 4; ++d) std::memcpy(at + Bytes * l + 4 * d, &data[d][l], 4);
    return;
  }
  each_address<Bytes>(w, mask, address, u32(o.imm), [&](int l, u8* to) {
    for (int d = 0; d < Bytes / 4; ++d) std::memcpy(to + 4 * d, &data[d][l], 4);
  });
}

/// F(old register, value) gives the new register.
template <class T, auto F>
void read_part(wave& w, op const& o) {
  u32* const to = w.v[o.arg[0].reg];
  row r;
  if (each_address<sizeof(T)>(w, w.exec(), w.v[o.arg[1].reg], u32(o.imm), [&](int l, u8 const* from) {
        T x;
        std::memcpy(&x, from, sizeof x);
        r[l] = F(to[l], x);
      }))
    write_row(to, r.lane, w.exec());
}
template <class T, int Shift>
void write_part(wave& w, op const& o) {
  u32 const* const data = w.v[o.arg[2].reg];
  each_address<sizeof(T)>(w, w.exec(), w.v[o.arg[1].reg], u32(o.imm), [&](int l, u8* to) {
    T const x = T(data[l] >> Shift);
    std::memcpy(to, &x, sizeof x);
  });
}

/// Two elements of Bytes, at offset0 and offset1 in units of Bytes * Unit.
template <int Bytes, int Unit>
void read_two(wave& w, op const& o) {
  u64 const mask = w.exec();
  constexpr int dwords = Bytes / 4;
  row data[2 * dwords];
  u32 const offset[2] = {first_offset(o) * Bytes * Unit, second_offset(o) * Bytes * Unit};
  for (int i = 0; i < 2; ++i)
    if (!each_address<Bytes>(w, mask, w.v[o.arg[1].reg], offset[i], [&](int l, u8 const* from) {
          for (int d = 0; d < dwords; ++d) std::memcpy(&data[i * dwords + d][l], from + 4 * d, 4);
        }))
      return;
  for (int d = 0; d < 2 * dwords; ++d) write_row(w.v[o.arg[0].reg + d], data[d].lane, mask);
}
template <int Bytes, int Unit>
void write_two(wave& w, op const& o) {
  u32 const offset[2] = {first_offset(o) * Bytes * Unit, second_offset(o) * Bytes * Unit};
  for (int i = 0; i < 2; ++i) {
    u32 const(*data)[lanes] = &w.v[o.arg[2 + i].reg];
    if (!each_address<Bytes>(w, w.exec(), w.v[o.arg[1].reg], offset[i], [&](int l, u8* to) {
          for (int d = 0; d < Bytes / 4; ++d) std::memcpy(to + 4 * d, &data[d][l], 4);
        }))
      return;
  }
}
template <int Bytes, int Unit>
void exchange_two(wave& w, op const& o) {
  u64 const mask = w.exec();
  constexpr int dwords = Bytes / 4;
  row old[2 * dwords];
  u32 const offset[2] = {first_offset(o) * Bytes * Unit, second_offset(o) * Bytes * Unit};
  for (int i = 0; i < 2; ++i) {
    u32 const(*data)[lanes] = &w.v[o.arg[2 + i].reg];
    if (!each_address<Bytes>(w, mask, w.v[o.arg[1].reg], offset[i], [&](int l, u8* at) {
          for (int d = 0; d < dwords; ++d) {
            std::memcpy(&old[i * dwords + d][l], at + 4 * d, 4);
            std::memcpy(at + 4 * d, &data[d][l], 4);
          }
        }))
      return;
  }
  for (int d = 0; d < 2 * dwords; ++d) write_row(w.v[o.arg[0].reg + d], old[d].lane, mask);
}

/// ds_read_addtid, ds_write_addtid: M0 + offset + 4 * lane.
void lane_addresses(wave const& w, row& address) {
  for (int l = 0; l < lanes; ++l) address[l] = (w.s[124] & 0xffff) + 4 * u32(l);
}

// ------------------------------------------------------------------------------------------------------------- atomics

template <class T>
T data_of(wave const& w, u32 reg, int l) {
  if constexpr (sizeof(T) == 8) return as<T>(w.v[reg][l] | u64(w.v[reg + 1][l]) << 32);
  else return as<T>(w.v[reg][l]);
}

/// F(memory, first data, second data) gives the new memory.
template <class T, auto F, bool Returns>
void update(wave& w, op const& o) {
  u64 const mask = w.exec();
  row low, high;
  bool const done = each_address<sizeof(T)>(w, mask, w.v[o.arg[1].reg], u32(o.imm), [&](int l, u8* at) {
    T old;
    std::memcpy(&old, at, sizeof old);
    T const now = F(old, data_of<T>(w, o.arg[2].reg, l), data_of<T>(w, o.arg[3].reg, l));
    std::memcpy(at, &now, sizeof now);
    if constexpr (sizeof(T) == 8) {
      low[l] = u32(as<u64>(old));
      high[l] = u32(as<u64>(old) >> 32);
    } else {
      low[l] = as<u32>(old);
    }
  });
  if (!done || !Returns) return;
  write_row(w.v[o.arg[0].reg], low.lane, mask);
  if constexpr (sizeof(T) == 8) write_row(w.v[o.arg[0].reg + 1], high.lane, mask);
}

template <class T, auto F>
void add_update(registry& r, std::string const& name, std::string const& type) {
  r.add("ds_" + name + "_" + type, {.run = update<T, F, false>});
  r.add("ds_" + name + "_rtn_" + type, {.run = update<T, F, true>});
}

template <class U, class S, class F>
void add_updates(registry& r, std::string const& bits) {
  add_update<U, [](U m, U d, U) { return U(m + d); }>(r, "add", "u" + bits);
  add_update<U, [](U m, U d, U) { return U(m - d); }>(r, "sub", "u" + bits);
  add_update<U, [](U m, U d, U) { return U(d - m); }>(r, "rsub", "u" + bits);
  add_update<U, [](U m, U d, U) { return U(m >= d ? 0 : m + 1); }>(r, "inc", "u" + bits);
  add_update<U, [](U m, U d, U) { return m == 0 || m > d ? d : U(m - 1); }>(r, "dec", "u" + bits);
  add_update<S, [](S m, S d, S) { return std::min(m, d); }>(r, "min", "i" + bits);
  add_update<S, [](S m, S d, S) { return std::max(m, d); }>(r, "max", "i" + bits);
  add_update<U, [](U m, U d, U) { return std::min(m, d); }>(r, "min", "u" + bits);
  add_update<U, [](U m, U d, U) { return std::max(m, d); }>(r, "max", "u" + bits);
  add_update<U, [](U m, U d, U) { return m & d; }>(r, "and", "b" + bits);
  add_update<U, [](U m, U d, U) { return m | d; }>(r, "or", "b" + bits);
  add_update<U, [](U m, U d, U) { return m ^ d; }>(r, "xor", "b" + bits);
  add_update<U, [](U m, U d, U e) { return (m & ~d) | e; }>(r, "mskor", "b" + bits);
  r.add("ds_wrxchg_rtn_b" + bits, {.run = update<U, [](U, U d, U) { return d; }, true>});
  // compare, then the new value (global atomics have them the other way round)
  add_update<U, [](U m, U c, U d) { return m == c ? d : m; }>(r, "cmpst", "b" + bits);
  add_update<F, [](F m, F c, F d) { return m == c ? d : m; }>(r, "cmpst", "f" + bits);
  add_update<F, [](F m, F d, F) { return lesser(m, d); }>(r, "min", "f" + bits);
  add_update<F, [](F m, F d, F) { return greater(m, d); }>(r, "max", "f" + bits);
  add_update<F, [](F m, F d, F) { return m + d; }>(r, "add", "f" + bits);
}

/// ds_append, ds_consume: the counter at M0 + offset moves by the number of enabled lanes; every lane gets its old
/// value.
template <int Sign>
void count(wave& w, op const& o) {
  u8* const at = lds_at(w, (w.s[124] & 0xffff) + u32(o.imm), 4);
  if (!at) return;
  u32 old;
  std::memcpy(&old, at, 4);
  u32 const now = old + u32(Sign * std::popcount(w.exec()));
  std::memcpy(at, &now, 4);
  row r;
  for (int l = 0; l < lanes; ++l) r[l] = old;
  write_row(w.v[o.arg[0].reg], r.lane, w.exec());
}

// ------------------------------------------------------------------------------------------- crossing lanes, no memory

void gather(wave& w, op const& o) {
  row r;
  u64 const exec = w.exec();
  u32 const *const address = w.v[o.arg[1].reg], *const data = w.v[o.arg[2].reg];
  for (int l = 0; l < lanes; ++l) {
    u32 const from = (address[l] + u32(o.imm)) >> 2 & 63;
    r[l] = exec >> from & 1 ? data[from] : 0;
  }
  write_row(w.v[o.arg[0].reg], r.lane, exec);
}

void scatter(wave& w, op const& o) {
  row r{};
  u64 const exec = w.exec();
  u32 const *const address = w.v[o.arg[1].reg], *const data = w.v[o.arg[2].reg];
  for (int l = 0; l < lanes; ++l)
    if (lane_on(exec, l)) r[(address[l] + u32(o.imm)) >> 2 & 63] = data[l];
  write_row(w.v[o.arg[0].reg], r.lane, exec);
}

/// The lane that lane l reads: quads when bit 15 is set, else and/or/xor masks within 32 lanes.
int swizzled(u32 pattern, int l) {
  if (pattern & 0x8000) return (l & ~3) | int(pattern >> 2 * (l & 3) & 3);
  u32 const within = ((u32(l & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31);
  return (l & 32) | int(within);
}
void swizzle(wave& w, op const& o) {
  row r;
  u64 const exec = w.exec();
  u32 const* const data = w.v[o.arg[1].reg];
  for (int l = 0; l < lanes; ++l) {
    int const from = swizzled(u32(o.imm), l);
    r[l] = lane_on(exec, from) ? data[from] : 0;
  }
  write_row(w.v[o.arg[0].reg], r.lane, exec);
}

f16 half_of(u32 x, int i) { return as<f16>(u16(x >> 16 * i)); }
float bf16_of(u32 x, int i) { return from_bf16(u16(x >> 16 * i)); }

void add_access(registry& r) {
  r.add({
      {"ds_read_b32", {.run = read<4>}},
      {"ds_read_b64", {.run = read<8>}},
      {"ds_read_b96", {.run = read<12>}},
      {"ds_read_b128", {.run = read<16>}},
      {"ds_write_b32", {.run = write<4>}},
      {"ds_write_b64", {.run = write<8>}},
      {"ds_write_b96", {.run = write<12>}},
      {"ds_write_b128", {.run = write<16>}},
      {"ds_read_u8", {.run = read_part<u8, [](u32, u8 x) { return u32(x); }>}},
      {"ds_read_i8", {.run = read_part<i8, [](u32, i8 x) { return u32(i32(x)); }>}},
      {"ds_read_u16", {.run = read_part<u16, [](u32, u16 x) { return u32(x); }>}},
      {"ds_read_i16", {.run = read_part<i16, [](u32, i16 x) { return u32(i32(x)); }>}},
      {"ds_read_u8_d16", {.run = read_part<u8, [](u32 old, u8 x) { return (old & 0xffff0000) | x; }>}},
      {"ds_read_u8_d16_hi", {.run = read_part<u8, [](u32 old, u8 x) { return (old & 0xffff) | u32(x) << 16; }>}},
      {"ds_read_i8_d16", {.run = read_part<i8, [](u32 old, i8 x) { return (old & 0xffff0000) | u16(x); }>}},
      {"ds_read_i8_d16_hi", {.run = read_part<i8, [](u32 old, i8 x) { return (old & 0xffff) | u32(u16(x)) << 16; }>}},
      {"ds_read_u16_d16", {.run = read_part<u16, [](u32 old, u16 x) { return (old & 0xffff0000) | x; }>}},
      {"ds_read_u16_d16_hi", {.run = read_part<u16, [](u32 old, u16 x) { return (old & 0xffff) | u32(x) << 16; }>}},
      {"ds_write_b8", {.run = write_part<u8, 0>}},
      {"ds_write_b8_d16_hi", {.run = write_part<u8, 16>}},
      {"ds_write_b16", {.run = write_part<u16, 0>}},
      {"ds_write_b16_d16_hi", {.run = write_part<u16, 16>}},
      {"ds_read2_b32", {.run = read_two<4, 1>}},
      {"ds_read2_b64", {.run = read_two<8, 1>}},
      {"ds_read2st64_b32", {.run = read_two<4, 64>}},
      {"ds_read2st64_b64", {.run = read_two<8, 64>}},
      {"ds_write2_b32", {.run = write_two<4, 1>}},
      {"ds_write2_b64", {.run = write_two<8, 1>}},
      {"ds_write2st64_b32", {.run = write_two<4, 64>}},
      {"ds_write2st64_b64", {.run = write_two<8, 64>}},
      {"ds_wrxchg2_rtn_b32", {.run = exchange_two<4, 1>}},
      {"ds_wrxchg2_rtn_b64", {.run = exchange_two<8, 1>}},
      {"ds_wrxchg2st64_rtn_b32", {.run = exchange_two<4, 64>}},
      {"ds_wrxchg2st64_rtn_b64", {.run = exchange_two<8, 64>}},
      {"ds_read_addtid_b32",
       {.run =
            [](wave& w, op const& o) {
              row address, r;
              lane_addresses(w, address);
              if (each_address<4>(w, w.exec(), address.lane, u32(o.imm),
                                  [&](int l, u8 const* from) { std::memcpy(&r[l], from, 4); }))
                write_row(w.v[o.arg[0].reg], r.lane, w.exec());
            }}},
      {"ds_write_addtid_b32",
       {.run =
            [](wave& w, op const& o) {
              row address;
              lane_addresses(w, address);
              each_address<4>(w, w.exec(), address.lane, u32(o.imm),
                              [&](int l, u8* to) { std::memcpy(to, &w.v[o.arg[2].reg][l], 4); });
            }}},
  });
}

}  // namespace

void add_lds(registry& r) {
  add_access(r);
  add_updates<u32, i32, float>(r, "32");
  add_updates<u64, i64, double>(r, "64");
  add_update<u32, [](u32 m, u32 d, u32) {
    return packed(as<u16>(f16(half_of(m, 0) + half_of(d, 0))), as<u16>(f16(half_of(m, 1) + half_of(d, 1))));
  }>(r, "pk_add", "f16");
  add_update<u32, [](u32 m, u32 d, u32) {
    return packed(to_bf16(bf16_of(m, 0) + bf16_of(d, 0)), to_bf16(bf16_of(m, 1) + bf16_of(d, 1)));
  }>(r, "pk_add", "bf16");
  r.add("ds_wrap_rtn_b32", {.run = update<u32, [](u32 m, u32 d, u32 e) { return m >= d ? m - d : m + e; }, true>});
  r.add("ds_condxchg32_rtn_b64", {.run = update<u64,
                                                [](u64 m, u64 d, u64) {
                                                  u64 const low = d >> 31 & 1 ? d & 0x7fffffff : m & 0xffffffff,
                                                            high = d >> 63 ? d >> 32 & 0x7fffffff : m >> 32;
                                                  return high << 32 | low;
                                                },
                                                true>});
  r.add("ds_append", {.run = count<1>});
  r.add("ds_consume", {.run = count<-1>});
  r.add("ds_bpermute_b32", {.run = gather});
  r.add("ds_permute_b32", {.run = scatter});
  r.add("ds_swizzle_b32", {.run = swizzle});
}

}  // namespace fusewire::sim
