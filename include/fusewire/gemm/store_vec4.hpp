// Stores what an epilogue makes of four neighbouring sums, with one store if the alignment of C allows it.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/gemm/epilogue.hpp>

namespace fusewire {

namespace detail {
/// Stores value(0) to value(N - 1) to c(r, col) and the elements after it; those outside c are left out. N: 2 or 4.
/// whole: is_row_aligned<N * sizeof(T)>(c).
template <int N, class T, class Value>
__device__ void store_values(matrix<T> c, int r, int col, bool whole, Value const& value) {
  struct alignas(N * sizeof(T)) vec {
    T element[N];
  };
  if (whole && col + N <= c.cols) {
    if constexpr (N == 2) *reinterpret_cast<vec*>(c.at(r, col)) = {value(0), value(1)};
    else *reinterpret_cast<vec*>(c.at(r, col)) = {value(0), value(1), value(2), value(3)};
    return;
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (col + j < c.cols) c(r, col + j) = value(j);
}
}  // namespace detail

/// Stores what the epilogue makes of the product's sums in row r, from column `col` on, a multiple of 4. Elements
/// outside c are left out; the row, too, may be outside c. whole: is_row_aligned<4 * sizeof(T)>(c).
template <class T, class Epilogue>
__device__ void store_vec4(matrix<T> c, int r, int col, float4 const& sums, bool whole, Epilogue const& epilogue) {
  if (r >= c.rows) return;
  constexpr int per_value = columns_of_value<Epilogue>;
  int const first = col / per_value;
  detail::store_values<4 / per_value>(c, r, first, whole,
                                      [&](int j) { return T(detail::value_of(epilogue, sums, r, first, j)); });
}

}  // namespace fusewire
