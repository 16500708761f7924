#pragma once
#include <deque>
#include <map>
#include <vector>

#include "machine/parts.hpp"
#include "machine/shared_node.hpp"

namespace fusewire::sim {

enum class memory_kind : u8 { coarse, fine, uncached, host, registered, image, kernarg };
char const* name_of(memory_kind);

struct allocation {
  u64 base = 0, size = 0;  // bytes asked for
  u64 span = 0;            // bytes of address space taken
  int gpu = -1;            // -1: host memory
  memory_kind kind = memory_kind::coarse;
  u32 number = 0;  // in order of allocation, from 1
  bool live = false;
  unsigned flags = 0;                      // as given to HIP
  bool imported = false;                   // another process's, opened with hipIpcOpenMemHandle
  std::shared_ptr<part_table> parts = {};  // null while the program has named none
  u64 end() const { return base + size; }
  bool covers(u64 address, u64 bytes) const {
    return address >= base && address - base <= size && bytes <= size - (address - base);
  }
};

/// Device and pinned host memory of the node. It is ordinary memory of this process, in one reservation at a fixed
/// address. The reservation has a region per GPU and one for the host; a table names the allocation of every 4 KiB
/// page. Freed pages keep their name until the region has been used up once, so that a late access can be told from a
/// wild one. Processes that share a node map one file there. Each allocates in a part of its own of every region, and
/// has a table of its own of what it has allocated or imported.
class address_space {
 public:
  explicit address_space(int gpus, shared_node const* = nullptr);

  /// gpu = -1 is pinned host memory. Null when the GPU's memory is used up.
  allocation* allocate(int gpu, u64 size, memory_kind, unsigned flags = 0);
  void release(allocation&);
  /// Maps another process's allocation. Null when its addresses are in use here.
  allocation* import(allocation const&);
  allocation* adopt(u64 address, u64 size, unsigned flags);  // hipHostRegister; null when it overlaps another
  void abandon(allocation&);                                 // of adopt() and import()

  /// The live or freed allocation whose pages hold `address`; null when there is none.
  allocation* find(u64 address) {
    u64 const offset = address - base_;
    if (offset < bytes_) {
      u32 const number = pages_[offset >> page_bits];
      return number ? &allocations_[number - 1] : nullptr;
    }
    return adopted_.empty() ? nullptr : find_adopted(address);
  }
  /// The allocation nearest to an address that belongs to no allocation.
  allocation const* nearest(u64 address) const;

  u64 base() const { return base_; }  // of the memory of GPU 0; the next GPU's is region_bytes behind it
  u64 used(int gpu) const { return regions_[gpu].used; }
  static constexpr u64 capacity = u64{192} << 30;  // bytes per GPU
  // A fixed address: addresses repeat from run to run, and processes share them. ThreadSanitizer leaves a program the
  // first 2 TiB, which holds 17 regions of 64 GiB; an allocation fails there before the capacity is reached.
  static constexpr u64 region_bytes = u64{1} << (thread_sanitizer ? 36 : 39),
                       wanted_place = thread_sanitizer ? 0x0080'0000'0000 : 0x2000'0000'0000;

 private:
  static constexpr int page_bits = 12;
  static constexpr u64 page = u64{1} << page_bits;
  struct region {
    u64 next = 0, end = 0, used = 0;
    std::map<u64, u64> free;  // base -> bytes, neighbours joined; used once the region is full
  };
  allocation* find_adopted(u64 address);
  u64 take(region&, u64 span);
  void give(region&, u64 base, u64 bytes);
  void name(u64 base, u64 span, u32 number);

  bool shared_ = false;
  u64 base_ = 0, bytes_ = 0;
  u32* pages_ = nullptr;
  std::vector<region> regions_;  // one per GPU, then the host's
  std::deque<allocation> allocations_;
  std::map<u64, u32> adopted_;  // base -> number
};

}  // namespace fusewire::sim
