// expect: no matching function|no instance of
#include <fusewire/device/memory.hpp>
using namespace fusewire;
struct handle {
  int x;
  __device__ handle(handle const& h) : x(h.x) {}
};
__global__ void kernel(handle const* p, int* q) { *q = load(p).x; }
