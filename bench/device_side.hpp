// Kernels of the benchmarks: inputs, references, checks of outputs, ranks that begin together or late.
#pragma once
#include <fusewire/fusewire.hpp>

namespace fusewire::bench {

/// A standard normal number that depends only on index and seed.
__device__ inline float normal(std::uint64_t index, std::uint64_t seed) {
  auto const mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  };
  std::uint64_t const h = mix(mix(index + seed * 0x9e3779b97f4a7c15ull) + 0x632be59bd9b4e019ull);
  float const u = float((h >> 40) + 1) * 0x1p-24f, v = float(std::uint32_t(h) >> 8) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

/// out [rows, cols] of the block (first_row, first_col) of a matrix with `width` columns whose elements are
/// normal(index, seed).
template <class T>
__global__ void fill_normal(T* out, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                            std::int64_t first_col, std::int64_t width, std::uint64_t seed) {
  std::int64_t const step = std::int64_t(gridDim.x) * blockDim.x;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * cols; i += step)
    out[i] = T(normal(std::uint64_t((first_row + i / cols) * width + first_col + i % cols), seed));
}

/// Makes all ranks begin the work after it together: the host has time to enqueue that work, then the ranks sync.
__global__ void start_together(world_view w, sym<barrier_state> s, std::uint64_t head_start) {
  block const b;
  std::uint64_t const t0 = platform::clock_ns();
  while (platform::clock_ns() - t0 < head_start) platform::backoff();
  barrier(b, w, s);
}

/// Makes a rank late by this time; with 0 it ends immediately.
__global__ void stand_still(std::uint64_t ns) {
  std::uint64_t const t0 = platform::clock_ns();
  while (platform::clock_ns() - t0 < ns) platform::backoff();
}

/// The clock of the compute units, in MHz.
__global__ void probe_clock(float* mhz) {
  auto const c0 = clock64();
  std::uint64_t const t0 = platform::clock_ns();
  std::uint64_t t1 = t0;
  while ((t1 = platform::clock_ns()) - t0 < 20'000) {}
  *mhz = float(clock64() - c0) * 1e3f / float(t1 - t0);
}

struct sums {
  double error2, reference2;
};

/// Adds up |x - reference|^2 and |reference|^2. A NaN, such as the poison, makes the sum NaN.
template <class T>
__global__ void compare(T const* x, float const* reference, std::int64_t n, sums* out) {
  double e = 0, r = 0;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x,
                    step = std::int64_t(gridDim.x) * blockDim.x;
       i < n; i += step) {
    float const d = float(x[i]) - reference[i];
    e += double(d) * d;
    r += double(reference[i]) * reference[i];
  }
  atomic_ref<double, scope::device>(&out->error2).fetch_add(e, order::relaxed);
  atomic_ref<double, scope::device>(&out->reference2).fetch_add(r, order::relaxed);
}

/// Copies [W][m, words] to [m, W words], as an all-gather's result has to be for a gather of columns.
__global__ void join_columns(bytes16 const* from, bytes16* to, int m, int words, int ranks) {
  std::int64_t const all = std::int64_t(m) * words * ranks;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    std::int64_t const row = i / (words * ranks), col = i % (words * ranks);
    to[i] = from[(col / words * m + row) * words + col % words];
  }
}

/// C [m, n] = A [m, k] B in fp32; element (k, n) of B is b[k * k_step + n * n_step], rows of C are c_step apart. Plain
/// on purpose: the other kernels are checked against it.
template <class T>
__global__ void __launch_bounds__(256) reference_gemm(T const* a, T const* b, float* c, int m, int n, int k,
                                                      std::int64_t k_step, std::int64_t n_step, std::int64_t c_step) {
  __shared__ float as[16][68], bs[16][68];
  int const m0 = int(blockIdx.y) * 64, n0 = int(blockIdx.x) * 64, t = int(threadIdx.x), tm = t / 16 * 4,
            tn = t % 16 * 4;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = t; i < 1024; i += 256) {
      int const row = i / 16, kk = i % 16;
      as[kk][row] = m0 + row < m && k0 + kk < k ? float(a[std::int64_t(m0 + row) * k + k0 + kk]) : 0.0f;
      bs[kk][row] = n0 + row < n && k0 + kk < k ? float(b[(k0 + kk) * k_step + (n0 + row) * n_step]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; ++kk)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += as[kk][tm + i] * bs[kk][tn + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (m0 + tm + i < m && n0 + tn + j < n) c[(m0 + tm + i) * c_step + n0 + tn + j] = sum[i][j];
}

}  // namespace fusewire::bench
