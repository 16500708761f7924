// Calls for a kernel that is launched before earlier work on its stream is over; see launch_shape::early.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

using platform::release_stream;
using platform::wait_for_stream;

}  // namespace fusewire
