// expect: atomic_ref: 32 and 64 bit integers
#include <fusewire/device/atomic.hpp>
using namespace fusewire;
__global__ void kernel(char* p) { atomic_ref<char>(p).fetch_add(1); }
