// expect: no matching function|no instance of
#include <fusewire/device/memory.hpp>
using namespace fusewire;
struct pair {
  __device__ int rank() const { return 0; }
  __device__ int size() const { return 2; }
  __device__ bool leader() const { return true; }
};
__global__ void kernel(int const* from, int* to) { copy(pair{}, from, to, 4); }
