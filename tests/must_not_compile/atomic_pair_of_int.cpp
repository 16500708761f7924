// expect: no matching function|no instance of
#include <fusewire/fusewire.hpp>
using namespace fusewire;
__global__ void kernel(int* p) { fetch_add_pair(p, 1, 2); }
