// The operands that every mainloop takes.
#pragma once
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// The [K, N] operand: row-major or column-major, any leading dimension if row-major, a multiple of 8 if column-major.
template <class T>
struct b_operand {
  T const* data;                  // element (0, 0)
  std::int64_t ld;                // elements
  layout order;                   // row-major or column-major
  int n;                          // columns
  int groups = 0;                 // of a grouped GEMM, which has a B for each group; else 0
  std::int64_t group_stride = 0;  // elements from one group's B to the next

  /// B of a group.
  __host__ __device__ b_operand of_group(int group) const { return {data + group * group_stride, ld, order, n}; }
};

/// The operands of a launch: its buffers of A, among which a source chooses, and B.
template <class T, int Buffers>
struct gemm_operands {
  matrix<T const> a[Buffers];  // as the source numbers them
  b_operand<T> b;              // [K, N]
};

}  // namespace fusewire
