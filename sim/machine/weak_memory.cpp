#include "machine/weak_memory.hpp"

#include <algorithm>

#include "machine/rmw.hpp"

namespace fusewire::sim {
namespace {

u8* host(u64 address) { return reinterpret_cast<u8*>(address); }
u32 pick(random_source& chance, std::initializer_list<u32> choices) {
  return choices.begin()[chance.below(static_cast<u32>(choices.size()))];
}

}  // namespace

weak_memory::weak_memory(node& n) : node_memory(n), gpus_(static_cast<std::size_t>(n.settings.gpus)) {
  for (gpu_caches& g : gpus_) {
    g.l1.resize(static_cast<std::size_t>(n.settings.cus));
    g.scalar.resize(static_cast<std::size_t>(n.settings.cus / 2 + 1));
  }
  delay_one_in_ = pick(n.chance, {1, 2, 4});
  late_one_in_ = pick(n.chance, {0, 1, 2, 4});
  late_local_one_in_ = pick(n.chance, {0, 0, 2, 8});
  arrive_one_in_ = pick(n.chance, {2, 8, 32});
  evict_one_in_ = pick(n.chance, {0, 4, 64});
  if (n.settings.cached_ipc) evict_one_in_ = 0;
}

l1_cache& weak_memory::l1(int gpu, int cu) {
  auto& slot = gpus_[gpu].l1[cu];
  if (!slot) slot = std::make_unique<l1_cache>();
  return *slot;
}

weak_memory::type weak_memory::type_of(allocation const& a, int gpu) {
  if (a.gpu < 0) return type::uc;
  bool const local = a.gpu == gpu;
  if (a.kind == memory_kind::uncached) return local ? type::cc : a.imported ? type::nc : type::uc;
  return local ? type::rw : type::nc;
}

// ---------------------------------------------------------------------------------------------- from the L2s to memory

/// The line's dirty bytes reach memory.
void weak_memory::to_memory(cache_line& line) {
  unrelease(line.address, &line.mask);
  node_.changes += merge(host(line.address), line.data, line.mask);
  line.mask = {};
}

/// Called before memory changes. Released lines give up the bytes that are written (null: the whole line, which goes to
/// memory).
void weak_memory::unrelease(u64 line, byte_mask const* written) {
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    if (l2_cache::slot* const s = released(static_cast<int>(gpu), line)) {
      if (written) {
        s->mask.remove(*written);
      } else {
        node_.changes += merge(host(line), s->data, s->mask);
        s->mask = {};
      }
    }
}

/// Bytes that an XCD has written to its own GPU's memory become visible to all XCDs.
void weak_memory::release(int gpu, int xcd, u64 line, u8 const* data, byte_mask const& mask) {
  if (node_.shared) {  // other processes, which could overwrite the bytes, do not see released lines
    node_.changes += merge(host(line), data, mask);
    return;
  }
  l2_cache& lines = gpus_[gpu].released;
  auto const evict = [&](l2_cache::slot& victim) {
    node_.changes += merge(host(victim.address), victim.data, victim.mask);
    victim.mask = {};
  };
  l2_cache::slot* s = lines.find(line);
  if (!s) s = &lines.insert(line, false, node_.chance, evict);
  if (!s->mask.any()) s->xcds = 0;
  node_.changes += lines.write(*s, data, mask);
  s->xcds |= static_cast<u8>(1u << xcd);
}
void weak_memory::release(int gpu, int xcd, l2_cache::slot& s) {
  release(gpu, xcd, s.address, s.data, s.mask);
  s.mask = {};
}

/// A store reaches the L2.
void weak_memory::arrive(group_memory& g, store_in_flight const& s) {
  u64 const line = s.line.address;
  g.l1->drop(line);
  type const t = type_of(*s.where, g.gpu);
  bool const system = s.bits.sc0 && s.bits.sc1 && !keeps(*s.where);
  l2_cache::slot* slot = t == type::rw || t == type::nc ? g.l2->find(line) : nullptr;
  if (t == type::cc || t == type::uc || system || (t == type::rw && s.bits.sc1)) {
    if (slot) {
      slot->mask.remove(s.line.mask);
      merge(slot->data, s.line.data, s.line.mask);
    }
    u64 const before = node_.changes;
    if (t == type::rw && !system) {
      release(g.gpu, g.xcd, line, s.line.data, s.line.mask);
    } else {
      unrelease(line, &s.line.mask);
      node_.changes += merge(host(line), s.line.data, s.line.mask);
    }
    node_.published |= node_.changes != before && s.bits.sc1;
    return;
  }
  if (!slot)
    slot = &g.l2->insert(line, t == type::nc, node_.chance, [&](l2_cache::slot& victim) { to_memory(victim); });
  node_.changes += g.l2->write(*slot, s.line.data, s.line.mask);
}

// ------------------------------------------------------------------------------------------------------------- reading

/// The line as this XCD's L2 would deliver it.
u8 const* weak_memory::view_l2(group_memory& g, cache_bits bits, u64 line, type t, u8* scratch) {
  if (t == type::rw) {
    l2_cache::slot const *const s = g.l2->find(line), *const r = released(g.gpu, line);
    if (!r && (!s || !s->mask.any())) return host(line);
    copy_line(scratch, host(line));
    if (r) merge(scratch, r->data, r->mask);
    if (s) merge(scratch, s->data, s->mask);
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
  } else if (bits.sc1) {
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

bool weak_memory::read(wave& w, cache_bits bits, u32 pc, u64 mask, u64 const* address, int bytes,
                       destination const& to) {
  alignas(64) u32 out[4][lanes];
  u64 line = ~u64{0};
  u8 const* seen = nullptr;
  alignas(64) u8 scratch[line_bytes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    u64 const a = address[l];
    if (!still_allowed(w, access::read, a, bytes)) return false;
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
  note_poll(w, pc, mask, address, out);
  to.put(w, to, mask, out);
  return true;
}

bool weak_memory::scalar_load(wave& w, u64 address, int bytes, bool fresh, u32* out) {
  if (!allowed(w, access::read, address, bytes)) return false;
  group_memory& g = *w.pending->group;
  type const t = type_of(*w.pending->last, g.gpu);
  if (t != type::uc) note_race(w, race_checker::access::read, {}, w.pc, 1, &address, bytes);
  if (t == type::uc) return node_memory::scalar_load(w, address, bytes, fresh, out);
  auto& cache = gpus_[g.gpu].scalar[static_cast<std::size_t>(g.cu / 2)];
  if (!cache) cache = std::make_unique<l1_cache>();
  alignas(64) u8 scratch[line_bytes];
  for (u64 a = address, end = address + static_cast<u64>(bytes); a < end;) {
    u64 const line = line_of(a), n = std::min(end, line + line_bytes) - a;
    if (fresh) cache->drop(line);
    u8 const* found = cache->find(line);
    if (!found) found = cache->fill(line, view_l2(g, {}, line, t, scratch));
    copy_bytes(reinterpret_cast<u8*>(out) + (a - address), found + (a - line), n);
    a += n;
  }
  if (fresh) w.pending->polls.note(address, out[0], w.pc);
  return true;
}

// ------------------------------------------------------------------------------------------------------------- atomics

bool weak_memory::act(wave& w, cache_bits bits, u32 pc, rmw op, u64 mask, u64 const* address, int bytes,
                      u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& old) {
  group_memory& g = *w.pending->group;
  alignas(64) u32 found[2][lanes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!still_allowed(w, access::atomic, address[l], bytes)) return false;
    u64 const line = line_of(address[l]), offset = address[l] - line;
    if (!g.stores.empty()) drain_line(g, line);
    g.l1->drop(line);
    l2_cache::slot* const slot = g.l2->find(line);
    bool changed;
    if (type_of(*w.pending->last, g.gpu) == type::rw && !bits.sc0 && !node_.shared) {
      alignas(64) u8 now[line_bytes];
      copy_line(now, view_l2(g, bits, line, type::rw, now));
      changed = update(now + offset, op, bytes, l, data, compare, found);
      byte_mask word;
      word.add(static_cast<u32>(offset), static_cast<u32>(bytes));
      if (slot) slot->mask.remove(word);
      release(g.gpu, g.xcd, line, now, word);
    } else {
      if (slot && slot->mask.any()) to_memory(*slot);
      unrelease(line, nullptr);
      changed = update(host(address[l]), op, bytes, l, data, compare, found);
    }
    node_.changes += changed;
    node_.published |= changed;
    if (slot && g.l2->whole(*slot)) {
      byte_mask there;
      there.add(static_cast<u32>(offset), static_cast<u32>(bytes));
      merge(slot->data, host(line), there);
    }
  }
  note_poll(w, pc, mask, address, found);
  if (old.put) old.put(w, old, mask, found);
  return true;
}

// ------------------------------------------------------------------------------------------------ the edges of kernels

void weak_memory::invalidate(wave& w, cache_bits bits) {
  group_memory& g = *w.pending->group;
  if (node_.races) node_.races->invalidate(w, bits);
  if (bits.sc1) g.l1->invalidate();
  if (bits.sc0 && bits.sc1) g.l2->invalidate();
}

void weak_memory::invalidate_scalars(wave& w) {
  auto const& cache = gpus_[w.pending->group->gpu].scalar[static_cast<std::size_t>(w.pending->group->cu / 2)];
  if (cache) cache->invalidate();
}

void weak_memory::kernel_begins(int gpu) {
  for (auto& l1 : gpus_[gpu].l1)
    if (l1) l1->invalidate();
  for (auto& scalar : gpus_[gpu].scalar)
    if (scalar) scalar->invalidate();
}

void weak_memory::kernel_ends(int gpu) {
  for (int x = 0; x < max_xcds; ++x)
    gpus_[gpu].l2[x].writeback([](auto const& s) { return !s.remote; }, [&](l2_cache::slot& s) { release(gpu, x, s); });
}

void weak_memory::system_scope(int gpu) {
  auto const all = [](l2_cache::slot const&) { return true; };
  gpu_caches& g = gpus_[gpu];
  g.released.writeback(all, [&](l2_cache::slot& s) { unrelease(s.address, nullptr); });
  for (l2_cache& l2 : g.l2) {
    l2.writeback(all, [&](l2_cache::slot& s) { to_memory(s); });
    l2.invalidate();
  }
}

void weak_memory::fill(int gpu, u8* to, u8 const* from, u64 bytes) {
  u64 const at = reinterpret_cast<u64>(to);
  allocation const* const a = node_.memory.find(at);
  if (!a || type_of(*a, gpu) != type::rw || node_.shared) return node_memory::fill(gpu, to, from, bytes);
  int const xcd = static_cast<int>(node_.chance.below(static_cast<u32>(node_.xcds())));
  alignas(64) u8 data[line_bytes];
  for (u64 i = 0; i < bytes;) {
    u64 const line = line_of(at + i), offset = at + i - line, n = std::min(line_bytes - offset, bytes - i);
    byte_mask mask;
    mask.add(static_cast<u32>(offset), static_cast<u32>(n));
    copy_bytes(data + offset, from + i, n);
    release(gpu, xcd, line, data, mask);
    i += n;
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
      if (!own && s->mask.half[at >> 6] >> (at & 63) & 1)
        return where + " holds a newer value that was never written back (release with system scope missing)";
      if (own && s->remote && gpus_[g].l2[x].whole(*s) && differ(s->data + at, host(address), 4))
        return where + " holds an old copy (acquire with system scope missing)";
    }
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    if (l2_cache::slot const* s = gpus_[gpu].released.find(line);
        s && s->mask.half[at >> 6] >> (at & 63) & 1 && static_cast<int>(gpu) != reader.gpu)
      return "GPU " + std::to_string(gpu) +
             " has released a newer value at agent scope, for itself alone (release with system scope missing)";
  if (u8 const* l1 = reader.l1 ? reader.l1->find(line) : nullptr; l1 && differ(l1 + at, host(address), 4))
    return "the CU's L1 holds an old copy (acquire missing)";
  return {};
}

}  // namespace fusewire::sim
