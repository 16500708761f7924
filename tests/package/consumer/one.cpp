#include <cstdio>
#include <fusewire/fusewire.hpp>

using namespace fusewire;

bool two_works();

__global__ void one(int* p) { *p = 1; }

int main() {
  int* p = nullptr;
  int value = 0;
  if (hipMalloc(&p, sizeof(int)) != hipSuccess) return 1;
  one<<<1, 1>>>(p);
  if (hipMemcpy(&value, p, sizeof(int), hipMemcpyDeviceToHost) != hipSuccess || hipFree(p) != hipSuccess) return 2;
  if (value != 1 || !two_works()) return 3;
  std::printf("fusewire %d\n", FUSEWIRE_VERSION);
}
