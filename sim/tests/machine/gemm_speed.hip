// How fast the simulator is: a bf16 GEMM, C = A x B^T with LDS tiles of 128 x 128 x 32.
//
//   fusewire-sim gemm_speed [size] [repeats]
#include <hip/hip_bf16.h>
#include <hip/hip_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using bf16x4 = __attribute__((ext_vector_type(4))) short;
using f32x16 = __attribute__((ext_vector_type(16))) float;
using u32x4 = __attribute__((ext_vector_type(4))) unsigned;

constexpr int tile = 128, depth = 32, pitch = depth + 8;

__global__ __launch_bounds__(256) void gemm(short const* a, short const* b, float* c, int n, int k) {
  __shared__ short lds_a[tile * pitch], lds_b[tile * pitch];
  int const tiles = n / tile, row = blockIdx.x / tiles * tile, column = blockIdx.x % tiles * tile;
  int const wave = threadIdx.x / 64, lane = threadIdx.x % 64, wm = wave / 2 * 64, wn = wave % 2 * 64;
  f32x16 sum[2][2] = {};
  for (int k0 = 0; k0 < k; k0 += depth) {
    for (int i = threadIdx.x; i < tile * depth / 8; i += 256) {
      int const r = i / (depth / 8), at = i % (depth / 8) * 8;
      *reinterpret_cast<u32x4*>(&lds_a[r * pitch + at]) =
          *reinterpret_cast<u32x4 const*>(&a[static_cast<long>(row + r) * k + k0 + at]);
      *reinterpret_cast<u32x4*>(&lds_b[r * pitch + at]) =
          *reinterpret_cast<u32x4 const*>(&b[static_cast<long>(column + r) * k + k0 + at]);
    }
    __syncthreads();
    for (int kk = 0; kk < depth; kk += 8) {
      bf16x4 fa[2], fb[2];
      for (int i = 0; i < 2; ++i) {
        fa[i] = *reinterpret_cast<bf16x4*>(&lds_a[(wm + i * 32 + lane % 32) * pitch + kk + lane / 32 * 4]);
        fb[i] = *reinterpret_cast<bf16x4*>(&lds_b[(wn + i * 32 + lane % 32) * pitch + kk + lane / 32 * 4]);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
          sum[i][j] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(fa[i], fb[j], sum[i][j], 0, 0, 0);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      for (int e = 0; e < 16; ++e)
        c[static_cast<long>(row + wm + i * 32 + e / 4 * 8 + lane / 32 * 4 + e % 4) * n + column + wn + j * 32 +
          lane % 32] = sum[i][j][e];
}

int main(int argc, char** argv) {
  int const n = argc > 1 ? std::atoi(argv[1]) : 1024, repeats = argc > 2 ? std::atoi(argv[2]) : 1;
  int const blocks = n / tile * (n / tile);
  std::vector<short> a(static_cast<size_t>(n) * n), b(a.size());
  auto const small = [](int x) {
    return static_cast<short>(__builtin_bit_cast(unsigned, static_cast<float>(x)) >> 16);
  };
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = small(static_cast<int>(i * 7 % 5) - 2), b[i] = small(static_cast<int>(i * 11 % 7) - 3);
  short *da, *db;
  float* dc;
  bool ok = hipMalloc(&da, a.size() * 2) == hipSuccess && hipMalloc(&db, a.size() * 2) == hipSuccess &&
            hipMalloc(&dc, a.size() * 4) == hipSuccess;
  ok &= hipMemcpy(da, a.data(), a.size() * 2, hipMemcpyHostToDevice) == hipSuccess &&
        hipMemcpy(db, b.data(), a.size() * 2, hipMemcpyHostToDevice) == hipSuccess;
  for (int r = 0; r < repeats; ++r) {
    auto const start = std::chrono::steady_clock::now();
    gemm<<<blocks, 256>>>(da, db, dc, n, n);
    ok &= hipDeviceSynchronize() == hipSuccess;
    std::printf("GEMM %d^3 bf16: %.2f s\n", n,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::vector<float> c(a.size());
  ok &= hipMemcpy(c.data(), dc, c.size() * 4, hipMemcpyDeviceToHost) == hipSuccess;
  auto const value = [](short x) {
    return __builtin_bit_cast(float, static_cast<unsigned>(static_cast<unsigned short>(x)) << 16);
  };
  for (int i = 0; i < n; i += n / 16 + 1)
    for (int j = 0; j < n; j += n / 16 + 3) {
      float want = 0;
      for (int k = 0; k < n; ++k)
        want += value(a[static_cast<size_t>(i) * n + k]) * value(b[static_cast<size_t>(j) * n + k]);
      ok &= want == c[static_cast<size_t>(i) * n + j];
    }
  std::printf(ok ? "right\n" : "WRONG\n");
  return !ok;
}
