// Stores, loads, atomics and writebacks of a workgroup that have been issued and have not taken effect.
#include <algorithm>

#include "machine/weak_memory.hpp"

namespace fusewire::sim {
namespace {

constexpr u32 most_in_flight = 63;  // of a wave: vmcnt has 6 bits, and what would make it overflow is not issued

bool straddles(u64 address, int bytes) { return (address & (line_bytes - 1)) + static_cast<u64>(bytes) > line_bytes; }

}  // namespace

void weak_memory::issue(wave& w) {
  group_memory& g = *w.pending->group;
  if (g.stores.size() + g.operations.size() >= most_in_flight) wait_vmcnt(w, most_in_flight - 1);
  ++w.pending->issued;
}

/// Called before the wave issues an operation that brings a value to these registers: values come to registers in the
/// order of issue (CDNA3 ISA, VM_CNT).
void weak_memory::keep_order(wave& w, destination const& to) {
  group_memory& g = *w.pending->group;
  if (!to.put) return;
  for (std::size_t i = 0; i < g.operations.size();) {
    operation_in_flight const& o = *g.operations[i];
    if (o.by == &w && o.to.put && o.to.reg < to.reg + to.dwords && to.reg < o.to.reg + o.to.dwords) {
      finish(g, i);
      i = 0;
    } else {
      ++i;
    }
  }
}

void weak_memory::put_in_flight(wave& w, bool is_atomic, cache_bits bits, u64 mask, u64 const* address, int bytes,
                                destination const& to, rmw what, u32 const (*data)[lanes],
                                u32 const (*compare)[lanes]) {
  group_memory& g = *w.pending->group;
  if (spare_.empty()) spare_.push_back(std::make_unique<operation_in_flight>());
  auto o = std::move(spare_.back());
  spare_.pop_back();
  o->by = &w, o->pc = w.pc, o->number = w.pending->issued;
  o->is_atomic = is_atomic, o->bits = bits, o->what = what, o->bytes = bytes, o->to = to, o->mask = mask,
  o->first = std::countr_zero(mask);
  o->pieces = 0;
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    o->address[l] = address[l];
    if (!o->pieces || o->piece_of[o->pieces - 1].line != line_of(address[l]))
      o->piece_of[o->pieces++] = {line_of(address[l]), 0};
    o->piece_of[o->pieces - 1].mask |= u64{1} << l;
  }
  for (u32 p = 0; p < o->pieces; ++p) (is_atomic ? g.atomics : g.loads).add(o->piece_of[p].line);
  if (is_atomic)
    for (int d = 0; d < bytes / 4; ++d) {
      std::copy_n(data[d], lanes, o->data[d]);
      if (compare) std::copy_n(compare[d], lanes, o->compare[d]);
    }
  g.operations.push_back(std::move(o));
}

void weak_memory::perform(operation_in_flight& o, u64 mask) {
  u32 const pc = mask >> o.first & 1 ? o.pc : nowhere;
  if (o.is_atomic || o.bits.sc1)
    note_race(*o.by, o.is_atomic ? race_checker::access::update : race_checker::access::read, o.bits, o.pc, mask,
              o.address, o.bytes);
  if (o.is_atomic)
    act(*o.by, o.bits, pc, o.what, mask, o.address, o.bytes, o.data, o.what == rmw::cmpswap ? o.compare : nullptr,
        o.to);
  else read(*o.by, o.bits, pc, mask, o.address, o.bytes, o.to);
}

void weak_memory::retire(group_memory& g, std::size_t i) {
  spare_.push_back(std::move(g.operations[i]));
  g.operations.erase(g.operations.begin() + static_cast<std::ptrdiff_t>(i));
}

/// All loads and atomics on the line take effect, in the order of issue.
void weak_memory::settle(group_memory& g, u64 line) {
  if (!g.loads.at(line) && !g.atomics.at(line)) return;
  for (std::size_t i = 0; i < g.operations.size();) {
    operation_in_flight& o = *g.operations[i];
    for (u32 p = 0; p < o.pieces; ++p) {
      auto& piece = o.piece_of[p];
      if (piece.line != line || !piece.mask) continue;
      perform(o, piece.mask);
      o.mask &= ~piece.mask;
      piece.mask = 0;
      (o.is_atomic ? g.atomics : g.loads).remove(line);
    }
    if (o.mask) ++i;
    else retire(g, i);
  }
}

