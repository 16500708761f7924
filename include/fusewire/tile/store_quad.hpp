// Four neighbouring elements of a row of C, in one store where C's rows allow it.
#pragma once
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// Whether rows of c begin at whole fours of elements.
template <class T>
__device__ bool has_whole_quads(matrix<T> c) {
  return (c.ld % 4 | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) % (4 * sizeof(T)))) == 0;
}

/// c(r, col) and the 3 elements after it = `four`; those that c does not have are left out. `whole`:
/// has_whole_quads(c).
template <class T>
__device__ void store_quad(matrix<T> c, int r, int col, T const (&four)[4], bool whole) {
  struct alignas(4 * sizeof(T)) quad {
    T element[4];
  };
  if (whole && col + 4 <= c.cols) *reinterpret_cast<quad*>(c.at(r, col)) = {four[0], four[1], four[2], four[3]};
  else
    for (int j = 0; j < 4 && col + j < c.cols; ++j) c(r, col + j) = four[j];
}

/// The same of epilogue(sums), for a row and columns that c may not have.
template <class T, class Epilogue>
__device__ void store_quad(matrix<T> c, int r, int col, float4 const& sums, bool whole, Epilogue const& epilogue) {
  if (r >= c.rows || col >= c.cols) return;
  T four[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) four[j] = col + j < c.cols ? T(epilogue((&sums.x)[j], r, col + j)) : T(0.0f);
  store_quad(c, r, col, four, whole);
}

}  // namespace fusewire
