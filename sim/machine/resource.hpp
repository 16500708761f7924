#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// Something that serves one request after the other: how much work lies in front of it. Requests come a little out of the order of their times, for CUs are run one after the
/// other for a hundred cycles each, and some are made for later than now: work is done as `now` passes, and a request finds what will be left of it at its time.
class resource {
 public:
  /// A request at `time` that holds the resource for `cycles`; returns when it begins to be served. No request will come for a time before `now`.
  double take(double now, double time, double cycles) {
    if (now > at_) work_ = std::max(0.0, work_ - (now - at_)), at_ = now;
    double const begin = time + std::max(0.0, work_ - (time - at_));
    work_ += cycles;
    busy_ += cycles;
    return begin;
  }
  double busy() const { return busy_; }  // cycles, over all

 private:
  double at_ = 0, work_ = 0, busy_ = 0;
};

/// Which lines a cache holds, least recently used first out. `Ways` of 4-byte tags are one or two lines of the host's cache.
template <u32 Sets, u32 Ways>
class tag_array {
 public:
  struct result {
    bool hit = false, was_dirty = false, evicted_dirty = false;  // was_dirty: the line itself
    u64 victim = 0;                                              // a dirty line that had to go
  };
  result touch(u64 line, bool write) {
    if (!tags_) tags_ = std::make_unique<u32[]>(std::size_t{Sets} * Ways);
    u32* const set = &tags_[std::size_t{set_of(line)} * Ways];
    u32 const tag = tag_of(line);
    u32 i = 0;
    while (i < Ways - 1 && (set[i] & ~dirty) != tag) ++i;
    result r;
    r.hit = (set[i] & ~dirty) == tag;
    r.was_dirty = r.hit && (set[i] & dirty);
    if (!r.hit && (set[i] & dirty)) r.evicted_dirty = true, r.victim = line_of(set[i], set_of(line));
    u32 const now = tag | (write || r.was_dirty ? dirty : 0);
    std::memmove(set + 1, set, i * sizeof *set);
    set[0] = now;
    return r;
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
