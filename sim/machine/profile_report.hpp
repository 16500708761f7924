#pragma once
#include "machine/timeline.hpp"

namespace fusewire::sim {

/// Where simulated time went, as text and as JSON.
std::string profile_text(timeline const&, node const&);
std::string profile_json(timeline const&, node const&);

}  // namespace fusewire::sim
