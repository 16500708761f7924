// expect: no known conversion from 'float \*'|argument types are: .*float \*
#include <fusewire/launch/launch.hpp>
using namespace fusewire;
__global__ void kernel(int* p) { *p = 1; }
void host(world& w, float* p) { launch(w, w.stream(), {}, kernel, p); }
