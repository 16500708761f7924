// expect: cannot initialize|cannot be used to initialize
#include <fusewire/memory/heap.hpp>
using namespace fusewire;
__global__ void kernel(world_view w, sym<int> x) {
  float* const p = w.on(1, x);
  *p = 1;
}
