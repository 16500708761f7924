// Tile orders as ranges: every tile exactly once, tested on the host.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/math.hpp>
#include <fusewire/core/types.hpp>

namespace fusewire {

/// The numbers first, first + step, ... below last.
struct strided_range {
  int first, last, step;  // the first number; the end of the range; the distance between neighbours

  /// For range-based for.
  struct iterator {
    int i, step;  // the number; the distance to the next
    /// The number.
    __host__ __device__ constexpr int operator*() const { return i; }
    /// The next number.
    __host__ __device__ constexpr iterator& operator++() {
      i += step;
      return *this;
    }
    /// Whether the number is below `end`.
    __host__ __device__ constexpr bool operator!=(int end) const { return i < end; }
  };
  /// The first number.
  __host__ __device__ constexpr iterator begin() const { return {first, step}; }
  /// All numbers of the range are smaller.
  __host__ __device__ constexpr int end() const { return last; }
};

/// The share of `worker` if numbers [0, count) are distributed round robin over `workers` workers.
__host__ __device__ constexpr strided_range round_robin(int count, int worker, int workers) {
  return {worker, count, workers};
}

/// A tile's place in the grid.
struct tile_coord {
  int m, n;       // M tile, of the group; tile column
  int group = 0;  // of a grouped GEMM
};

/// The order in which the tiles of an m_tiles x n_tiles grid are taken: groups of `group_m` M tiles, and within a group
/// column after column, so that the tiles in flight share rows of A and columns of B in the cache. Row `first_m` comes
/// first, and the others follow cyclically. The first group may have fewer rows.
class raster_order {
 public:
  static constexpr bool has_groups = false;  // see tile_scheduler

  /// first_group: rows of the first group; 0: as many as any other group has.
  __host__ __device__ constexpr raster_order(int m_tiles, int n_tiles, int first_m, int group_m, int first_group = 0)
      : m_tiles_(m_tiles), n_tiles_(n_tiles), first_m_(first_m), group_m_(min(group_m, m_tiles)),
        missing_(first_group > 0 && first_group < group_m_ ? group_m_ - first_group : 0),
        by_group_tiles_(group_m_ * n_tiles), by_group_(group_m_), by_first_(group_m_ - missing_),
        by_last_((m_tiles + missing_ - 1) % group_m_ + 1) {}

  /// Tiles of the grid.
  __host__ __device__ constexpr int count() const { return m_tiles_ * n_tiles_; }
  /// The i-th tile of the order. Requires: 0 <= i < count().
  __host__ __device__ constexpr tile_coord operator[](int i) const {
    int const j = i + missing_ * n_tiles_, b = j / by_group_tiles_, row = b * group_m_ - missing_, above = max(row, 0),
              rest = i - above * n_tiles_;
    divisor const& rows = b == 0 ? by_first_ : row + group_m_ > m_tiles_ ? by_last_ : by_group_;
    int const n = rest / rows, m = above + rest % rows + first_m_;
    return {m < m_tiles_ ? m : m - m_tiles_, n};
  }

 private:
  int m_tiles_, n_tiles_, first_m_, group_m_, missing_;  // missing_: rows that the first group has less than others
  divisor by_group_tiles_, by_group_, by_first_, by_last_;
};

}  // namespace fusewire
