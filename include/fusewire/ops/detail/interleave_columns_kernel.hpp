// The kernel of interleave_columns.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>

namespace fusewire::detail {

inline constexpr int interleave_columns_threads = 256;

/// to (k, 2 j) = even (k, j) and to (k, 2 j + 1) = odd (k, j), where the matrices lie as `order` says: element (k, j)
/// of a column-major one is data[j * ld + k]. Called by: interleave_columns, with any number of blocks.
template <class T>
__global__ void interleave_columns_kernel(matrix<T const> even, matrix<T const> odd, matrix<T> to, layout order) {
  block const b;
  std::int64_t const count = std::int64_t(even.rows) * even.cols, step = std::int64_t(b.count()) * b.size();
  for (std::int64_t i = std::int64_t(b.index()) * b.size() + b.rank(); i < count; i += step) {
    bool const by_row = order == layout::row_major;
    std::int64_t const line = by_row ? even.cols : even.rows, r = i / line, c = i % line;  // of memory
    T const x = even.data[r * even.ld + c], y = odd.data[r * odd.ld + c];
    T* const first = to.data + (by_row ? r * to.ld + 2 * c : 2 * r * to.ld + c);
    first[0] = x;
    first[by_row ? 1 : to.ld] = y;
  }
}

}  // namespace fusewire::detail
