// expect: cannot cast|invalid type conversion|static_cast|cannot be converted
#include <fusewire/fusewire.hpp>
using namespace fusewire;
__global__ void kernel(int* p) { *p = 1; }
void host(world& w, float* p) { launch(w, w.stream(), {}, kernel, p); }
