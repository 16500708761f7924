// Calls for a kernel that is launched before earlier work on its stream is over; see launch_shape::programmatic.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

using platform::launch_dependents;
using platform::wait_prior_grid;

}  // namespace fusewire
