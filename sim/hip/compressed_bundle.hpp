#pragma once
#include <string>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// The bundle inside a "CCOB" header (clang --offload-compress). Empty, with the reason in `problem`, when it cannot be read.
std::vector<u8> decompress_bundle(u8 const* header, std::string& problem);

}  // namespace fusewire::sim
