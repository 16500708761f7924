// The metadata of a code object: MessagePack. LLVM's Document reads what LLVM wrote; this reads any bytes, or reports
// that it cannot.
#pragma once
#include <optional>
#include <span>

#include "machine.hpp"

namespace fusewire::sim {

/// The members of the other kinds of value are empty.
struct metadata {
  std::string key;  // in a map; entries whose key is no string are left out
  u64 number = 0;   // also 0 and 1 for false and true
  std::string text;
  std::vector<metadata> items;  // of an array or a map

  /// The value of a key; null when there is none.
  metadata const* find(std::string_view wanted) const;
};

/// Nothing when the bytes are malformed.
std::optional<metadata> read_metadata(std::span<u8 const>);

}  // namespace fusewire::sim
