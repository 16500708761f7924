// What a kernel calls that is launched before its stream's past is over; see launch_shape::early.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

using platform::release_stream;
using platform::wait_for_stream;

}  // namespace fusewire
