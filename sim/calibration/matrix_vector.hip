// y [n] = B [n, k] x [k] in fp16, the weights read once, as vLLM's and rocBLAS's skinny kernels do it.
//
//   matrix_vector N K
//
//   x -> LDS of every block | a wave takes two rows at a time: 2 x 1 KB of each in flight, nontemporal | dot products
//     | sum over lanes | y
//
//     per launch: 2 n k bytes from memory, 304 blocks of 16 waves, 64 KB in flight per CU
//
// Weights that no launch has read before: the published times of matrices that fit into the Infinity Cache are those of
// memory, so theirs rotated as well.
#include "point.hpp"

using namespace calibration;

namespace {

constexpr char const* how = "matrix_vector N K";
constexpr int cus = 304, waves = 16, threads = waves * 64, rows = 2, unroll = 2, most_k = 32 * 1024;
using pair = _Float16 __attribute__((ext_vector_type(2)));

__global__ void __launch_bounds__(threads)
    matrix_vector(halves const* b, halves const* x, _Float16* y, int n, int words_of_row) {
  __shared__ halves lds[most_k / 8];
  for (int i = int(threadIdx.x); i < words_of_row; i += threads) lds[i] = x[i];
  __syncthreads();
  int const wave = __builtin_amdgcn_readfirstlane(int(threadIdx.x) / 64), lane = int(threadIdx.x) % 64;
  for (int first = (int(blockIdx.x) * waves + wave) * rows; first < n; first += int(gridDim.x) * waves * rows) {
    float sum[rows] = {};
    for (int at = lane; at < words_of_row; at += 64 * unroll) {
      halves w[rows][unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u)
#pragma unroll
        for (int r = 0; r < rows; ++r)
          w[r][u] = at + 64 * u < words_of_row
                        ? __builtin_nontemporal_load(b + std::int64_t(first + r) * words_of_row + at + 64 * u)
                        : halves{};
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        halves const v = lds[min(at + 64 * u, words_of_row - 1)];
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
          for (int i = 0; i < 8; i += 2)
            sum[r] = __builtin_amdgcn_fdot2(pair{v[i], v[i + 1]}, pair{w[r][u][i], w[r][u][i + 1]}, sum[r], false);
      }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      for (int mask = 32; mask > 0; mask /= 2) sum[r] += __shfl_xor(sum[r], mask);
      if (lane == 0) y[first + r] = _Float16(sum[r]);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int const n = int(number(argc, argv, 1, how)), k = int(number(argc, argv, 2, how));
  if (n % rows || k % 8 || k > most_k) usage(how);
  node one(1);
  _Float16* b[2];
  auto* const x = one.allocate<_Float16>(0, std::size_t(k));
  auto* const y = one.allocate<_Float16>(0, std::size_t(n));
  std::vector<_Float16> weights(std::size_t(n) * std::size_t(k)), vector(static_cast<std::size_t>(k));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = _Float16(small_number(i));
  for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = _Float16(small_number(i * 7) / 64.0f);
  for (auto& copy : b) copy = node::upload(one.allocate<_Float16>(0, weights.size()), weights);
  node::upload(x, vector);
  double const us = one.time(1, 1, [&](int, hipStream_t stream, int i) {
    matrix_vector<<<cus, threads, 0, stream>>>(reinterpret_cast<halves const*>(b[i]),
                                               reinterpret_cast<halves const*>(x), y, n, k / 8);
  });
  auto const got = node::download(y, std::size_t(n));
  bool right = true;
  for (int row = 0; row < n; row += n / 61 + 1) {
    float want = 0;
    for (int i = 0; i < k; ++i)
      want += float(weights[std::size_t(row) * std::size_t(k) + std::size_t(i)]) * float(vector[std::size_t(i)]);
    right &= float(got[std::size_t(row)]) == float(_Float16(want));
  }
  return report(us, right);
}
