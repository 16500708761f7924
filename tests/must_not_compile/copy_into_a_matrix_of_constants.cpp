// expect: no matching function|no instance of
#include <fusewire/device/memory.hpp>
using namespace fusewire;
__global__ void kernel(matrix<int const> from, matrix<int const> to) { copy(block{}, from, to); }
