// expect: deleted|cannot be referenced
#include <fusewire/runtime/channel.hpp>
using namespace fusewire;
channel copy_of(channel const& c) { return c; }
