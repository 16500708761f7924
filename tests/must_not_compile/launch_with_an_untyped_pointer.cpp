// expect: 'void \*' to|argument types are: .*void \*
#include <fusewire/launch/launch.hpp>
using namespace fusewire;
__global__ void kernel(int* p) { *p = 1; }
void host(world& w, void* p) { launch(w, w.stream(), {}, kernel, p); }
