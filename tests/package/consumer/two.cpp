#include <fusewire/fusewire.hpp>

using namespace fusewire;

__global__ void two(int* p) { *p = 2; }

bool two_works() {
  int* p = nullptr;
  int value = 0;
  if (hipMalloc(&p, sizeof(int)) != hipSuccess) return false;
  two<<<1, 1>>>(p);
  return hipMemcpy(&value, p, sizeof(int), hipMemcpyDeviceToHost) == hipSuccess && hipFree(p) == hipSuccess &&
         value == 2;
}
