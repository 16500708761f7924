// expect: no matching function|no instance of
#include <fusewire/device/barrier.hpp>
using namespace fusewire;
__global__ void kernel(world_view w, sym<int> words) { barrier(block{}, w, words); }
