// expect: constraint|no matching|no instance
#include <fusewire/device/atomic.hpp>
using namespace fusewire;
__global__ void kernel(float* p) { atomic_ref<float>(p).fetch_and(1.0f); }
