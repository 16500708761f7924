#include "machine/parts.hpp"

namespace fusewire::sim {

void part_table::name(u64 base, u64 size, std::string text) {
  if (size == 0) return;
  if (part* const here = before(base); here && here->base == base && here->size == size && here->live) {
    here->name = std::move(text);
    return;
  }
  auto first = by_base_.upper_bound(base);
  if (first != by_base_.begin() && std::prev(first)->second->end() > base) --first;
  auto const last = by_base_.lower_bound(base + size);
  for (auto it = first; it != last; ++it) it->second->live = false;
  by_base_.erase(first, last);
  all_.push_back({base, size, std::move(text)});
  by_base_[base] = &all_.back();
}

void part_table::forget(u64 base, u64 size) {
  for (auto at = by_base_.lower_bound(base); at != by_base_.end() && at->first - base < size; ++at)
    at->second->live = false;
}

part* part_table::before(u64 address) {
  auto const after = by_base_.upper_bound(address);
  return after == by_base_.begin() ? nullptr : std::prev(after)->second;
}

part* part_table::nearest(u64 address) {
  auto const after = by_base_.upper_bound(address);
  part* const low = before(address);
  part* const high = after == by_base_.end() ? nullptr : after->second;
  if (!low || !high) return low ? low : high;
  return address < low->end() || address - low->end() <= high->base - address ? low : high;
}

}  // namespace fusewire::sim
