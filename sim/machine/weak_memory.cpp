#include "machine/weak_memory.hpp"

#include <algorithm>

#include "machine/rmw.hpp"

namespace fusewire::sim {
namespace {

u8* host(u64 address) { return reinterpret_cast<u8*>(address); }
u32 pick(random_source& chance, std::initializer_list<u32> choices) { return choices.begin()[chance.below(static_cast<u32>(choices.size()))]; }

}  // namespace

weak_memory::weak_memory(node& n) : node_memory(n), gpus_(static_cast<std::size_t>(n.settings.gpus)) {
  for (gpu_caches& g : gpus_) g.l1.resize(static_cast<std::size_t>(n.settings.cus));
  delay_one_in_ = pick(n.chance, {1, 2, 4});
  arrive_one_in_ = pick(n.chance, {2, 8, 32});
  evict_one_in_ = pick(n.chance, {0, 4, 64});
}

l1_cache& weak_memory::l1(int gpu, int cu) {
  auto& slot = gpus_[gpu].l1[cu];
  if (!slot) slot = std::make_unique<l1_cache>();
  return *slot;
}

weak_memory::type weak_memory::type_of(allocation const& a, int gpu) {
  if (a.gpu < 0) return type::uc;
  bool const local = a.gpu == gpu;
  if (a.kind == memory_kind::uncached) return local ? type::cc : type::uc;
  return local ? type::rw : type::nc;
}

void weak_memory::to_memory(cache_line& line) {
  node_.changes += merge(host(line.address), line.data, line.mask);
  line.mask = {};
}

/// The line as this XCD's L2 would deliver it.
u8 const* weak_memory::view_l2(group_memory& g, cache_bits bits, u64 line, type t, u8* scratch) {
  if (t == type::rw) {
    l2_cache::slot const* s = g.l2->find(line);
    if (!s || !s->mask.any()) return host(line);
    copy_line(scratch, host(line));
    merge(scratch, s->data, s->mask);
    return scratch;
  }
  if (t != type::nc) return host(line);
  l2_cache::slot* s = g.l2->find(line);
  if (s && bits.sc0 && bits.sc1) {
    if (s->mask.any()) to_memory(*s);
    copy_line(s->data, host(line));
    g.l2->set_whole(*s);
    return s->data;
  }
  if (s && g.l2->whole(*s)) return s->data;
  if (!s) s = &g.l2->insert(line, true, node_.chance, [&](l2_cache::slot& victim) { to_memory(victim); });
  byte_mask clean{~s->mask.half[0], ~s->mask.half[1]};
  merge(s->data, host(line), clean);
  g.l2->set_whole(*s);
  return s->data;
}

/// The line as the wave sees it; wave_memory::last is its allocation.
u8 const* weak_memory::view(wave& w, cache_bits bits, u64 line, u8* scratch) {
  group_memory& g = *w.pending->group;
  type const t = type_of(*w.pending->last, g.gpu);
  u8 const* found;
  if (t == type::uc) {
    found = host(line);
  } else if (bits.sc0 || bits.sc1) {
    g.l1->drop(line);
    found = view_l2(g, bits, line, t, scratch);
  } else {
    found = g.l1->find(line);
    if (!found) found = g.l1->fill(line, view_l2(g, bits, line, t, scratch));
  }
  for (store_in_flight const& s : g.stores) {
    if (s.line.address != line) continue;
    if (found != scratch) found = copy_line(scratch, found);
    merge(scratch, s.line.data, s.line.mask);
  }
  return found;
}

bool weak_memory::load(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, u32 (*out)[lanes]) {
  ++w.pending->issued;
  u64 line = ~u64{0};
  u8 const* seen = nullptr;
  alignas(64) u8 scratch[line_bytes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    u64 const a = address[l];
    if (!allowed(w, access::read, a, bytes)) return false;
    count(w, access::read, bytes);
    u64 const offset = a & (line_bytes - 1);
    if (a - offset != line) seen = view(w, bits, line = a - offset, scratch);
    if (offset + static_cast<u64>(bytes) <= line_bytes) {
      gather(seen + offset, bytes, out, l);
    } else {
      u8 parts[16];
      u64 const first = line_bytes - offset;
      copy_bytes(parts, seen + offset, first);
      seen = view(w, bits, line += line_bytes, scratch);
      copy_bytes(parts + first, seen, static_cast<u64>(bytes) - first);
      gather(parts, bytes, out, l);
    }
  }
  note_poll(w, mask, address, out);
  return true;
}

bool weak_memory::store(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) {
  wave_memory& wm = *w.pending;
  ++wm.issued;
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
  return true;
}

void weak_memory::send(wave& w, store_in_flight&& s) {
  group_memory& g = *w.pending->group;
  g.l1->drop(s.line.address);
  if (g.stores.size() >= 256) drain_line(g, g.stores.front().line.address);
  bool const follows = std::ranges::any_of(g.stores, [&](store_in_flight const& o) { return o.line.address == s.line.address; });
  if (follows || node_.chance.one_in(delay_one_in_))
    g.stores.push_back(s);
  else
    arrive(g, s);
}

/// The store reaches the L2.
void weak_memory::arrive(group_memory& g, store_in_flight const& s) {
  u64 const line = s.line.address;
  g.l1->drop(line);
  type const t = type_of(*s.where, g.gpu);
  bool const through = t == type::cc || t == type::uc || (t == type::rw && s.bits.sc1) || (t == type::nc && s.bits.sc0 && s.bits.sc1);
  l2_cache::slot* slot = t == type::rw || t == type::nc ? g.l2->find(line) : nullptr;
  if (through) {
    if (slot) {
      slot->mask.remove(s.line.mask);
      merge(slot->data, s.line.data, s.line.mask);
    }
    bool const changed = merge(host(line), s.line.data, s.line.mask);
    node_.changes += changed;
    node_.published |= changed && s.bits.sc1;
    return;
  }
  if (!slot) slot = &g.l2->insert(line, t == type::nc, node_.chance, [&](l2_cache::slot& victim) { to_memory(victim); });
  slot->mask.add(s.line.mask);
  node_.changes += merge(slot->data, s.line.data, s.line.mask);
  g.l2->list(*slot);
}

void weak_memory::drain_line(group_memory& g, u64 line) {
  for (store_in_flight const& s : g.stores)
    if (s.line.address == line) arrive(g, s);
  std::erase_if(g.stores, [&](store_in_flight const& s) { return s.line.address == line; });
}

void weak_memory::wait_vmcnt(wave& w, int outstanding) {
  group_memory& g = *w.pending->group;
  if (g.stores.empty()) return;
  u64 const done = w.pending->issued - std::min(w.pending->issued, static_cast<u64>(outstanding));
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
}

bool weak_memory::atomic(wave& w, cache_bits bits, rmw op, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes], u32 const (*compare)[lanes], u32 (*old)[lanes]) {
  wave_memory& wm = *w.pending;
  group_memory& g = *wm.group;
  ++wm.issued;
  u32 found[2][lanes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!allowed(w, access::atomic, address[l], bytes)) return false;
    if (address[l] % static_cast<u64>(bytes)) {
      fault(w, "misaligned atomic of " + std::to_string(bytes) + " bytes at " + describe(node_.memory, address[l], wm.last));
      return false;
    }
    if (wm.last->gpu >= 0 && wm.last->gpu != g.gpu && !(bits.sc0 && bits.sc1)) {
      fault(w, "atomic with agent scope on memory of another GPU: not atomic there; use system scope: " + describe(node_.memory, address[l], wm.last));
      return false;
    }
    count(w, access::atomic, bytes);
    u64 const line = line_of(address[l]);
    if (!g.stores.empty()) drain_line(g, line);
    g.l1->drop(line);
    l2_cache::slot* slot = g.l2->find(line);
    if (slot && slot->mask.any()) to_memory(*slot);
    bool const changed = update(host(address[l]), op, bytes, l, data, compare, found);
    node_.changes += changed;
    node_.published |= changed;
    if (slot && g.l2->whole(*slot)) {
      byte_mask there;
      there.add(static_cast<u32>(address[l] - line), static_cast<u32>(bytes));
      merge(slot->data, host(line), there);
    }
  }
  note_poll(w, mask, address, found);
  if (old)
    for (u64 m = mask; m; m &= m - 1) {
      int const l = std::countr_zero(m);
      old[0][l] = found[0][l];
      if (bytes == 8) old[1][l] = found[1][l];
    }
  return true;
}

