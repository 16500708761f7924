#include "address.hpp"

#include "late.hpp"
#include "program.hpp"

namespace fusewire::sim {
namespace {

struct lane_addresses {
  alignas(64) u64 at[lanes];
};

void global_addresses(wave const& w, op const& o, lane_addresses& to) {
  u32 const* const low = w.v[o.arg[1].reg];
  u64 const offset = u64(i64(o.imm));
  if (o.arg[3].kind == source::sgpr) {
    u64 const base = read_scalar64(w, o.arg[3]) + offset;
    for (int l = 0; l < lanes; ++l) to.at[l] = base + low[l];
  } else {
    u32 const* const high = w.v[o.arg[1].reg + 1];
    for (int l = 0; l < lanes; ++l) to.at[l] = (low[l] | u64(high[l]) << 32) + offset;
  }
}

void scratch_offsets(wave const& w, op const& o, lane_addresses& to) {
  u32 const base = u32(o.imm) + (o.arg[3].kind == source::sgpr ? w.s[o.arg[3].reg] : 0);
  for (int l = 0; l < lanes; ++l) to.at[l] = base;
  if (o.arg[1].kind == source::vgpr)
    for (int l = 0; l < lanes; ++l) to.at[l] = u32(base + w.v[o.arg[1].reg][l]);
}

/// One byte range per lane of memory that this wave reaches directly.
template <class Access>
bool each_lane(u64 mask, Access access) {
  for (u64 left = mask; left; left &= left - 1)
    if (!access(std::countr_zero(left))) return false;
  return true;
}

u8* scratch_at(wave& w, int lane, u64 offset, u32 size) {
  if (offset + size <= w.scratch_bytes) return w.scratch + u64(lane) * w.scratch_bytes + offset;
  fault(w, "scratch access of " + std::to_string(size) + " bytes at " + hex(offset) + " in lane " +
               std::to_string(lane) + ", which has " + std::to_string(w.scratch_bytes) + " bytes");
  return nullptr;
}

bool load_bytes(u8 const* from, int lane, int bytes, u32 (*out)[lanes]) {
  if (!from) return false;
  if (bytes < 4) {
    out[0][lane] = bytes == 1 ? from[0] : from[0] | u32(from[1]) << 8;
    return true;
  }
  for (int d = 0; d < bytes / 4; ++d) std::memcpy(&out[d][lane], from + 4 * d, 4);
  return true;
}
bool store_bytes(u8* to, int lane, int bytes, u32 const (*in)[lanes]) {
  if (!to) return false;
  if (bytes < 4) {
    to[0] = u8(in[0][lane]);
    if (bytes == 2) to[1] = u8(in[0][lane] >> 8);
    return true;
  }
  for (int d = 0; d < bytes / 4; ++d) std::memcpy(to + 4 * d, &in[d][lane], 4);
  return true;
}

template <class T>
void update_as(u8* at, rmw what, int lane, u32 const (*data)[lanes], u32 const (*compare)[lanes], u32 (*old)[lanes]) {
  auto const value = [&](u32 const(*rows)[lanes]) {
    if constexpr (sizeof(T) == 8) return rows ? as<T>(rows[0][lane] | u64(rows[1][lane]) << 32) : T();
    else return rows ? as<T>(rows[0][lane]) : T();
  };
  T before;
  std::memcpy(&before, at, sizeof before);
  T const after = combined(what, before, value(data), value(compare));
  std::memcpy(at, &after, sizeof after);
  if (old) std::memcpy(&old[0][lane], &before, 4);
  if constexpr (sizeof(T) == 8)
    if (old) old[1][lane] = u32(as<u64>(before) >> 32);
}
bool update_bytes(u8* at, rmw what, int lane, int bytes, u32 const (*data)[lanes], u32 const (*compare)[lanes],
                  u32 (*old)[lanes]) {
  if (!at) return false;
  if (bytes == 8) update_as<u64>(at, what, lane, data, compare, old);
  else update_as<u32>(at, what, lane, data, compare, old);
  return true;
}

/// Flat: the upper half of an address says which memory it is in.
struct flat_split {
  u64 shared = 0, scratch = 0, global = 0;
};
flat_split split(lane_addresses const& a, u64 mask) {
  u64 shared = 0, scratch = 0;
  for (int l = 0; l < lanes; ++l) {
    shared |= u64(a.at[l] >> 32 == shared_aperture >> 32) << l;
    scratch |= u64(a.at[l] >> 32 == private_aperture >> 32) << l;
  }
  return {shared & mask, scratch & mask, mask & ~shared & ~scratch};
}

// ------------------------------------------------------------------------------------------------------------- buffers

/// CDNA3 ISA, "Buffer addressing": base + scalar offset + offset + index * stride. Beyond num_records, loads give 0 and
/// stores are dropped, dword by dword. num_records counts bytes; where the instruction has an index and the resource a
/// stride, it counts records.
struct buffer_addresses {
  lane_addresses where;
  u64 inside[4] = {};  // lanes in range, per dword
  bool ok = true;
};

buffer_addresses buffer_lanes(wave& w, op const& o, int bytes) {
  buffer_addresses r;
  u32 const* const resource = &w.s[o.arg[4].reg];
  u64 const base = (resource[0] | u64(resource[1]) << 32) & 0xffffffffffff;
  u32 const stride = resource[1] >> 16 & 0x3fff, records = resource[2], scalar_offset = read_scalar32(w, o.arg[3]);
  if (resource[1] >> 31 || resource[3] >> 23 & 1) {
    fault(w, "buffer resource with swizzle or thread-id addressing");
    r.ok = false;
    return r;
  }
  u32 const* const index = o.index_enable ? w.v[o.arg[1].reg] : nullptr;
  u32 const* const offset = o.offset_enable ? w.v[o.arg[1].reg + (index ? 1 : 0)] : nullptr;
  int const dwords = (bytes + 3) / 4;
  for (int l = 0; l < lanes; ++l) {
    u64 const i = index ? index[l] : 0, from = u64(u32((offset ? offset[l] : 0) + u32(o.imm))) + scalar_offset;
    r.where.at[l] = base + from + i * stride;
    for (int d = 0; d < dwords; ++d) {
      u64 const end = from + std::min(4 * d + 4, bytes);
      r.inside[d] |= u64(index && stride ? i < records : end <= records) << l;
    }
  }
  return r;
}

/// Calls access(mask, addresses, first dword, bytes) for runs of lanes that agree on which dwords are in range.
template <class Access>
bool in_range(buffer_addresses& b, u64 mask, int bytes, Access access) {
  int const dwords = (bytes + 3) / 4;
  u64 const whole = b.inside[dwords - 1] & b.inside[0] & mask;
  if (whole && !access(whole, b.where.at, 0, bytes)) return false;
  for (int d = 0; d < dwords && dwords > 1; ++d) {
    u64 const part = b.inside[d] & mask & ~whole;
    if (!part) continue;
    lane_addresses dword = b.where;
    for (int l = 0; l < lanes; ++l) dword.at[l] += 4 * d;
    if (!access(part, dword.at, d, 4)) return false;
  }
  return true;
}

}  // namespace

u8* lds_at(wave& w, u64 address, u32 size) {
  auto& lds = w.group->lds;
  if (address + size <= lds.size()) [[likely]]
    return lds.data() + address;
  fault(w, "LDS access of " + std::to_string(size) + " bytes at " + hex(address) + "; the workgroup has " +
               std::to_string(lds.size()) + " bytes");
  return nullptr;
}

void store_lane_dwords(wave& w, u32 base, u64 mask, u32 const* data) {
  each_lane(mask, [&](int l) {
    u8* const to = lds_at(w, base + 4 * u32(l), 4);
    if (to) std::memcpy(to, &data[l], 4);
    return to != nullptr;
  });
}

bool load_segment(wave& w, op const& o, segment where, u64 mask, int bytes, destination const& to) {
  lane_addresses a;
  // LDS and scratch: the value comes at once
  auto const own = [&](u64 some, auto place) {
    if (some == 0) return true;
    row data[4] = {};
    if (!each_lane(some, [&](int l) { return load_bytes(place(l), l, bytes, &data[0].lane); })) return false;
    to.put(w, to, some, &data[0].lane);
    return true;
  };
  switch (where) {
    case segment::global: global_addresses(w, o, a); return w.memory->load(w, o.cache, mask, a.at, bytes, to);
    case segment::scratch:
      scratch_offsets(w, o, a);
      return own(mask, [&](int l) { return scratch_at(w, l, a.at[l], bytes); });
    case segment::flat: {
      global_addresses(w, o, a);
      flat_split const parts = split(a, mask);
      if (parts.shared) wait_lgkmcnt(w, 0);  // the simulator's order; none is promised
      return own(parts.shared, [&](int l) { return lds_at(w, u32(a.at[l]), bytes); }) &&
             own(parts.scratch, [&](int l) { return scratch_at(w, l, u32(a.at[l]), bytes); }) &&
             (!parts.global || w.memory->load(w, o.cache, parts.global, a.at, bytes, to));
    }
    case segment::buffer: {
      auto b = buffer_lanes(w, o, bytes);
      static row const zeros{};
      for (int d = 0; d < (bytes + 3) / 4; ++d) {
        destination const dword = to.from(d, 1);
        if (u64 const outside = mask & ~b.inside[d]) dword.put(w, dword, outside, &zeros.lane);
      }
      return b.ok && in_range(b, mask, bytes, [&](u64 some, u64 const* at, int dword, int size) {
               return w.memory->load(w, o.cache, some, at, size, to.from(dword, (size + 3) / 4));
             });
    }
  }
  return false;
}

bool store_segment(wave& w, op const& o, segment where, u64 mask, int bytes, u32 const (*in)[lanes]) {
  lane_addresses a;
  switch (where) {
    case segment::global: global_addresses(w, o, a); return w.memory->store(w, o.cache, mask, a.at, bytes, in);
    case segment::scratch:
      scratch_offsets(w, o, a);
      return each_lane(mask, [&](int l) { return store_bytes(scratch_at(w, l, a.at[l], bytes), l, bytes, in); });
    case segment::flat: {
      global_addresses(w, o, a);
      flat_split const to = split(a, mask);
      if (to.shared) wait_lgkmcnt(w, 0);
      return each_lane(to.shared, [&](int l) { return store_bytes(lds_at(w, u32(a.at[l]), bytes), l, bytes, in); }) &&
             each_lane(to.scratch,
                       [&](int l) { return store_bytes(scratch_at(w, l, u32(a.at[l]), bytes), l, bytes, in); }) &&
             (!to.global || w.memory->store(w, o.cache, to.global, a.at, bytes, in));
    }
    case segment::buffer: {
      auto b = buffer_lanes(w, o, bytes);
      return b.ok && in_range(b, mask, bytes, [&](u64 some, u64 const* at, int dword, int size) {
               return w.memory->store(w, o.cache, some, at, size, in + dword);
             });
    }
  }
  return false;
}

bool atomic_segment(wave& w, op const& o, segment where, rmw what, u64 mask, int bytes, u32 const (*data)[lanes],
                    u32 const (*compare)[lanes], destination const& old) {
  // sc0 of an atomic asks for the old value; its scope is sc1 alone: agent or system.
  cache_bits const scope{.sc0 = o.cache.sc1, .sc1 = true, .nt = o.cache.nt};
  auto const global = [&](u64 some, u64 const* at) {
    return w.memory->atomic(w, scope, what, some, at, bytes, data, compare, old);
  };
  lane_addresses a;
  auto const own = [&](u64 some, auto place) {
    if (some == 0) return true;
    row found[2] = {};
    if (!each_lane(some, [&](int l) { return update_bytes(place(l), what, l, bytes, data, compare, &found[0].lane); }))
      return false;
    if (old.put) old.put(w, old, some, &found[0].lane);
    return true;
  };
  switch (where) {
    case segment::global: global_addresses(w, o, a); return global(mask, a.at);
    case segment::flat: {
      global_addresses(w, o, a);
      flat_split const parts = split(a, mask);
      if (parts.shared) wait_lgkmcnt(w, 0);  // the simulator's order; none is promised
      return own(parts.shared, [&](int l) { return lds_at(w, u32(a.at[l]), bytes); }) &&
             own(parts.scratch, [&](int l) { return scratch_at(w, l, u32(a.at[l]), bytes); }) &&
             (!parts.global || global(parts.global, a.at));
    }
    case segment::buffer: {
      auto b = buffer_lanes(w, o, bytes);
      u64 const inside = b.inside[bytes / 4 - 1] & mask;
      static row const zeros[2]{};
      if (old.put && mask & ~inside) old.put(w, old, mask & ~inside, &zeros[0].lane);
      return b.ok && (!inside || global(inside, b.where.at));
    }
    case segment::scratch: break;
  }
  fault(w, "atomic on scratch memory");
  return false;
}

}  // namespace fusewire::sim
