// Stores four neighbouring elements of a row of C, with one store if the alignment of C allows it.
#pragma once
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// Whether every row of c is aligned to four elements.
template <class T>
__device__ bool has_whole_quads(matrix<T> c) {
  return (c.ld % 4 | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) % (4 * sizeof(T)))) == 0;
}

/// Stores `four` to c(r, col) and the 3 elements after it; elements outside c are left out. whole: has_whole_quads(c).
template <class T>
__device__ void store_quad(matrix<T> c, int r, int col, T const (&four)[4], bool whole) {
  struct alignas(4 * sizeof(T)) quad {
    T element[4];
  };
  if (whole && col + 4 <= c.cols) *reinterpret_cast<quad*>(c.at(r, col)) = {four[0], four[1], four[2], four[3]};
  else
    for (int j = 0; j < 4 && col + j < c.cols; ++j) c(r, col + j) = four[j];
}

/// Stores epilogue(sums) in the same way. The row, too, may be outside c.
template <class T, class Epilogue>
__device__ void store_quad(matrix<T> c, int r, int col, float4 const& sums, bool whole, Epilogue const& epilogue) {
  if (r >= c.rows || col >= c.cols) return;
  T four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) four[j] = col + j < c.cols ? T(epilogue((&sums.x)[j], r, col + j)) : T(0.0f);
  store_quad(c, r, col, four, whole);
}

}  // namespace fusewire
