// Stores four neighbouring elements of a row of C, with one store if the alignment of C allows it.
#pragma once
#include <fusewire/core/matrix.hpp>

namespace fusewire {

namespace detail {
/// Stores value(0) to value(3) to c(r, col) and the 3 elements after it; those outside c are left out.
/// whole: is_row_aligned<4 * sizeof(T)>(c).
template <class T, class Value>
__device__ void store_four(matrix<T> c, int r, int col, bool whole, Value const& value) {
  struct alignas(4 * sizeof(T)) vec4 {
    T element[4];
  };
  if (whole && col + 4 <= c.cols) {
    *reinterpret_cast<vec4*>(c.at(r, col)) = {value(0), value(1), value(2), value(3)};
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (col + j < c.cols) c(r, col + j) = value(j);
}
}  // namespace detail

/// Stores epilogue(sums) to c(r, col) and the 3 elements after it; elements outside c are left out. The row, too, may
/// be outside c. whole: is_row_aligned<4 * sizeof(T)>(c).
template <class T, class Epilogue>
__device__ void store_vec4(matrix<T> c, int r, int col, float4 const& sums, bool whole, Epilogue const& epilogue) {
  if (r >= c.rows) return;
  detail::store_four(c, r, col, whole, [&](int j) { return T(epilogue((&sums.x)[j], r, col + j)); });
}

}  // namespace fusewire
