#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// A part of an allocation that the program has named (fusewireSimNamePart): it has bounds of its own.
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

/// The parts of one allocation. Each stays where it is for as long as the allocation is known, so that waves may keep
/// the latest.
class part_table {
 public:
  /// Replaces the parts that it overlaps. One that is there already only gets the name: ranks that share memory all
  /// name what is in it.
  void name(u64 base, u64 size, std::string text);
  void forget(u64 base, u64 size);  // those that begin there
  /// The part that begins last at or before the address; null when there is none.
  part* before(u64 address);
  /// The part that holds the address or is nearest to it; of two, the one before. Null when there is none.
  part* nearest(u64 address);

 private:
  std::deque<part> all_;
  std::map<u64, part*> by_base_;
};

}  // namespace fusewire::sim
