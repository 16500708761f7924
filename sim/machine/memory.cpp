#include "machine/memory.hpp"

#include <algorithm>
#include <cstdio>

#include "machine/rmw.hpp"

namespace fusewire::sim {
namespace {

/// Bytes: what is farther away is beside nothing.
constexpr u64 neighbourhood = u64{64} << 20;

std::string hex(u64 x) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}

std::string owner(allocation const& a) { return a.gpu < 0 ? "the host" : "GPU " + std::to_string(a.gpu); }

/// Whether the kernel uses malloc or new. They need a heap that the runtime would pass in a hidden argument; here it is
/// null.
bool uses_heap(wave const& w) {
  auto const& arguments = w.group->launch->kernel->arguments;
  return std::ranges::any_of(arguments, [](kernel_argument const& a) { return a.kind == "hidden_heap_v1"; });
}

/// The live parts around an address that is in none of them, one a line, but for the one that has been named.
std::string neighbours(allocation const& a, u64 address, part const* named) {
  std::string text;
  auto const add = [&](part const& p, char const* where, u64 away) {
    if (&p == named) return;
    named_bytes const x = p.around(address);
    text += "\n  " + std::string(where) + " " + x.name + " (" + std::to_string(x.size) + " bytes), " +
            std::to_string(away) + " bytes away";
  };
  for (part const* p : a.parts->below(address, 4)) add(*p, "below it is", address - p->around(address).end());
  if (part const* const p = a.parts->above(address)) add(*p, "above it is", p->base - address);
  return text;
}

/// The same for an address that is not in the allocation, or an access that begins in it and does not end there.
std::string parts_beside(allocation const* a, u64 address) {
  if (!a || !a->live || !a->parts || address + neighbourhood < a->base || address >= a->end() + neighbourhood)
    return "";
  return neighbours(*a, address < a->base ? address : std::max(address, a->end()), nullptr);
}

}  // namespace

std::string describe(address_space const& space, u64 address, allocation const* hit) {
  allocation const* a = hit ? hit : space.nearest(address);
  if (!a) return hex(address) + "; nothing is allocated";
  std::string place;
  if (address >= a->end() + neighbourhood || address + neighbourhood < a->base)
    return hex(address) + ", far from every allocation; host memory must be pinned";
  if (address >= a->end()) place = std::to_string(address - a->end()) + " bytes past the end of";
  else if (address < a->base) place = std::to_string(a->base - address) + " bytes before";
  else place = std::to_string(address - a->base) + " bytes into";
  return hex(address) + ", " + place + (a->live ? " allocation " : " freed allocation ") + std::to_string(a->number) +
         " (" + std::to_string(a->size) + " bytes at " + hex(a->base) + ", " + name_of(a->kind) + ", " + owner(*a) +
         ")";
}

std::string node_memory::what_of(access kind, int bytes) {
  static constexpr char const* verbs[] = {"read", "write", "atomic"};
  return std::string("global ") + verbs[static_cast<int>(kind)] + " of " + std::to_string(bytes) + " bytes at ";
}

bool node_memory::look_up(wave& w, access kind, u64 address, int bytes) {
  wave_memory& m = *w.pending;
  std::string const what = what_of(kind, bytes);
  allocation const* a = node_.memory.find(address);
  if (!a && m.group->kernarg.covers(address, bytes)) a = &m.group->kernarg;
  if (!a && address < 4096 && uses_heap(w)) {
    fault(w,
          "null pointer in a kernel that uses malloc, free, new or delete, which are not implemented for device code");
    return false;
  }
  if (!a || (a->live && !a->covers(address, bytes))) {
    fault(w, "out-of-bounds " + what + describe(node_.memory, address, a) +
                 parts_beside(a ? a : node_.memory.nearest(address), address));
    return false;
  }
  if (!a->live) {
    fault(w, "use after free: " + what + describe(node_.memory, address, a));
    return false;
  }
  int const gpu = m.group->gpu;
  if (a->gpu >= 0 && a->gpu != gpu && !(node_.peers[gpu] >> a->gpu & 1)) {
    fault(w, "no peer access from GPU " + std::to_string(gpu) + " to GPU " + std::to_string(a->gpu) + ": " + what +
                 describe(node_.memory, address, a));
    return false;
  }
  m.last = a;
  return !a->parts || look_up_part(w, kind, *a, address, bytes);
}

