#pragma once
#include <memory>
#include <string>

#include "machine/cache.hpp"
#include "machine/node.hpp"

namespace fusewire::sim {

/// Recognises a wave that polls: it loads from addresses that it has loaded from before, and finds the same values.
struct poll_tracker {
  struct entry {
    u64 address = 0, value = 0;
    u32 pc = 0;
  };
  u32 next = 0, repeats = 0;
  entry last{};
  std::array<u64, 8> maybe{};  // a bit for each recent address, to rule out most others quickly
  std::array<entry, 64> recent{};

  void note(u64 address, u64 value, u32 pc) {
    last = {address, value, pc};
    if (bit_of(address))
      for (entry& e : recent)
        if (e.address == address) {
          repeats = e.value == value ? repeats + 1 : 0;
          e.value = value;
          return;
        }
    recent[next++ % recent.size()] = last;
    repeats = 0;
    if (next % recent.size() == 0) {  // those that went left their bits
      maybe = {};
      for (entry const& e : recent) set_bit(e.address);
    } else {
      set_bit(address);
    }
  }

 private:
  static u64 place(u64 address) { return (address >> 2) * 0x9e3779b97f4a7c15 >> 55; }
  bool bit_of(u64 address) const { return maybe[place(address) / 64] >> place(address) % 64 & 1; }
  void set_bit(u64 address) { maybe[place(address) / 64] |= u64{1} << place(address) % 64; }
};

struct group_memory;
struct wave_clock;

/// What the memory keeps about one wave.
struct wave_memory {
  group_memory* group = nullptr;
  wave_clock* clock = nullptr;           // with a clock
  u64 serial = 0;                        // of the wave, over all
  allocation const* last = nullptr;      // of the latest access
  part const* piece = nullptr;           // of `last`, where that has parts
  u64 issued = 0;                        // vector memory operations, for vmcnt
  u64 issued_before = 0, active_at = 0;  // when the latest of them was issued, in instructions of the wave
  poll_tracker polls;
};

/// A store that the workgroup has issued and its L2 has not seen yet.
struct store_in_flight {
  cache_line line;
  wave const* by = nullptr;
  u64 number = 0;  // the wave's count of operations when it was issued
  cache_bits bits;
  allocation const* where = nullptr;
};

/// A load that has not taken its value yet, or an atomic that has not acted yet.
struct operation_in_flight {
  wave* by = nullptr;
  u32 pc = 0;
  u64 number = 0;  // the wave's count of operations when it was issued
  bool is_atomic = false;
  cache_bits bits;
  rmw what{};
  int bytes = 0;
  destination to;
  int first = 0;  // the lane that tells whether a wave polls
  u64 mask = 0;   // lanes to be done
  u64 address[lanes];
  u32 data[2][lanes], compare[2][lanes];  // of an atomic

  /// Its lanes, line by line; a line can come twice.
  struct piece {
    u64 line, mask;
  };
  u32 pieces = 0;
  piece piece_of[lanes];
};

/// A buffer_wbl2 that has not been done yet. It covers the lines that were dirty at the L2's time `until`, and those to
/// which the wave had stores in flight.
struct writeback_in_flight {
  wave* by = nullptr;
  u64 number = 0, until = 0;
  bool system = false;
  std::vector<u64> own;
};

/// Counts operations in flight that may touch a line: never too few.
class line_filter {
 public:
  void add(u64 line) { ++count_[index(line)]; }
  void remove(u64 line) { --count_[index(line)]; }
  u32 at(u64 line) const { return count_[index(line)]; }

 private:
  static u32 index(u64 line) { return static_cast<u32>((line >> 7) ^ (line >> 15)) % 256; }
  std::array<u16, 256> count_{};
};

/// What the memory keeps about one workgroup: its CU, and what it has in flight. Waves of a workgroup share a CU and
/// its L1, which keeps order line by line, so they see each other's stores in flight.
struct group_memory {
  int gpu = 0, xcd = 0, cu = 0;
  l1_cache* l1 = nullptr;
  l2_cache* l2 = nullptr;
  allocation kernarg;
  std::unique_ptr<race_group> races;  // with --races
  std::vector<store_in_flight> stores;
  std::vector<std::unique_ptr<operation_in_flight>> operations;  // in the order of issue
  line_filter loads, atomics;
  std::vector<writeback_in_flight> writebacks;
  bool quiet() const { return stores.empty() && operations.empty() && writebacks.empty(); }
};

/// Checks and accounting common to both memory models.
class node_memory : public memory_port {
 public:
  explicit node_memory(node& n) : node_(n) {}
  void issue(wave& w) override { ++w.pending->issued; }
  u64 clock(wave&) override;
  u64 real_time(wave&) override;
  bool scalar_load(wave&, u64 address, int bytes, bool fresh, u32* out) override;
  bool scalar_atomic(wave&, rmw, u64 address, int bytes, u64 data, u64 compare, destination const& old) override;

