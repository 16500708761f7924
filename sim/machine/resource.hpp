#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// A resource that serves one request at a time. It keeps how much of each window of 64 cycles is taken. Requests need
/// not come in the order of their times: CUs run one after the other for hundreds of cycles each, and some requests are
/// for much later than now.
class resource {
 public:
  /// A request at `time` that holds the resource for `cycles`. Returns when its service begins. No request comes for a
  /// time before `now`.
  double take(double now, double time, double cycles) {
    if (now >= static_cast<double>((first_ + 1) * window)) advance(static_cast<u64>(now) / window);
    busy_ += cycles;
    u64 w = std::max(static_cast<u64>(time) / window, first_);
    u64 const from = w, end = first_ + windows;
    if (w >= full_from_ && w < full_to_) w = full_to_;
    while (w < end && used_[w % windows] >= window) ++w;
    if (from >= full_from_ && from <= full_to_) full_to_ = w;
    else full_from_ = from, full_to_ = w;
    double const begin = w < end ? std::max(time, static_cast<double>(w * window) + used_[w % windows])
                                 : std::max(time, static_cast<double>(end * window) + later_);
    for (; w < end && cycles > 0; ++w) {
      float const fits = std::min(static_cast<float>(cycles), static_cast<float>(window) - used_[w % windows]);
      used_[w % windows] += fits, cycles -= fits;
    }
    later_ += std::max(cycles, 0.0);
    return begin;
  }
  double busy() const { return busy_; }  // cycles, over all

 private:
  static constexpr u64 window = 64, windows = 64;  // cycles; those that are looked at one by one
  void advance(u64 to) {
    if (to - first_ > windows)
      later_ = std::max(0.0, later_ - static_cast<double>((to - first_ - windows) * window)), first_ = to - windows;
    for (; first_ < to; ++first_) {  // the oldest window's place is taken by the one behind the last
      float const fills = std::min(static_cast<float>(later_), static_cast<float>(window));
      used_[first_ % windows] = fills, later_ -= fills;
    }
  }

  float used_[windows] = {};
  u64 first_ = 0, full_from_ = 0, full_to_ = 0;
  double later_ = 0, busy_ = 0;  // work behind the last window
};

/// The lines that a cache holds; the least recently used one leaves first. `Ways` tags of 4 bytes are one or two lines
/// of the host's cache.
template <u32 Sets, u32 Ways>
class tag_array {
 public:
  struct result {
    bool hit = false, was_dirty = false, evicted_dirty = false;  // was_dirty: the line itself
    u64 victim = 0;                                              // a dirty line that had to go
  };
  result touch(u64 line, bool write) {
    if (!tags_) tags_ = std::make_unique<u32[]>(std::size_t{Sets} * Ways);
    u32 const number = set_of(line), tag = tag_of(line);
    u32* const set = &tags_[std::size_t{number} * Ways];
    u32 equal = 0;
    for (u32 i = 0; i < Ways; ++i) equal |= static_cast<u32>((set[i] & ~dirty) == tag) << i;
    result r;
    if (equal == 1) {  // the latest
      r.hit = true, r.was_dirty = set[0] & dirty;
      set[0] |= write ? dirty : 0;
      return r;
    }
    u32 const i = equal ? static_cast<u32>(__builtin_ctz(equal)) : Ways - 1;
    u32 const old = set[i];
    r.hit = equal != 0;
    r.was_dirty = r.hit && (old & dirty);
    if (!r.hit && (old & dirty)) r.evicted_dirty = true, r.victim = line_of(old, number);
    if (r.hit)
      for (u32 j = i; j > 0; --j) set[j] = set[j - 1];
    else std::memmove(set + 1, set, (Ways - 1) * sizeof *set);
    set[0] = tag | (write || r.was_dirty ? dirty : 0);
    return r;
  }
  /// Says that touch() comes soon, so that the host can prefetch.
  void announce(u64 line) const {
    if (tags_) __builtin_prefetch(&tags_[std::size_t{set_of(line)} * Ways], 1);
  }
  void clear() {
    if (tags_) std::memset(tags_.get(), 0, sizeof(u32) * Sets * Ways);
  }
  /// Forgets the line unless it is dirty.
  void remove_clean(u64 line) {
    if (!tags_) return;
    u32* const set = &tags_[std::size_t{set_of(line)} * Ways];
    for (u32 i = 0; i < Ways; ++i)
      if (set[i] == tag_of(line)) set[i] = 0;
  }
  /// The line is not dirty any more; true when it was.
  bool clean(u64 line) {
    if (!tags_) return false;
    u32* const set = &tags_[std::size_t{set_of(line)} * Ways];
    for (u32 i = 0; i < Ways; ++i)
      if (set[i] == (tag_of(line) | dirty)) return set[i] &= ~dirty, true;
    return false;
  }

 private:
  static constexpr u32 dirty = u32{1} << 31;
  static constexpr u32 set_bits = static_cast<u32>(__builtin_ctz(Sets));
  static_assert((Sets & (Sets - 1)) == 0);
  // The set is the lower bits, mixed with the tag, so that a line can be had from both.
  static u32 tag_of(u64 line) { return static_cast<u32>(line >> set_bits & 0x3fffffff) | 0x40000000; }
  static u32 mix(u32 tag) { return (tag * 0x9e3779b1u) >> (32 - set_bits); }
  static u32 set_of(u64 line) { return (static_cast<u32>(line) ^ mix(tag_of(line))) & (Sets - 1); }
  static u64 line_of(u32 tag, u32 set) {
    tag &= ~dirty;
    return u64{tag & 0x3fffffff} << set_bits | ((set ^ mix(tag)) & (Sets - 1));
  }
  std::unique_ptr<u32[]> tags_;
};

}  // namespace fusewire::sim
