// Tile orders as ranges: every tile exactly once, tested on the host.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/math.hpp>
#include <fusewire/core/types.hpp>

namespace fusewire {

/// The numbers first, first + step, ... below last.
struct strided {
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
__host__ __device__ constexpr strided dealt(int count, int worker, int workers) { return {worker, count, workers}; }

/// A tile's place in the grid.
struct tile_coord {
  int m, n;  // tile row; tile column
};

/// The order in which the tiles of an m_tiles x n_tiles grid are taken: bands of `band` tile rows, and within a band
/// column after column, so that the tiles in flight share rows of A and columns of B in the cache. Row `first_m` comes
/// first, and the others follow cyclically. The first band may have fewer rows.
class raster_order {
 public:
  /// first_band: rows of the first band; 0: as many as any other band has.
  __host__ __device__ constexpr raster_order(int m_tiles, int n_tiles, int first_m, int band, int first_band = 0)
      : m_tiles_(m_tiles), n_tiles_(n_tiles), first_m_(first_m), band_(min(band, m_tiles)),
        missing_(first_band > 0 && first_band < band_ ? band_ - first_band : 0), by_band_tiles_(band_ * n_tiles),
        by_band_(band_), by_first_(band_ - missing_), by_last_((m_tiles + missing_ - 1) % band_ + 1) {}

  /// Tiles of the grid.
  __host__ __device__ constexpr int count() const { return m_tiles_ * n_tiles_; }
  /// The i-th tile of the order. Requires: 0 <= i < count().
  __host__ __device__ constexpr tile_coord operator[](int i) const {
    int const j = i + missing_ * n_tiles_, b = j / by_band_tiles_, row = b * band_ - missing_, above = max(row, 0),
              rest = i - above * n_tiles_;
    divisor const& rows = b == 0 ? by_first_ : row + band_ > m_tiles_ ? by_last_ : by_band_;
    int const n = rest / rows, m = above + rest % rows + first_m_;
    return {m < m_tiles_ ? m : m - m_tiles_, n};
  }

 private:
  int m_tiles_, n_tiles_, first_m_, band_, missing_;  // missing_: rows that the first band has less than others
  divisor by_band_tiles_, by_band_, by_first_, by_last_;
};

}  // namespace fusewire
