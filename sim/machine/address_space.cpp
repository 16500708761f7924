#include "machine/address_space.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fusewire::sim {
namespace {

void* reserve(u64 hint, u64 bytes, shared_node const* shared = nullptr) {
  if (shared) {  // the same address in every process, or none
    void* p = mmap(reinterpret_cast<void*>(hint), bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, shared->file(), shared_node::memory_at);
    if (p == reinterpret_cast<void*>(hint)) return p;
    std::perror("fusewire-sim: cannot map the memory that processes share at its address");
    std::_Exit(exit_code_of_a_report);
  }
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* p = hint
                ? mmap(reinterpret_cast<void*>(hint), bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0)
                : MAP_FAILED;
  if (p == MAP_FAILED) p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("fusewire-sim: cannot reserve address space for device memory");
    std::_Exit(exit_code_of_a_report);
  }
  return p;
}

u64 distance(allocation const& a, u64 address) {
  return address < a.base ? a.base - address : address >= a.end() ? address - a.end() : 0;
}

}  // namespace

char const* name_of(memory_kind kind) {
  switch (kind) {
    case memory_kind::coarse: return "hipMalloc";
    case memory_kind::fine: return "fine-grained";
    case memory_kind::uncached: return "uncached";
    case memory_kind::host: return "pinned host";
    case memory_kind::registered: return "registered host";
    case memory_kind::image: return "module image";
    case memory_kind::kernarg: return "kernel arguments";
  }
  return "";
}

address_space::address_space(int gpus, shared_node const* shared)
    : shared_(shared), regions_(static_cast<std::size_t>(gpus) + 1) {
  bytes_ = regions_.size() * region_bytes;
  base_ = reinterpret_cast<u64>(reserve(wanted_place, bytes_, shared));
  pages_ = static_cast<u32*>(reserve(0, (bytes_ >> page_bits) * sizeof(u32)));
  u64 const part = shared ? region_bytes / shared_node::most_processes : region_bytes,
            first = shared ? static_cast<u64>(shared->process()) * part : 0;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    regions_[i].next = base_ + i * region_bytes + first + (page << 4);
    regions_[i].end = base_ + i * region_bytes + first + part - (page << 4);
  }
}

u64 address_space::take(region& r, u64 span) {
  // An unnamed page behind it catches small overruns
  u64 const align = span >= (u64{2} << 20) ? u64{2} << 20 : page, whole = span + page;
  auto const aligned = [align](u64 address) { return (address + align - 1) & ~(align - 1); };
  if (u64 const at = aligned(r.next); at + whole <= r.end) {
    if (at > r.next) give(r, r.next, at - r.next);
    r.next = at + whole;
    return at;
  }
  for (auto f = r.free.begin(); f != r.free.end(); ++f) {
    auto const [base, bytes] = *f;
    u64 const at = aligned(base), end = base + bytes;
    if (at + whole > end) continue;
    r.free.erase(f);
    if (at > base) give(r, base, at - base);
    if (end > at + whole) give(r, at + whole, end - at - whole);
    name(at + span, page, 0);
    return at;
  }
  return 0;
}

void address_space::give(region& r, u64 base, u64 bytes) {
  if (auto const next = r.free.find(base + bytes); next != r.free.end()) bytes += next->second, r.free.erase(next);
  auto const next = r.free.lower_bound(base);
  if (next != r.free.begin() && std::prev(next)->first + std::prev(next)->second == base)
    std::prev(next)->second += bytes;
  else r.free.emplace(base, bytes);
}

void address_space::name(u64 base, u64 span, u32 number) {
  u64 const first = (base - base_) >> page_bits;
  for (u64 p = first; p < first + (span >> page_bits); ++p) pages_[p] = number;
}

allocation* address_space::allocate(int gpu, u64 size, memory_kind kind, unsigned flags) {
  region& r = gpu < 0 ? regions_.back() : regions_[gpu];
  u64 const span = (std::max<u64>(size, 1) + page - 1) & ~(page - 1);
  if (size > capacity || (gpu >= 0 && r.used + span > capacity)) return nullptr;
  u64 const at = take(r, span);
  if (!at) return nullptr;
  auto const number = static_cast<u32>(allocations_.size() + 1);
  allocations_.push_back({at, size, span, gpu, kind, number, true, flags});
  name(at, span, number);
  r.used += span;
  // Small allocations, flags among them, start with a pattern, so that code which forgot to clear them fails here too.
  // Large ones start as zero, because filling them would cost memory.
  if (size <= (u64{1} << 20) && kind != memory_kind::image) std::memset(reinterpret_cast<void*>(at), 0xcd, size);
  return &allocations_.back();
}

void address_space::release(allocation& a) {
  region& r = a.gpu < 0 ? regions_.back() : regions_[a.gpu];
  a.live = false;
  r.used -= a.span;
  give(r, a.base, a.span + page);
  madvise(reinterpret_cast<void*>(a.base), a.span, shared_ ? MADV_REMOVE : MADV_DONTNEED);
}

allocation* address_space::import(allocation const& theirs) {
  if (theirs.base < base_ || theirs.base + theirs.span > base_ + bytes_ || theirs.base % page || theirs.span % page ||
      !theirs.span)
    return nullptr;
  if (allocation const* here = find(theirs.base); here && here->live) return nullptr;
  auto const number = static_cast<u32>(allocations_.size() + 1);
  allocations_.push_back(theirs);
  allocation& a = allocations_.back();
  a.number = number, a.live = a.imported = true;
  name(a.base, a.span, number);
  return &a;
}

allocation* address_space::adopt(u64 address, u64 size, unsigned flags) {
  if (address - base_ < bytes_) return nullptr;
  auto const next = adopted_.lower_bound(address + size);
  if (next != adopted_.begin()) {
    allocation const& before = allocations_[std::prev(next)->second - 1];
    if (before.end() > address) return nullptr;
  }
  auto const number = static_cast<u32>(allocations_.size() + 1);
  allocations_.push_back({address, size, size, -1, memory_kind::registered, number, true, flags});
  adopted_[address] = number;
  return &allocations_.back();
}

void address_space::abandon(allocation& a) {
  a.live = false;
  if (!a.imported) adopted_.erase(a.base);
}

allocation* address_space::find_adopted(u64 address) {
  auto const after = adopted_.upper_bound(address);
  if (after == adopted_.begin()) return nullptr;
  allocation& a = allocations_[std::prev(after)->second - 1];
  return address < a.end() ? &a : nullptr;
}

allocation const* address_space::nearest(u64 address) const {
  allocation const* best = nullptr;
  for (allocation const& a : allocations_) {
    if (a.kind == memory_kind::image) continue;
    if (!best || distance(a, address) < distance(*best, address) ||
        (distance(a, address) == distance(*best, address) && a.live && !best->live))
      best = &a;
  }
  return best;
}

}  // namespace fusewire::sim
