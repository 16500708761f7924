// expect: no matching function|no instance of
#include <fusewire/device/memory.hpp>
using namespace fusewire;
__global__ void kernel(int const* from, float* to) { copy(block{}, from, to, 4); }