bool node_memory::look_up_part(wave& w, access kind, allocation const& a, u64 address, int bytes) {
  wave_memory& m = *w.pending;
  part* const p = a.parts->before(address);
  if (p && p->live && p->covers(address, static_cast<u64>(bytes))) {
    m.piece = p;
    return !p->ticket || note_use(w, kind, *p, address);
  }
  part const* const near = a.parts->nearest(address);
  bool const inside = near && address >= near->base && address < near->end(), freed = inside && !near->live;
  std::string place = "in memory that nobody has allocated there";
  if (near) {
    named_bytes const x = near->around(address);
    u64 const last = address + static_cast<u64>(bytes);
    if (address >= x.end()) place = std::to_string(address - x.end()) + " bytes past the end of ";
    else if (address < x.base) place = std::to_string(x.base - address) + " bytes before ";
    else if (last > x.end() && near->live)
      place = "the last " + std::to_string(last - x.end()) + " of them past the end of ";
    else place = std::to_string(address - x.base) + " bytes into ";
    place += x.name + " (" + std::to_string(x.size) + " bytes" + (near->live ? ")" : "; given back)");
    if (!inside) place += neighbours(a, address, near);
  }
  std::string text =
      (freed ? "use after free: " : "out-of-bounds ") + what_of(kind, bytes) + hex(address) + ", " + place;
  if (m.piece && m.piece != near && m.piece->live && a.covers(m.piece->base, 0))
    text += "\n  the access before it was to " + m.piece->name_of({"*", "*", "*"});
  fault(w, text + "\n  all within " + describe(node_.memory, address, &a));
  return false;
}

/// Notes a use of a part that belongs to one launch while it runs. Each workgroup of the launch says once that it is
/// done with it.
bool node_memory::note_use(wave& w, access kind, part& p, u64 address) {
  dispatch const* const launch = w.group->launch;
  if (p.user && p.user != launch) {
    fault(w, p.name + " is used by two launches at once: by this one and by " + p.user->kernel->demangled + " on GPU " +
                 std::to_string(p.user->gpu) +
                 ", which has not ended; launch() orders launches that share it, and so do streams and events");
    return false;
  }
  u32 const* const grid = launch->grid;
  if (!p.user) {
    p.user = launch;
    p.left.assign(u64{grid[0]} * grid[1] * grid[2], false);
    in_use_.push_back(&p);
  }
  if (kind == access::atomic && address == p.counted && p.left.size() < p.least) {
    fault(w, "this launch has " + std::to_string(p.left.size()) + " workgroups, and calls " + p.counted_by + " on " +
                 p.name + ", which takes at least " + std::to_string(p.least));
    return false;
  }
  if (kind != access::atomic || address != p.ticket) return true;
  u32 const* const id = w.group->id;
  u64 const at = id[0] + u64{grid[0]} * (id[1] + u64{grid[1]} * id[2]);
  if (p.left[at]) {
    fault(w, "this workgroup calls " + p.call + " for the second time in one launch on " + p.name +
                 ", which takes one from each workgroup and nothing after it");
    return false;
  }
  p.left[at] = true;
  return true;
}

std::string node_memory::ended_wrong(dispatch const& l, u64 groups) {
  std::string wrong;
  std::erase_if(in_use_, [&](part* p) {
    if (p->user != &l) return false;
    p->user = nullptr;
    auto const left = static_cast<u64>(std::ranges::count(p->left, true));
    if (left < groups && p->live) {
      auto const first = static_cast<u64>(std::ranges::find(p->left, false) - p->left.begin());
      wrong = std::to_string(groups - left) + " of " + std::to_string(groups) + " workgroups ended without " + p->call +
              " on " + p->name + "; the first of them is workgroup (" + std::to_string(first % l.grid[0]) + "," +
              std::to_string(first / l.grid[0] % l.grid[1]) + "," + std::to_string(first / l.grid[0] / l.grid[1]) + ")";
    }
    return true;
  });
  return wrong;
}

void node_memory::count_link(int from, int to, access a, u64 bytes) {
  fusewire_sim_link& link = node_.stats.links[from][to];
  (a == access::read ? link.load_bytes : a == access::write ? link.store_bytes : link.atomic_bytes) += bytes;
}

u64 node_memory::clock(wave&) {
  ++node_.clock_reads;
  return node_.cycles += 40;  // a wave that watches the clock within its turn sees it move
}