/// Operation i takes effect completely, and so do the parts of others that must come before it.
void weak_memory::finish(group_memory& g, std::size_t i) {
  operation_in_flight& o = *g.operations[i];
  bool alone = !o.is_atomic;  // no load on these lines came before it
  for (u32 p = 0; p < o.pieces && alone; ++p) alone = !o.piece_of[p].mask || g.loads.at(o.piece_of[p].line) == 1;
  if (alone) {
    for (u32 p = 0; p < o.pieces; ++p)
      if (o.piece_of[p].mask) g.loads.remove(o.piece_of[p].line);
    perform(o, o.mask);
    retire(g, i);
    return;
  }
  std::array<operation_in_flight::piece, lanes> pieces;
  u32 const n = o.pieces;
  std::copy_n(o.piece_of, n, pieces.begin());
  for (u32 p = 0; p < n; ++p)
    if (pieces[p].mask) settle(g, pieces[p].line);
}

void weak_memory::wait_vmcnt(wave& w, int outstanding) {
  group_memory& g = *w.pending->group;
  note_wait(w, outstanding);
  if (g.quiet()) return;
  u64 const done = done_before(w, outstanding);
  for (std::size_t i = 0; i < g.operations.size();) {
    operation_in_flight const& o = *g.operations[i];
    if (o.by == &w && o.number <= done) {
      finish(g, i);
      i = 0;
    } else {
      ++i;
    }
  }
  // Older stores of other waves to the same lines go first.
  for (std::size_t i = 0; i < g.stores.size();) {
    store_in_flight const& s = g.stores[i];
    if (s.by == &w && s.number <= done) {
      drain_line(g, s.line.address);
      i = 0;
    } else {
      ++i;
    }
  }
  for (writeback_in_flight const& b : g.writebacks)
    if (b.by == &w && b.number <= done) complete(g, b);
  std::erase_if(g.writebacks, [&](writeback_in_flight const& b) { return b.by == &w && b.number <= done; });
}

bool weak_memory::load(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, destination const& to) {
  group_memory& g = *w.pending->group;
  bool later = late_one_in_ && node_.chance.one_in(late_one_in_);
  for (u64 m = mask; m; m &= m - 1) {
    u64 const a = address[std::countr_zero(m)];
    if (!allowed(w, access::read, a, bytes)) return false;
    count(w, access::read, bytes);
    if (straddles(a, bytes)) later = false;
  }
  keep_order(w, to);
  if (!g.operations.empty())
    for (u64 m = mask; m; m &= m - 1) {
      u64 const a = address[std::countr_zero(m)];
      if (g.atomics.at(line_of(a)) || !later) settle(g, line_of(a));
      if (straddles(a, bytes)) settle(g, line_of(a) + line_bytes);
    }
  if (!later || !bits.sc1) note_race(w, race_checker::access::read, bits, w.pc, mask, address, bytes);
  if (!later) return read(w, bits, w.pc, mask, address, bytes, to);
  put_in_flight(w, false, bits, mask, address, bytes, to, {}, nullptr, nullptr);
  return true;
}

bool weak_memory::store(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) {
  wave_memory& wm = *w.pending;
  store_in_flight s;
  s.by = &w, s.number = wm.issued, s.bits = bits;
  auto const put = [&](u64 a, u8 const* data, u32 n) {
    if (line_of(a) != s.line.address) {
      if (s.line.mask.any()) send(w, std::move(s));
      s.line.address = line_of(a), s.line.mask = {}, s.where = wm.last;
    }
    u32 const offset = static_cast<u32>(a & (line_bytes - 1));
    std::memcpy(s.line.data + offset, data, n);
    s.line.mask.add(offset, n);
  };
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    u64 const a = address[l];
    if (!allowed(w, access::write, a, bytes)) return false;
    count(w, access::write, bytes);
    u8 data[16];
    scatter(data, bytes, in, l);
    u32 const first = static_cast<u32>(std::min<u64>(line_of(a) + line_bytes - a, static_cast<u64>(bytes)));
    put(a, data, first);
    if (first < static_cast<u32>(bytes)) put(a + first, data + first, static_cast<u32>(bytes) - first);
  }
  if (s.line.mask.any()) send(w, std::move(s));
  note_race(w, race_checker::access::write, bits, w.pc, mask, address, bytes);
  return true;
}

void weak_memory::send(wave& w, store_in_flight&& s) {
  group_memory& g = *w.pending->group;
  settle(g, s.line.address);
  g.l1->drop(s.line.address);
  if (g.stores.size() >= 256) drain_line(g, g.stores.front().line.address);
  bool const follows =
      std::ranges::any_of(g.stores, [&](store_in_flight const& o) { return o.line.address == s.line.address; });
  if (follows || node_.chance.one_in(delay_one_in_)) g.stores.push_back(s);
  else arrive(g, s);
}

void weak_memory::drain_line(group_memory& g, u64 line) {
  for (store_in_flight const& s : g.stores)
    if (s.line.address == line) arrive(g, s);
  std::erase_if(g.stores, [&](store_in_flight const& s) { return s.line.address == line; });
}

