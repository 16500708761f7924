// expect: no matching function|no instance of
#include <fusewire/device/atomic.hpp>
using namespace fusewire;
__global__ void kernel(int* p) { fetch_add_pair(p, 1, 2); }