/// No source says that the counters of XCDs and GPUs start together. With weak memory they are up to 10 ms apart.
u64 node_memory::real_time(wave& w) {
  u64 const ticks = clock(w) * wall_clock_mhz / core_mhz;
  if (!node_.settings.weak) return ticks;
  group_memory const& g = *w.pending->group;
  return ticks +
         (node_.settings.seed * 64 + static_cast<u64>(g.gpu * max_xcds + g.xcd)) * 0x9e3779b97f4a7c15 % 1'000'000;
}

bool node_memory::scalar_load(wave& w, u64 address, int bytes, bool fresh, u32* out) {
  if (!allowed(w, access::read, address, bytes)) return false;
  note_race(w, race_checker::access::read, {}, w.pc, 1, &address, bytes);
  std::memcpy(out, reinterpret_cast<void const*>(address), static_cast<std::size_t>(bytes));
  if (fresh) w.pending->polls.note(address, out[0], w.pc);
  return true;
}

bool node_memory::scalar_atomic(wave& w, rmw what, u64 address, int bytes, u64 data, u64 compare,
                                destination const& old) {
  if (!allowed_atomic(w, address, bytes)) return false;
  alignas(64) u32 rows[2][2][lanes];  // of data and compare; lane 0 is used
  for (int d = 0; d < 2; ++d)
    rows[0][d][0] = static_cast<u32>(data >> 32 * d), rows[1][d][0] = static_cast<u32>(compare >> 32 * d);
  return act(w, {.sc0 = false, .sc1 = true, .nt = false}, w.pc, what, 1, &address, bytes, rows[0], rows[1], old);
}

bool node_memory::allowed_atomic(wave& w, u64 address, int bytes) {
  if (!allowed(w, access::atomic, address, bytes)) return false;
  if (address % static_cast<u64>(bytes) == 0) return true;
  fault(w, "misaligned atomic of " + std::to_string(bytes) + " bytes at " +
               describe(node_.memory, address, w.pending->last));
  return false;
}

void node_memory::fill(int, u8* to, u8 const* from, u64 bytes) { copy_bytes(to, from, bytes); }

bool strong_memory::load(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, destination const& to) {
  alignas(64) u32 out[4][lanes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!allowed(w, access::read, address[l], bytes)) return false;
    count(w, access::read, bytes);
    gather(reinterpret_cast<u8 const*>(address[l]), bytes, out, l);
  }
  note_race(w, race_checker::access::read, bits, w.pc, mask, address, bytes);
  note_poll(w, w.pc, mask, address, out);
  to.put(w, to, mask, out);
  return true;
}

void strong_memory::writeback(wave& w, cache_bits bits) {
  issue(w);
  if (node_.races) node_.races->writeback(w, bits);
}
void strong_memory::invalidate(wave& w, cache_bits bits) {
  if (node_.races) node_.races->invalidate(w, bits);
}

bool strong_memory::store(wave& w, cache_bits bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) {
  bool changed = false;
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!allowed(w, access::write, address[l], bytes)) return false;
    count(w, access::write, bytes);
    u8 now[16], *p = reinterpret_cast<u8*>(address[l]);
    scatter(now, bytes, in, l);
    changed |= differ(now, p, static_cast<u64>(bytes));
    scatter(p, bytes, in, l);
  }
  note_race(w, race_checker::access::write, bits, w.pc, mask, address, bytes);
  node_.changes += changed;
  return true;
}

bool strong_memory::atomic(wave& w, cache_bits bits, rmw op, u64 mask, u64 const* address, int bytes,
                           u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& old) {
  return act(w, bits, w.pc, op, mask, address, bytes, data, compare, old);
}

bool strong_memory::act(wave& w, cache_bits bits, u32 pc, rmw op, u64 mask, u64 const* address, int bytes,
                        u32 const (*data)[lanes], u32 const (*compare)[lanes], destination const& old) {
  alignas(64) u32 found[2][lanes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!allowed_atomic(w, address[l], bytes)) return false;
    count(w, access::atomic, static_cast<u64>(bytes));
    node_.changes += update(reinterpret_cast<u8*>(address[l]), op, bytes, l, data, compare, found);
  }
  note_race(w, race_checker::access::update, bits, pc, mask, address, bytes);
  note_poll(w, pc, mask, address, found);
  if (old.put) old.put(w, old, mask, found);
  return true;
}

}  // namespace fusewire::sim
