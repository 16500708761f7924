#pragma once
#include <span>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// The bundle behind a "CCOB" header (clang --offload-compress). Throws std::runtime_error with the reason when it
/// cannot be read.
std::vector<u8> decompress_bundle(std::span<u8 const>);

}  // namespace fusewire::sim
