#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// A part of an allocation that the program has named (fusewireSimNamePart). It has bounds of its own.
struct part {
  u64 base = 0, size = 0;
  std::string name;
  bool live = true;  // not given back
  // Address of the word to which every workgroup of a launch that touches the part adds once; 0: none
  u64 ticket = 0;
  std::string call = {};           // what adds to it, for reports
  dispatch const* user = nullptr;  // the launch that touches the part, until it is over
  std::vector<bool> left = {};     // by workgroup of `user`: it has added
  u64 end() const { return base + size; }
  bool covers(u64 address, u64 bytes) const {
    return address >= base && address - base <= size && bytes <= size - (address - base);
  }
};

/// The parts of one allocation. A part stays at its address as long as the allocation is known, so waves may keep a
/// pointer to their latest.
class part_table {
 public:
  /// Replaces the parts that it overlaps. A part that exists already only gets the new name: ranks that share memory
  /// all name its parts.
  void name(u64 base, u64 size, std::string text);
  void forget(u64 base, u64 size);  // those that begin there
  /// The last part that begins at or before the address; null when there is none.
  part* before(u64 address);
  /// The part that holds the address or is nearest to it; of two, the one before it. Null when there is none.
  part* nearest(u64 address);

 private:
  std::deque<part> all_;
  std::map<u64, part*> by_base_;
};

}  // namespace fusewire::sim