  virtual void kernel_begins(int /*gpu*/) {}
  virtual void kernel_ends(int /*gpu*/) {}
  /// Called when the launch is over. Says what was wrong with it: a workgroup did not add to the ticket of a part that
  /// the launch used. Empty when nothing was.
  std::string ended_wrong(dispatch const&, u64 groups);
  virtual void group_ends(group_memory&) {}
  virtual void tick(group_memory&) {}  // lets time pass for what the workgroup has in flight, and for caches
  /// The host has waited for the GPU, or copies: what the GPU's kernels wrote is in memory, and later kernels read it
  /// anew.
  virtual void system_scope(int /*gpu*/) {}
  /// What hipMemset's kernel does: a row of bytes of the GPU's own memory.
  virtual void fill(int gpu, u8* to, u8 const* from, u64 bytes);
  /// Why a wave that polls may not see what memory holds, for the report of a deadlock; empty when there is no reason.
  virtual std::string hidden(u64 /*address*/, group_memory const&) const { return {}; }

 protected:
  enum class access { read, write, atomic };
  /// True when the wave may access the bytes; sets wave_memory::last. Otherwise raises the fault.
  bool allowed(wave& w, access a, u64 address, int bytes) {
    allocation const* last = w.pending->last;
    return (last && last->live && last->covers(address, bytes) && (!last->parts || within_piece(w, address, bytes))) ||
           look_up(w, a, address, bytes);
  }
  /// allowed() for an access that was allowed when it was issued: the memory may have been freed since.
  bool still_allowed(wave& w, access a, u64 address, int bytes) {
    wave_memory& m = *w.pending;
    if (m.last && m.last->live && m.last->covers(address, bytes)) return true;
    allocation const* const now = node_.memory.find(address);
    if (!now || !now->live) return look_up(w, a, address, bytes);
    m.last = now, m.piece = nullptr;
    return true;
  }
  static bool within_piece(wave const& w, u64 address, int bytes) {
    part const* const p = w.pending->piece;
    return p && p->live && !p->ticket && p->covers(address, static_cast<u64>(bytes));
  }
  bool look_up(wave&, access, u64 address, int bytes);
  bool allowed_atomic(wave&, u64 address, int bytes);
  /// An atomic that was allowed, on the lanes in `mask`.
  virtual bool act(wave&, cache_bits, u32 pc, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
                   u32 const (*compare)[lanes], destination const& old) = 0;
  static std::string what_of(access, int bytes);  // "global read of 4 bytes at "
  bool look_up_part(wave&, access, allocation const&, u64 address, int bytes);
  bool note_use(wave&, access, part&, u64 address);
  void count(wave& w, access a, u64 bytes) {
    int const from = w.pending->group->gpu, to = w.pending->last->gpu;
    if (to >= 0 && to != from) count_link(from, to, a, bytes);
  }
  void count_link(int from, int to, access, u64 bytes);
  /// Which of the wave's operations have taken effect when at most `outstanding` are in flight: up to this number.
  static u64 done_before(wave const& w, int outstanding) {
    return w.pending->issued - std::min(w.pending->issued, static_cast<u64>(outstanding));
  }
  void note_wait(wave& w, int outstanding) {
    if (node_.races) node_.races->waited(w, done_before(w, outstanding));
  }
  /// Tells --races of an access. Atomic ones that load are told of when they take their value.
  void note_race(wave& w, race_checker::access a, cache_bits bits, u32 pc, u64 mask, u64 const* address, int bytes) {
    if (node_.races) [[unlikely]]
      node_.races->note(w, a, bits, pc, mask, address, bytes);
  }
  static constexpr u32 nowhere = ~u32{0};
  /// pc: of the load or atomic, or `nowhere` for a part of one that must not be noted.
  void note_poll(wave& w, u32 pc, u64 mask, u64 const* address, u32 const (*value)[lanes]) {
    if (!mask || pc == nowhere) return;
    int const l = std::countr_zero(mask);
    w.pending->polls.note(address[l], value[0][l], pc);
  }

