// expect: no matching function|no instance of
#include <fusewire/device/flag.hpp>
using namespace fusewire;
__global__ void kernel(world_view w, sym<flag> f) { signal(256, w.on(1, f), 1); }
