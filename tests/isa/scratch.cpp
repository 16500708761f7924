// Planted for check.py: kernels that keep an array in scratch. One accesses it by scratch_ instructions, the other by
// flat ones.
#include <fusewire/gemm/block_gemm.hpp>

namespace fusewire {

template <class Tile>
__global__ void scratch_kernel(int* p, int n) {
  int a[100];
  for (int i = 0; i < n; ++i) a[p[i]] = i;
  for (int i = 0; i < n; ++i) p[i] = a[i];
}
template <class Tile>
__global__ void flat_kernel(int* p, int n) {
  int a[8];
  for (int i = 0; i < 8; ++i) const_cast<int volatile&>(a[(i + n) % 8]) = p[i];
  p[0] = const_cast<int volatile&>(a[n % 8]);
}
template __global__ void scratch_kernel<small_tile>(int*, int);
template __global__ void flat_kernel<small_tile>(int*, int);

}  // namespace fusewire
