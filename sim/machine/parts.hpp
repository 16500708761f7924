#pragma once
#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// How a part is divided into rows with bounds of their own; stride 0: it is not.
struct part_rows {
  u64 bytes = 0, stride = 0;  // of a row; from a row to the next
  u64 extent[2] = {1, 1};     // the part is an array [...][extent[1]][extent[0]] of rows
};

/// Memory with bounds and a name.
struct named_bytes {
  u64 base = 0, size = 0;
  std::string name;
  u64 end() const { return base + size; }
};

/// A part of an allocation that the program has named (fusewireSimNamePart). It has bounds of its own.
struct part {
  u64 base = 0, size = 0;
  std::string name;
  part_rows rows{};
  bool live = true;  // not given back
  // Address of the word to which every workgroup of a launch that touches the part adds once; 0: none
  u64 ticket = 0;
  std::string call = {};           // what adds to it, for reports
  dispatch const* user = nullptr;  // the launch that touches the part, until it is over
  std::vector<bool> left = {};     // by workgroup of `user`: it has added
  // Address of a word to which only launches of `least` workgroups or more add; 0: none
  u64 counted = 0, least = 0;
  std::string counted_by = {};  // what adds to it, for reports
  u64 end() const { return base + size; }
  bool covers(u64 address, u64 bytes) const {
    return address >= base && address - base <= size && bytes <= size - (address - base) &&
           (rows.stride == 0 || (address - base) % rows.stride + bytes <= rows.bytes);
  }
  /// The part, or of its rows the last that begins at or before the address, else the first.
  named_bytes around(u64 address) const;
  /// Its name, with these in place of a row's numbers.
  std::string name_of(std::array<std::string, 3> const& numbers) const;
};

/// The parts of one allocation. A part stays at its address as long as the allocation is known, so waves may keep a
/// pointer to their latest.
class part_table {
 public:
  /// Replaces the parts that it overlaps. A part that exists already only gets the new name: ranks that share memory
  /// all name its parts.
  void name(u64 base, u64 size, std::string text, part_rows const& rows = {});
  void forget(u64 base, u64 size);  // those that begin there
  /// The last part that begins at or before the address; null when there is none.
  part* before(u64 address);
  /// The part that holds the address or is nearest to it; of two, the one before it. Null when there is none.
  part* nearest(u64 address);
  /// Up to `most` parts that end at or before the address, the nearest first; the first one that begins after it.
  std::vector<part const*> below(u64 address, std::size_t most) const;
  part const* above(u64 address) const;

 private:
  std::deque<part> all_;
  std::map<u64, part*> by_base_;
};

}  // namespace fusewire::sim
