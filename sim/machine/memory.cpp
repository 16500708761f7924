#include "machine/memory.hpp"

#include <algorithm>
#include <cstdio>

#include "machine/rmw.hpp"

namespace fusewire::sim {
namespace {

std::string hex(u64 x) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}

std::string owner(allocation const& a) { return a.gpu < 0 ? "the host" : "GPU " + std::to_string(a.gpu); }

/// printf and assert go through a buffer that the runtime would have passed in a hidden argument; here it is null.
bool uses_hostcall(wave const& w) {
  auto const& arguments = w.group->launch->kernel->arguments;
  return std::ranges::any_of(arguments, [](kernel_argument const& a) { return a.kind == "hidden_hostcall_buffer"; });
}

}  // namespace

std::string describe(address_space const& space, u64 address, allocation const* hit) {
  allocation const* a = hit ? hit : space.nearest(address);
  if (!a) return hex(address) + "; nothing is allocated";
  constexpr u64 near = u64{64} << 20;
  std::string place;
  if (address >= a->end() + near || address + near < a->base) return hex(address) + ", far from every allocation; host memory must be pinned";
  if (address >= a->end())
    place = std::to_string(address - a->end()) + " bytes past the end of";
  else if (address < a->base)
    place = std::to_string(a->base - address) + " bytes before";
  else
    place = std::to_string(address - a->base) + " bytes into";
  return hex(address) + ", " + place + (a->live ? " allocation " : " freed allocation ") + std::to_string(a->number) + " (" +
         std::to_string(a->size) + " bytes at " + hex(a->base) + ", " + name_of(a->kind) + ", " + owner(*a) + ")";
}

bool node_memory::look_up(wave& w, access kind, u64 address, int bytes) {
  wave_memory& m = *w.pending;
  static constexpr char const* verbs[] = {"read", "write", "atomic"};
  std::string const what = std::string("global ") + verbs[static_cast<int>(kind)] + " of " + std::to_string(bytes) + " bytes at ";
  allocation const* a = node_.memory.find(address);
  if (!a && m.group->kernarg.covers(address, bytes)) a = &m.group->kernarg;
  if (!a && address < 4096 && uses_hostcall(w)) {
    fault(w, "a failed assert, or printf: device code that calls the host is not implemented");
    return false;
  }
  if (!a || (a->live && !a->covers(address, bytes))) {
    fault(w, "out-of-bounds " + what + describe(node_.memory, address, a));
    return false;
  }
  if (!a->live) {
    fault(w, "use after free: " + what + describe(node_.memory, address, a));
    return false;
  }
  int const gpu = m.group->gpu;
  if (a->gpu >= 0 && a->gpu != gpu && !(node_.peers[gpu] >> a->gpu & 1)) {
    fault(w, "no peer access from GPU " + std::to_string(gpu) + " to GPU " + std::to_string(a->gpu) + ": " + what + describe(node_.memory, address, a));
    return false;
  }
  m.last = a;
  return true;
}

void node_memory::count_link(int from, int to, access a, u64 bytes) {
  fusewire_sim_link& link = node_.stats.links[from][to];
  (a == access::read ? link.load_bytes : a == access::write ? link.store_bytes : link.atomic_bytes) += bytes;
}

u64 node_memory::clock(wave&) {
  ++node_.clock_reads;
  return node_.cycles += 40;  // a wave that watches the clock within its turn sees it move
}

u64 node_memory::real_time(wave& w) { return clock(w) * wall_clock_mhz / core_mhz; }

bool node_memory::scalar_load(wave& w, u64 address, int bytes, u32* out) {
  if (!allowed(w, access::read, address, bytes)) return false;
  std::memcpy(out, reinterpret_cast<void const*>(address), static_cast<std::size_t>(bytes));
  return true;
}

bool strong_memory::load(wave& w, cache_bits, u64 mask, u64 const* address, int bytes, u32 (*out)[lanes]) {
  ++w.pending->issued;
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!allowed(w, access::read, address[l], bytes)) return false;
    count(w, access::read, bytes);
    gather(reinterpret_cast<u8 const*>(address[l]), bytes, out, l);
  }
  note_poll(w, mask, address, out);
  return true;
}

bool strong_memory::store(wave& w, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) {
  ++w.pending->issued;
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
  node_.changes += changed;
  return true;
}

bool strong_memory::atomic(wave& w, cache_bits, rmw op, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes], u32 const (*compare)[lanes], u32 (*old)[lanes]) {
  ++w.pending->issued;
  u32 found[2][lanes];
  for (u64 m = mask; m; m &= m - 1) {
    int const l = std::countr_zero(m);
    if (!allowed(w, access::atomic, address[l], bytes)) return false;
    if (address[l] % static_cast<u64>(bytes)) {
      fault(w, "misaligned atomic of " + std::to_string(bytes) + " bytes at " + describe(node_.memory, address[l], w.pending->last));
      return false;
    }
    count(w, access::atomic, bytes);
    node_.changes += update(reinterpret_cast<u8*>(address[l]), op, bytes, l, data, compare, found);
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

}  // namespace fusewire::sim