void weak_memory::writeback(wave& w, cache_bits bits) {
  ++w.pending->issued;
  if (!bits.sc1) return;
  wait_vmcnt(w, 0);  // the wave's own stores are ahead of the writeback on the same path
  bool const system = bits.sc0;
  w.pending->group->l2->writeback([&](l2_cache::slot const& s) { return system || !s.remote; }, [&](l2_cache::slot& s) { to_memory(s); });
}

void weak_memory::invalidate(wave& w, cache_bits bits) {
  ++w.pending->issued;
  group_memory& g = *w.pending->group;
  g.l1->invalidate();
  if (bits.sc0 && bits.sc1) g.l2->invalidate();
}

void weak_memory::kernel_begins(int gpu) {
  for (auto& l1 : gpus_[gpu].l1)
    if (l1) l1->invalidate();
  for (l2_cache& l2 : gpus_[gpu].l2) l2.invalidate();
}

void weak_memory::kernel_ends(int gpu) {
  for (l2_cache& l2 : gpus_[gpu].l2) l2.writeback([](auto const&) { return true; }, [&](l2_cache::slot& s) { to_memory(s); });
}

void weak_memory::group_ends(group_memory& g) {
  for (store_in_flight const& s : g.stores) arrive(g, s);
  g.stores.clear();
}