bool weak_memory::atomic(wave& w, cache_bits bits, rmw op, u64 mask, u64 const* address, int bytes,
                         u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& old) {
  group_memory& g = *w.pending->group;
  bool const later = late_one_in_ && node_.chance.one_in(late_one_in_);
  for (u64 m = mask; m; m &= m - 1) {
    u64 const a = address[std::countr_zero(m)];
    if (!allowed(w, access::atomic, a, bytes)) return false;
    allocation const& where = *w.pending->last;
    if (a % static_cast<u64>(bytes)) {
      fault(w, "misaligned atomic of " + std::to_string(bytes) + " bytes at " + describe(node_.memory, a, &where));
      return false;
    }
    if (where.gpu >= 0 && where.gpu != g.gpu && !(bits.sc0 && bits.sc1)) {
      fault(w, "atomic with agent scope on memory of another GPU: not atomic there; use system scope: " +
                   describe(node_.memory, a, &where));
      return false;
    }
    count(w, access::atomic, bytes);
  }
  keep_order(w, old);
  if (!g.operations.empty())
    for (u64 m = mask; m; m &= m - 1) {
      u64 const line = line_of(address[std::countr_zero(m)]);
      if (g.loads.at(line) || !later) settle(g, line);
    }
  if (!later) note_race(w, race_checker::access::update, bits, w.pc, mask, address, bytes);
  if (!later) return act(w, bits, w.pc, op, mask, address, bytes, data, compare, old);
  put_in_flight(w, true, bits, mask, address, bytes, old, op, data, compare);
  return true;
}

void weak_memory::writeback(wave& w, cache_bits bits) {
  issue(w);
  group_memory& g = *w.pending->group;
  if (node_.races) node_.races->writeback(w, bits);
  if (!bits.sc1) return;
  g.writebacks.push_back({&w, w.pending->issued, g.l2->time(), bits.sc0, {}});
  for (store_in_flight const& s : g.stores)
    if (s.by == &w) g.writebacks.back().own.push_back(s.line.address);
}

void weak_memory::complete(group_memory& g, writeback_in_flight const& b) {
  for (u64 const line : b.own) drain_line(g, line);
  auto const write = [&](l2_cache::slot& s) {
    if (b.system) to_memory(s);
    else release(g.gpu, g.xcd, s);
  };
  g.l2->writeback([&](l2_cache::slot const& s) { return s.since <= b.until && (b.system || !s.remote); }, write);
  for (u64 const line : b.own)
    if (l2_cache::slot* const s = g.l2->find(line); s && s->mask.any() && (b.system || !s->remote)) write(*s);
  if (!b.system) return;
  auto const mine = [&](l2_cache::slot const& s) { return (s.xcds >> g.xcd & 1) != 0; };
  gpus_[g.gpu].released.writeback(mine, [&](l2_cache::slot& s) { unrelease(s.address, nullptr); });
}

void weak_memory::group_ends(group_memory& g) {
  while (!g.operations.empty()) {
    if (g.operations.front()->is_atomic) finish(g, 0);
    else retire(g, 0);
  }
  g.loads = {};
  for (store_in_flight const& s : g.stores) arrive(g, s);
  g.stores.clear();
  for (writeback_in_flight const& b : g.writebacks) complete(g, b);
  g.writebacks.clear();
}

void weak_memory::tick(group_memory& g) {
  auto const any_of = [&](auto const& list) { return node_.chance.below(static_cast<u32>(list.size())); };
  auto const now = [&] { return node_.chance.one_in(arrive_one_in_); };
  if (!g.stores.empty() && node_.chance.one_in(2))
    for (std::size_t tries = 1 + g.stores.size() / 4; tries && !g.stores.empty(); --tries)
      if (now()) drain_line(g, g.stores[any_of(g.stores)].line.address);
  if (!g.operations.empty() && node_.chance.one_in(2))
    for (std::size_t tries = 1 + g.operations.size() / 2; tries && !g.operations.empty(); --tries) {
      if (!now()) continue;
      operation_in_flight const& o = *g.operations[any_of(g.operations)];
      settle(g, o.piece_of[node_.chance.below(o.pieces)].line);
    }
  if (!g.writebacks.empty() && now()) {
    std::size_t const i = any_of(g.writebacks);
    complete(g, g.writebacks[i]);
    g.writebacks.erase(g.writebacks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  auto const evict = [&](l2_cache& cache, auto write) {
    if (!evict_one_in_ || cache.dirty().empty() || !node_.chance.one_in(evict_one_in_)) return;
    l2_cache::slot* s = cache.dirty()[any_of(cache.dirty())];
    if (s->mask.any()) write(*s);
  };
  evict(*g.l2, [&](l2_cache::slot& s) { to_memory(s); });
  evict(gpus_[g.gpu].released, [&](l2_cache::slot& s) { unrelease(s.address, nullptr); });
}

}  // namespace fusewire::sim
