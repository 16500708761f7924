#pragma once
#include <string>

namespace fusewire::sim {

/// The text as a JSON string, with its quotation marks; control characters become spaces.
inline std::string json_string(std::string const& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace fusewire::sim
