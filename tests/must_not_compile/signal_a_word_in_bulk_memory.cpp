// expect: no matching function|no instance of
#include <fusewire/device/flag.hpp>
using namespace fusewire;
__global__ void kernel(world_view w, sym<epoch_t> words) { signal(block{}, w.on(1, words), 1); }
