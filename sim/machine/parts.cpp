#include "machine/parts.hpp"

#include <algorithm>

namespace fusewire::sim {

named_bytes part::around(u64 address) const {
  if (rows.stride == 0) return {base, size, name};
  u64 const last = size / rows.stride - 1, row = address < base ? 0 : std::min(last, (address - base) / rows.stride);
  u64 const numbers[] = {row % rows.extent[0], row / rows.extent[0] % rows.extent[1],
                         row / rows.extent[0] / rows.extent[1]};
  return {base + row * rows.stride, rows.bytes,
          name_of({std::to_string(numbers[0]), std::to_string(numbers[1]), std::to_string(numbers[2])})};
}

std::string part::name_of(std::array<std::string, 3> const& numbers) const {
  std::string text = name;
  if (rows.stride != 0)
    for (std::size_t i = 0; i < 3; ++i)
      if (auto const at = text.find("{" + std::to_string(i) + "}"); at != text.npos) text.replace(at, 3, numbers[i]);
  return text;
}

void part_table::name(u64 base, u64 size, std::string text, part_rows const& rows) {
  if (size == 0) return;
  if (part* const here = before(base); here && here->base == base && here->size == size && here->live) {
    here->name = std::move(text);
    here->rows = rows;
    return;
  }
  auto first = by_base_.upper_bound(base);
  if (first != by_base_.begin() && std::prev(first)->second->end() > base) --first;
  auto const last = by_base_.lower_bound(base + size);
  for (auto it = first; it != last; ++it) it->second->live = false;
  by_base_.erase(first, last);
  all_.push_back({base, size, std::move(text), rows});
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

std::vector<part const*> part_table::below(u64 address, std::size_t most) const {
  std::vector<part const*> all;
  for (auto at = by_base_.upper_bound(address); at != by_base_.begin() && all.size() < most;)
    if (part const* const p = (--at)->second; p->live && p->end() <= address) all.push_back(p);
  return all;
}

part const* part_table::above(u64 address) const {
  for (auto at = by_base_.upper_bound(address); at != by_base_.end(); ++at)
    if (at->second->live) return at->second;
  return nullptr;
}

}  // namespace fusewire::sim
