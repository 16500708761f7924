// Views of matrices in memory. A view of memory that a peer writes is never `const __restrict__`: the compiler would
// read it through a cache that an acquire does not cover.
#pragma once
#include <type_traits>

#include <fusewire/core/math.hpp>
#include <fusewire/core/types.hpp>

namespace fusewire {

/// Row-major: element (r, c) is data[r * ld + c].
template <class T>
struct matrix {
  T* data = nullptr;       // element (0, 0)
  int rows = 0, cols = 0;  // of the view
  std::int64_t ld = 0;     // elements from one row to the next, >= cols

  /// Where element (r, c) lies.
  __host__ __device__ T* at(int r, int c) const { return data + r * ld + c; }
  /// Element (r, c).
  __host__ __device__ T& operator()(int r, int c) const { return *at(r, c); }
  /// The same view, read-only.
  template <class U>
    requires(std::is_same_v<U, T const> && !std::is_const_v<T>)
  __host__ __device__ operator matrix<U>() const {
    return {data, rows, cols, ld};
  }
  /// Rows [r, r + rows) and columns [c, c + cols).
  __host__ __device__ matrix submatrix(int r, int c, int n_rows, int n_cols) const {
    return {at(r, c), n_rows, n_cols, ld};
  }
};

/// Whether every row of a matrix begins at a multiple of Bytes bytes. data: of row 0; ld: elements from one row to the
/// next. Bytes: a power of two.
template <int Bytes, class T>
__host__ __device__ bool is_row_aligned(T const* data, std::int64_t ld) {
  auto const pitch = std::uintptr_t(ld * std::int64_t(sizeof(T)));
  return ((pitch | reinterpret_cast<std::uintptr_t>(data)) & (Bytes - 1)) == 0;
}
/// The same of a view.
template <int Bytes, class T>
__host__ __device__ bool is_row_aligned(matrix<T> x) {
  return is_row_aligned<Bytes>(x.data, x.ld);
}

/// How a [K, N] operand lies in memory.
enum class layout { row_major, column_major };

}  // namespace fusewire
