#include "machine/timed_memory.hpp"

#include <cmath>

#include "machine/rmw.hpp"
#include "machine/wave_clock.hpp"

namespace fusewire::sim {
namespace {

/// The address that the clock uses. A launch's arguments lie in this process's heap, whose addresses differ from run to
/// run, and so would their lines' places in the caches.
u64 place_of(wave_memory const& m, u64 address) {
  constexpr u64 arguments = 0x1000'0000'0000, apart = u64{1} << 20;
  if (m.last->kind != memory_kind::kernarg) return address;
  return address - m.last->base + arguments + static_cast<u64>(m.group->gpu) * apart;
}

}  // namespace

timed_memory::timed_memory(node& n, timing const& t, event_wheel& events)
    : node_memory(n), paths(t, n), t_(t), events_(events) {}

void timed_memory::issue(wave& w) {
  node_memory::issue(w);
  ++counted;
}

/// Checks the lanes, and collects the lines that they need.
bool timed_memory::collect(wave& w, access a, u64 mask, u64 const* address, int bytes) {
  request_.count = 0;
  wave_memory const& m = *w.pending;
  auto const size = static_cast<u64>(bytes);
  for (u64 left = mask; left;) {
    int const first = std::countr_zero(left);
    int end = first + 1;  // of the lanes whose bytes follow each other
    while (end < lanes && left >> end & 1 && address[end] == address[end - 1] + size) ++end;
    u64 const at = address[first], all = size * static_cast<u64>(end - first);
    bool const known = a != access::atomic && m.last && m.last->live && m.last->covers(at, all) &&
                       (!m.last->parts || within_piece(w, at, static_cast<int>(all)));
    if (!known)
      for (int l = first; l < end; ++l)
        if (a == access::atomic ? !allowed_atomic(w, address[l], bytes) : !allowed(w, a, address[l], bytes))
          return false;
    count(w, a, all);
    request_.add(place_of(m, at), all);
    left = end == lanes ? 0 : left & ~u64{0} << end;
  }
  return true;
}

timed_operation& timed_memory::begin(wave& w, memory_request::kind access, cache_bits bits, u64 mask,
                                     u64 const* address, int bytes) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<timed_operation>());
    spare_.push_back(all_.back().get());
  }
  timed_operation& o = *spare_.back();
  spare_.pop_back();
  o.access = access, o.by = &w, o.memory = w.pending, o.serial = w.pending->serial, o.pc = w.pc, o.bits = bits,
  o.mask = mask, o.bytes = bytes;
  std::copy_n(address, lanes, o.address);
  return o;
}

/// `ordered`: the operation brings a value to registers.
void timed_memory::send(wave& w, timed_operation& o, bool ordered) {
  wave_memory const& m = *w.pending;
  wave_clock& k = *m.clock;
  allocation const& where = *m.last;
  traffic& counts = k.profile->bytes;
  request_.what = o.access, request_.bits = o.bits;
  request_.owner = where.kind == memory_kind::kernarg ? m.group->gpu : where.gpu;
  request_.uncached = where.kind == memory_kind::uncached || where.gpu < 0;
  passage p =
      paths.request(cu_path_of(k), m.group->gpu, m.group->xcd, static_cast<double>(issued_at), request_, counts);
  if (ordered) {
    k.last_effect = p.effect = std::max(p.effect, k.last_effect);
    p.done = std::max(p.done, p.effect + memory_paths::lookahead);
  }
  k.polls = o.access == memory_request::kind::read && request_.uncached;
  if (request_.uncached && o.access == memory_request::kind::read) ++counts.polls;
  if (request_.uncached && o.access == memory_request::kind::write && o.bits.sc1) ++counts.flags_raised;
  done_at = std::max(done_at, static_cast<u64>(std::ceil(p.done)));
  events_.put(o, static_cast<u64>(p.effect));
}

bool timed_memory::load(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, destination const& to) {
  if (!collect(w, access::read, mask, address, bytes)) return false;
  timed_operation& o = begin(w, memory_request::kind::read, bits, mask, address, bytes);
  o.to = to;
  send(w, o, true);
  return true;
}

bool timed_memory::store(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) {
  if (!collect(w, access::write, mask, address, bytes)) return false;
  timed_operation& o = begin(w, memory_request::kind::write, bits, mask, address, bytes);
  for (int d = 0; d < (bytes + 3) / 4; ++d) std::copy_n(in[d], lanes, o.data[d]);
  send(w, o, false);
  return true;
}

bool timed_memory::atomic(wave& w, cache_bits bits, rmw what, u64 mask, u64 const* address, int bytes,
                          u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& old) {
  if (!collect(w, access::atomic, mask, address, bytes)) return false;
  timed_operation& o = begin(w, memory_request::kind::atomic, bits, mask, address, bytes);
  o.update = what, o.to = old;
  for (int d = 0; d < bytes / 4; ++d) {
    std::copy_n(data[d], lanes, o.data[d]);
    if (compare) std::copy_n(compare[d], lanes, o.compare[d]);
  }
  send(w, o, old.put != nullptr);
  return true;
}

