// expect: atomic_ref: 32 and 64 bit integers
#include <fusewire/device/atomic.hpp>
using namespace fusewire;
__global__ void kernel(bf16* p) { atomic_ref<bf16>(p).exchange(bf16(1.0f)); }