  node& node_;
  std::vector<part*> in_use_;  // by a launch: those that have a ticket
};

/// Every access reaches memory at once, in the order of execution.
class strong_memory final : public node_memory {
 public:
  using node_memory::node_memory;
  bool load(wave&, cache_bits, u64 mask, u64 const* address, int bytes, destination const&) override;
  bool store(wave&, cache_bits, u64 mask, u64 const* address, int bytes, u32 const (*in)[lanes]) override;
  bool atomic(wave&, cache_bits, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
              u32 const (*compare)[lanes], destination const& old) override;
  void writeback(wave&, cache_bits) override;
  void invalidate(wave&, cache_bits) override;
  void wait_vmcnt(wave& w, int outstanding) override { note_wait(w, outstanding); }

 protected:
  bool act(wave&, cache_bits, u32 pc, rmw, u64 mask, u64 const* address, int bytes, u32 const (*data)[lanes],
           u32 const (*compare)[lanes], destination const& old) override;
};

/// Reads `bytes` of one lane from p / writes them to p. Aligned 4 and 8 bytes are read and written in one piece.
FUSEWIRE_SIM_UNWATCHED inline void gather(u8 const* p, int bytes, u32 (*out)[lanes], int lane) {
  u32 d[4] = {};
  switch (bytes) {
    case 1: d[0] = *p; break;
    case 2: d[0] = *reinterpret_cast<u16 const*>(p); break;
    case 4: __builtin_memcpy(d, p, 4); break;
    case 8: {
      u64 x;
      if (reinterpret_cast<u64>(p) % 8) __builtin_memcpy(&x, p, 8);
      else x = *reinterpret_cast<u64 const volatile*>(p);
      d[0] = static_cast<u32>(x);
      out[1][lane] = static_cast<u32>(x >> 32);
      break;
    }
    case 12:
      __builtin_memcpy(d, p, 12);
      out[1][lane] = d[1];
      out[2][lane] = d[2];
      break;
    default:
      __builtin_memcpy(d, p, 16);
      out[1][lane] = d[1];
      out[2][lane] = d[2];
      out[3][lane] = d[3];
      break;
  }
  out[0][lane] = d[0];
}
FUSEWIRE_SIM_UNWATCHED inline void scatter(u8* p, int bytes, u32 const (*in)[lanes], int lane) {
  u32 d[4] = {in[0][lane]};
  switch (bytes) {
    case 1: *p = static_cast<u8>(d[0]); break;
    case 2: __builtin_memcpy(p, d, 2); break;
    case 4: __builtin_memcpy(p, d, 4); break;
    case 8: {
      u64 const x = d[0] | u64{in[1][lane]} << 32;
      if (reinterpret_cast<u64>(p) % 8) __builtin_memcpy(p, &x, 8);
      else *reinterpret_cast<u64 volatile*>(p) = x;
      break;
    }
    case 12:
      d[1] = in[1][lane];
      d[2] = in[2][lane];
      __builtin_memcpy(p, d, 12);
      break;
    default:
      d[1] = in[1][lane];
      d[2] = in[2][lane];
      d[3] = in[3][lane];
      __builtin_memcpy(p, d, 16);
      break;
  }
}

/// Of any size, which volatile keeps from becoming a call of memcpy.
FUSEWIRE_SIM_UNWATCHED inline void copy_bytes(u8* to, u8 const* from, u64 bytes) {
  u64 i = 0;
  if ((reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) % 8 == 0)
    for (; i + 8 <= bytes; i += 8) *reinterpret_cast<u64*>(to + i) = *reinterpret_cast<u64 const volatile*>(from + i);
  for (; i < bytes; ++i) to[i] = static_cast<u8 const volatile*>(from)[i];
}
FUSEWIRE_SIM_UNWATCHED inline u32 word_at(u64 address) {
  u32 x;
  __builtin_memcpy(&x, reinterpret_cast<void const*>(address), 4);
  return x;
}

/// "out-of-bounds ..." with the allocation that is nearest.
std::string describe(address_space const&, u64 address, allocation const*);

}  // namespace fusewire::sim
