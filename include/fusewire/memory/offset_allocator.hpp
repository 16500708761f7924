// Allocation of ranges within [0, capacity). Ranks that make the same calls get the same offsets.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fusewire/core/math.hpp>

namespace fusewire {

/// Hands out ranges of [first, capacity), best fit first. Neighbouring free ranges become one. It touches no memory.
class offset_allocator {
 public:
  /// Offsets and sizes are multiples of `unit`, a power of two. An allocation owns all of its last unit, so odd sizes
  /// leave no holes.
  explicit offset_allocator(std::size_t first, std::size_t capacity, std::size_t unit = 1) : unit_(unit) {
    std::size_t const begin = round_up(first, unit);
    end_ = std::max(begin, capacity & ~(unit - 1));
    if (begin < end_) add(begin, end_ - begin);
  }

  /// The offset of `bytes` bytes, or nothing when no free range is large enough. It takes the smallest free range that
  /// is large enough for any beginning, and the lowest of several; the time for that grows with the logarithm of the
  /// number of ranges. Where there is none, it tries the smaller ranges in turn, and takes the first one that is large
  /// enough because it begins well aligned.
  /// Requires: bytes > 0; alignment is a power of two.
  std::optional<std::size_t> allocate(std::size_t bytes, std::size_t alignment) {
    if (bytes > largest_free()) return std::nullopt;
    std::size_t const wanted = round_up(bytes, unit_),
                      surely = alignment > unit_ ? wanted + (alignment - unit_) : wanted;
    auto it = by_size_.lower_bound({surely, 0});
    if (it == by_size_.end()) it = by_size_.lower_bound({wanted, 0});
    for (; it != by_size_.end(); ++it) {
      ++looks_;
      auto const [length, start] = *it;
      std::size_t const at = round_up(start, alignment), skipped = at - start;
      if (skipped > length || length - skipped < wanted) continue;
      remove(start, length);
      if (skipped) add(start, skipped);
      if (std::size_t const rest = length - skipped - wanted) add(at + wanted, rest);
      used_[at] = wanted;
      return at;
    }
    return std::nullopt;
  }

  /// Frees what begins at `offset`. Returns false when nothing is allocated there.
  bool release(std::size_t offset) {
    auto const it = used_.find(offset);
    if (it == used_.end()) return false;
    std::size_t start = it->first, length = it->second;
    used_.erase(it);
    if (auto const next = free_.find(start + length); next != free_.end()) {
      std::size_t const more = next->second;
      remove(start + length, more);
      length += more;
    }
    if (auto before = free_.lower_bound(start);
        before != free_.begin() && (--before)->first + before->second == start) {
      auto const [lower, more] = *before;
      remove(lower, more);
      start = lower;
      length += more;
    }
    add(start, length);
    return true;
  }

  /// Bytes allocated at `offset`, in whole units; 0 when nothing is.
  std::size_t size_at(std::size_t offset) const {
    auto const it = used_.find(offset);
    return it == used_.end() ? 0 : it->second;
  }

  /// The largest size that allocate() can give now, in bytes.
  std::size_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  /// Free bytes at the end, to which a larger capacity would add.
  std::size_t free_at_end() const {
    if (free_.empty()) return 0;
    auto const& [start, length] = *free_.rbegin();
    return start + length == end_ ? length : 0;
  }
  /// Ranges in use.
  std::size_t allocations() const { return used_.size(); }
  /// Free ranges that allocate() has looked at, in all calls.
  std::size_t looks() const { return looks_; }

 private:
  void add(std::size_t start, std::size_t length) {
    free_[start] = length;
    by_size_.insert({length, start});
  }
  void remove(std::size_t start, std::size_t length) {
    free_.erase(start);
    by_size_.erase({length, start});
  }

  std::size_t unit_, end_, looks_ = 0;
  std::map<std::size_t, std::size_t> free_, used_;         // offset -> bytes
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // (bytes, offset) of what is free
};

}  // namespace fusewire
