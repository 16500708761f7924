// First-fit allocation of ranges within [0, capacity). Ranks that make the same calls get the same offsets.
#pragma once
#include <map>
#include <optional>

#include <fusewire/core/types.hpp>

namespace fusewire {

class offset_allocator {
 public:
  explicit offset_allocator(std::size_t first, std::size_t capacity) { free_[first] = capacity - first; }

  /// The offset of `bytes` bytes, or nothing when no free range is large enough. Requires: alignment a power of two.
  std::optional<std::size_t> allocate(std::size_t bytes, std::size_t alignment) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      auto const [start, length] = *it;
      std::size_t const at = round_up(start, alignment), skipped = at - start;
      if (skipped > length || length - skipped < bytes) continue;
      free_.erase(it);
      if (skipped) free_[start] = skipped;
      if (std::size_t const rest = length - skipped - bytes) free_[at + bytes] = rest;
      used_[at] = bytes;
      return at;
    }
    return std::nullopt;
  }

  /// False when nothing is allocated at `offset`.
  bool release(std::size_t offset) {
    auto const it = used_.find(offset);
    if (it == used_.end()) return false;
    std::size_t start = it->first, length = it->second;
    used_.erase(it);
    auto next = free_.lower_bound(start);
    if (next != free_.end() && start + length == next->first) {
      length += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin())
      if (auto const before = std::prev(next); before->first + before->second == start) {
        start = before->first;
        length += before->second;
        free_.erase(before);
      }
    free_[start] = length;
    return true;
  }

  /// Bytes allocated at `offset`; 0 when nothing is.
  std::size_t size_at(std::size_t offset) const {
    auto const it = used_.find(offset);
    return it == used_.end() ? 0 : it->second;
  }

  std::size_t largest_free() const {
    std::size_t n = 0;
    for (auto const& [start, length] : free_) n = length > n ? length : n;
    return n;
  }
  std::size_t allocations() const { return used_.size(); }

 private:
  std::map<std::size_t, std::size_t> free_, used_;  // offset -> bytes
};

}  // namespace fusewire
