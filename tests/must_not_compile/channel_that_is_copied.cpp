// expect: deleted|cannot be referenced
#include <fusewire/fusewire.hpp>
using namespace fusewire;
channel copy_of(channel const& c) { return c; }
