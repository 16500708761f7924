// expect: no matching function|no instance of
#include <fusewire/device/memory.hpp>
using namespace fusewire;
struct pixel {
  unsigned char r, g, b;
};
__global__ void kernel(pixel const* p, pixel* q) { *q = load(p); }