void timed_memory::announce(timed_operation const& o) const {
  __builtin_prefetch(&o.by->pending);
  __builtin_prefetch(&o.memory->serial);
  int const step = std::max(1, 64 / o.bytes);  // lanes that mostly share a line of the host's cache
  for (int l = std::countr_zero(o.mask); l < lanes; l += step)
    if (o.mask >> l & 1) __builtin_prefetch(reinterpret_cast<void const*>(o.address[l]));
  if (!o.to.put) return;
  auto const* const to = reinterpret_cast<u8 const*>(o.by->v[o.to.reg & 511]);
  for (std::size_t at = 0; at < o.to.dwords * sizeof o.by->v[0]; at += 64) __builtin_prefetch(to + at, 1);
}

/// Called when the operation's time has come. Its memory may have been freed since it was issued, and its wave may have
/// ended.
void timed_memory::perform(timed_operation& o) {
  wave& w = *o.by;
  bool const there = w.pending == o.memory && w.pending->serial == o.serial;
  using kind = memory_request::kind;
  if (o.access == kind::read) {
    if (there) {
      alignas(64) u32 out[4][lanes];
      for (u64 m = o.mask; m; m &= m - 1) {
        int const l = std::countr_zero(m);
        gather(reinterpret_cast<u8 const*>(o.address[l]), o.bytes, out, l);
      }
      note_poll(w, o.pc, o.mask, o.address, out);
      o.to.put(w, o.to, o.mask, out);
    }
  } else if (o.access == kind::write) {
    bool changed = false;
    for (u64 m = o.mask; m; m &= m - 1) {
      int const l = std::countr_zero(m);
      u8 now[16], *p = reinterpret_cast<u8*>(o.address[l]);
      scatter(now, o.bytes, o.data, l);
      changed |= differ(now, p, static_cast<u64>(o.bytes));
      scatter(p, o.bytes, o.data, l);
    }
    node_.changes += changed;
    if (!node_.watched.empty()) tell_outside(o);
  } else {
    alignas(64) u32 found[2][lanes];
    for (u64 m = o.mask; m; m &= m - 1) {
      int const l = std::countr_zero(m);
      node_.changes += update(reinterpret_cast<u8*>(o.address[l]), o.update, o.bytes, l, o.data,
                              o.update == rmw::cmpswap ? o.compare : nullptr, found);
    }
    if (there) {
      note_poll(w, o.pc, o.mask, o.address, found);
      if (o.to.put) o.to.put(w, o.to, o.mask, found);
    }
  }
  spare_.push_back(&o);
}

void timed_memory::tell_outside(timed_operation const& o) const {
  for (watched_bytes const& w : node_.watched)
    for (u64 m = o.mask; m; m &= m - 1) {
      u64 const at = o.address[std::countr_zero(m)];
      if (at < w.begin || at >= w.end) continue;
      w.tell(w.context);
      break;
    }
}

/// For scalar atomics, which act when they are issued.
bool timed_memory::act(wave& w, cache_bits, u32 pc, rmw op, u64 mask, u64 const* address, int bytes,
                       u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& old) {
  alignas(64) u32 found[2][lanes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    node_.changes += update(reinterpret_cast<u8*>(address[l]), op, bytes, l, data, compare, found);
  }
  note_poll(w, pc, mask, address, found);
  if (old.put) old.put(w, old, mask, found);
  return true;
}

bool timed_memory::scalar_load(wave& w, u64 address, int bytes, bool fresh, u32* out) {
  if (!node_memory::scalar_load(w, address, bytes, fresh, out)) return false;
  wave_memory const& m = *w.pending;
  u64 const place = place_of(m, address);
  for (u64 line = place / 64; line <= (place + static_cast<u64>(bytes) - 1) / 64; ++line) {
    bool const hit = !fresh && scalar_hit(*m.clock, line);
    double const done = hit ? static_cast<double>(issued_at) + t_.scalar_hit
                            : paths.scalar_load(m.group->gpu, m.group->xcd, static_cast<double>(issued_at), line * 64,
                                                m.clock->profile->bytes);
    scalar_done_at = std::max(scalar_done_at, static_cast<u64>(std::ceil(done)));
  }
  return true;
}

void timed_memory::writeback(wave& w, cache_bits bits) {
  issue(w);
  wave_memory const& m = *w.pending;
  double done = static_cast<double>(issued_at) + t_.address_cycles;
  if (bits.sc1)
    done = paths.writeback(m.group->gpu, m.group->xcd, std::max(done, static_cast<double>(m.clock->vm_latest)),
                           bits.sc0, m.clock->profile->bytes);
  done_at = std::max(done_at, static_cast<u64>(std::ceil(done)));
}

void timed_memory::invalidate(wave& w, cache_bits bits) {
  wave_memory const& m = *w.pending;
  if (!bits.sc1) return;
  cu_path_of(*m.clock).invalidate();
  if (bits.sc0) paths.drop_remote(m.group->gpu, m.group->xcd);
}

u64 timed_memory::clock(wave&) {
  ++node_.clock_reads;
  return issued_at + jumped;
}

/// The counters of all GPUs start together.
u64 timed_memory::real_time(wave& w) {
  return static_cast<u64>(static_cast<double>(clock(w)) * wall_clock_mhz / t_.mhz);
}

}  // namespace fusewire::sim
