#pragma once
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "machine/config.hpp"
#include "machine/random.hpp"

namespace fusewire::sim {

inline constexpr u64 line_bytes = 128;
constexpr u64 line_of(u64 address) { return address & ~(line_bytes - 1); }

/// A mask of a line's 128 bytes.
struct byte_mask {
  u64 half[2] = {};
  bool any() const { return half[0] | half[1]; }
  void add(u32 offset, u32 bytes) {
    for (u32 i = offset; i < offset + bytes;) {
      u32 const h = i >> 6, at = i & 63, n = std::min(64 - at, offset + bytes - i);
      half[h] |= (n == 64 ? ~u64{0} : (u64{1} << n) - 1) << at;
      i += n;
    }
  }
  void add(byte_mask const& o) { half[0] |= o.half[0], half[1] |= o.half[1]; }
  void remove(byte_mask const& o) { half[0] &= ~o.half[0], half[1] &= ~o.half[1]; }
};

/// Whether 1, 2 or a multiple of 4 bytes differ.
FUSEWIRE_SIM_UNWATCHED inline bool differ(u8 const* a, u8 const* b, u64 bytes) {
  if (bytes < 4) return a[0] != b[0] || a[bytes - 1] != b[bytes - 1];
  u32 different = 0;
  for (u64 i = 0; i < bytes; i += 4) {
    u32 x, y;
    std::memcpy(&x, a + i, 4);
    std::memcpy(&y, b + i, 4);
    different |= x ^ y;
  }
  return different != 0;
}
FUSEWIRE_SIM_UNWATCHED inline u8* copy_line(u8* to, u8 const* from) {
  return static_cast<u8*>(std::memcpy(to, from, line_bytes));
}

/// Copies the masked bytes; true when any of them differed.
FUSEWIRE_SIM_UNWATCHED inline bool merge(u8* to, u8 const* from, byte_mask const& mask) {
  if ((mask.half[0] & mask.half[1]) == ~u64{0}) {
    bool const changes = differ(to, from, line_bytes);
    if (changes) copy_line(to, from);
    return changes;
  }
  u64 different = 0;
  for (int c = 0; c < 16; ++c) {
    auto const bits = static_cast<u8>(mask.half[c >> 3] >> ((c & 7) * 8));
    if (!bits) continue;
    u64 have, want;
    std::memcpy(&have, to + 8 * c, 8);
    std::memcpy(&want, from + 8 * c, 8);
    if (bits == 0xff) {
      different |= have ^ want;
      std::memcpy(to + 8 * c, &want, 8);
    } else if (bits == 0x0f || bits == 0xf0) {
      int const at = 8 * c + (bits == 0xf0 ? 4 : 0);
      u32 a, b;
      std::memcpy(&a, to + at, 4);
      std::memcpy(&b, from + at, 4);
      different |= a ^ b;
      std::memcpy(to + at, &b, 4);
    } else {
      for (int i = 8 * c; i < 8 * c + 8; ++i)
        if (bits >> (i & 7) & 1) different |= to[i] ^ from[i], to[i] = from[i];
    }
  }
  return different != 0;
}

struct cache_line {
  u64 address = 0;
  byte_mask mask;  // bytes that hold something to be written
  alignas(16) u8 data[line_bytes];
};

/// A CU's vector L1: write-through, and never notified of other writers.
class l1_cache {
 public:
  u8 const* find(u64 line) const {
    slot const& s = slots_[index(line)];
    return s.line == line && s.age == age_ ? s.data : nullptr;
  }
  u8 const* fill(u64 line, u8 const* data) {
    slot& s = slots_[index(line)];
    s.line = line, s.age = age_;
    return copy_line(s.data, data);
  }
  void drop(u64 line) {
    slot& s = slots_[index(line)];
    if (s.line == line) s.line = 0;
  }
  void invalidate() { ++age_; }

 private:
  static constexpr u32 lines = 256;  // 32 KB
  struct slot {
    u64 line = 0, age = 0;
    alignas(16) u8 data[line_bytes];
  };
  static u32 index(u64 line) { return static_cast<u32>((line >> 7) ^ (line >> 15)) % lines; }
  std::unique_ptr<slot[]> slots_ = std::make_unique<slot[]>(lines);
  u64 age_ = 1;
};

/// An XCD's L2: bytes that are written and not yet in memory, and whole lines of peers' memory that may be stale.
class l2_cache {
 public:
  struct slot : cache_line {  // mask: the dirty bytes
    u64 age = 0;              // equal to the cache's age: data holds the whole line
    u64 since = 0;            // the cache's time when it became dirty
    bool remote = false;      // memory of another GPU
    bool listed = false;
    u8 xcds = 0;  // of a released line: the XCDs that have written it
  };
  slot* find(u64 line) {
    if (!used_) return nullptr;
    u32 const set = index(line);
    for (u32 w = 0; w < ways; ++w)
      if (tags_[set][w] == line) return &slots_[set * ways + w];
    return nullptr;
  }
  slot const* find(u64 line) const { return const_cast<l2_cache*>(this)->find(line); }
  /// A slot for a line that find() does not have. `evict` is called for a victim with dirty bytes.
  template <class Evict>
  slot& insert(u64 line, bool remote, random_source& chance, Evict evict) {
    if (!slots_)
      slots_.reset(static_cast<slot*>(std::calloc(sets * ways, sizeof(slot)))),
          tags_ = std::make_unique<u64[][ways]>(sets);
    u32 const set = index(line);
    u32 way = 0;
    while (way < ways && tags_[set][way]) ++way;
    if (way == ways) {
      way = chance.below(ways);
      slot& victim = slots_[set * ways + way];
      if (victim.mask.any()) evict(victim);
    } else {
      ++used_;
    }
    tags_[set][way] = line;
    slot& s = slots_[set * ways + way];
    s.address = line, s.mask = {}, s.age = 0, s.remote = remote, s.xcds = 0;
    return s;
  }
  /// Adds dirty bytes to the line; true when any of them differed.
  bool write(slot& s, u8 const* data, byte_mask const& mask) {
    if (!s.mask.any()) s.since = ++time_;
    if (!s.listed) s.listed = true, dirty_.push_back(&s);
    s.mask.add(mask);
    return merge(s.data, data, mask);
  }
  u64 time() const { return time_; }  // counts lines that became dirty
  bool whole(slot const& s) const { return s.age == age_; }
  void set_whole(slot& s) { s.age = age_; }
  void invalidate() { ++age_; }
  /// Writes back the dirty bytes of every line that `wanted` accepts.
  template <class Wanted, class Write>
  void writeback(Wanted wanted, Write write) {
    std::size_t kept = 0;
    for (slot* s : dirty_) {
      if (s->mask.any() && !wanted(*s)) {
        dirty_[kept++] = s;
        continue;
      }
      s->listed = false;
      if (s->mask.any()) write(*s);
    }
    dirty_.resize(kept);
  }
  std::vector<slot*> const& dirty() const { return dirty_; }
  bool used() const { return used_ != 0; }

 private:
  static constexpr u32 sets = 2048, ways = 8;  // 2 MB of lines
  static u32 index(u64 line) { return static_cast<u32>((line >> 7) ^ (line >> 18) ^ (line >> 39)) % sets; }
  struct release {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<slot[], release> slots_;  // zero at first; unused pages cost nothing
  std::unique_ptr<u64[][ways]> tags_;
  std::vector<slot*> dirty_;
  u64 age_ = 1, used_ = 0, time_ = 0;
};

}  // namespace fusewire::sim
