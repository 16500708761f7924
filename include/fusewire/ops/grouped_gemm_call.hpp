// What grouped_gemm multiplies.
#pragma once
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// One call. Group g has rows offsets[g] to offsets[g + 1] - 1 of a and of c, or with `ends` rows offsets[g] to
/// ends[g] - 1, so that groups can begin at aligned rows. Both are read by the kernel. Rows of no group are neither
/// read nor written; nor are rows beyond max_rows, whatever the offsets say.
template <class T>
struct grouped_gemm_call {
  matrix<T const> a;                    // [max_rows, K], K a multiple of 8
  matrix<T const> b;                    // [K, N] of group 0; column-major: b.ld is the distance between columns
  std::int64_t b_group_stride = 0;      // elements from one group's b to the next
  matrix<T> c;                          // [max_rows, N], of a pair epilogue [max_rows, N / 2]; overlaps nothing else
  int const* offsets = nullptr;         // [groups + 1], in memory of the device; with ends [groups]
  int const* ends = nullptr;            // [groups], in memory of the device; null: offsets + 1
  int groups = 0;                       // from 1 on
  layout b_layout = layout::row_major;  // how each b lies
  /// Rows that a group is expected to have, by which a tile is chosen; 0: max_rows / groups. Any number gives right
  /// results
  int rows_of_group = 0;
};

}  // namespace fusewire
