// expect: deleted|cannot be referenced
#include <fusewire/launch/channel.hpp>
using namespace fusewire;
channel copy_of(channel const& c) { return c; }