void weak_memory::tick(group_memory& g) {
  if (!g.stores.empty() && node_.chance.one_in(2)) {
    u32 const tries = 1 + static_cast<u32>(g.stores.size()) / 4;
    for (u32 i = 0; i < tries && !g.stores.empty(); ++i)
      if (node_.chance.one_in(arrive_one_in_)) drain_line(g, g.stores[node_.chance.below(static_cast<u32>(g.stores.size()))].line.address);
  }
  if (evict_one_in_ && !g.l2->dirty().empty() && node_.chance.one_in(evict_one_in_)) {
    l2_cache::slot* s = g.l2->dirty()[node_.chance.below(static_cast<u32>(g.l2->dirty().size()))];
    if (s->mask.any()) to_memory(*s);
  }
}

std::string weak_memory::hidden(u64 address, group_memory const& reader) const {
  u64 const line = line_of(address);
  u32 const at = static_cast<u32>(address - line);
  for (std::size_t g = 0; g < gpus_.size(); ++g)
    for (std::size_t x = 0; x < max_xcds; ++x) {
      l2_cache::slot const* s = gpus_[g].l2[x].find(line);
      if (!s) continue;
      std::string const where = "the L2 of GPU " + std::to_string(g) + " XCD " + std::to_string(x);
      bool const own = static_cast<int>(g) == reader.gpu && static_cast<int>(x) == reader.xcd;
      if (!own && s->mask.half[at >> 6] >> (at & 63) & 1) return where + " holds a newer value that was never written back (release with system scope missing)";
      if (own && s->remote && gpus_[g].l2[x].whole(*s) && differ(s->data + at, host(address), 4)) return where + " holds an old copy (acquire with system scope missing)";
    }
  if (u8 const* l1 = reader.l1 ? reader.l1->find(line) : nullptr; l1 && differ(l1 + at, host(address), 4)) return "the CU's L1 holds an old copy (acquire missing)";
  return {};
}

}  // namespace fusewire::sim
