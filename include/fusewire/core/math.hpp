// Arithmetic on integers that host and device share.
#pragma once
#include <cstddef>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// The smaller of two numbers.
template <class T>
__host__ __device__ constexpr T min(T a, T b) {
  return b < a ? b : a;
}
/// The larger of two numbers.
template <class T>
__host__ __device__ constexpr T max(T a, T b) {
  return a < b ? b : a;
}
/// The number in [low, high] that is nearest to x. Requires: low <= high.
template <class T>
__host__ __device__ constexpr T clamp(T x, T low, T high) {
  return x < low ? low : min(x, high);
}

/// a / b, rounded up. Requires: a >= 0, b > 0.
__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
/// n, rounded up to a multiple of `to`. Requires: to > 0.
__host__ __device__ constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace fusewire
