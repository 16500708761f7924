// Tile orders as ranges: every tile exactly once, tested on the host.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/types.hpp>

namespace fusewire {

/// The numbers first, first + step, ... below last.
struct strided {
  int first, last, step;

  struct iterator {
    int i, step;
    __host__ __device__ constexpr int operator*() const { return i; }
    __host__ __device__ constexpr iterator& operator++() {
      i += step;
      return *this;
    }
    __host__ __device__ constexpr bool operator!=(int end) const { return i < end; }
  };
  __host__ __device__ constexpr iterator begin() const { return {first, step}; }
  __host__ __device__ constexpr int end() const { return last; }
};

/// Numbers [0, count) dealt to `workers` one after the other; the share of `worker`.
__host__ __device__ constexpr strided dealt(int count, int worker, int workers) { return {worker, count, workers}; }

struct tile_at {
  int m, n;
};

/// The order in which the tiles of an m_tiles x n_tiles grid are taken: bands of `band` tile rows, column after column
/// within a band, so that the tiles in flight share rows of A and columns of B in the cache. Row `first_m` comes first,
/// the rest follow cyclically. The first band may have fewer rows.
class tile_order {
 public:
  __host__ __device__ constexpr tile_order(int m_tiles, int n_tiles, int first_m, int band, int first_band = 0)
      : m_tiles_(m_tiles), n_tiles_(n_tiles), first_m_(first_m), band_(band < m_tiles ? band : m_tiles),
        missing_(first_band > 0 && first_band < band_ ? band_ - first_band : 0), by_band_tiles_(band_ * n_tiles),
        by_band_(band_), by_first_(band_ - missing_), by_last_((m_tiles + missing_ - 1) % band_ + 1) {}

  __host__ __device__ constexpr int count() const { return m_tiles_ * n_tiles_; }
  __host__ __device__ constexpr tile_at operator[](int i) const {
    int const j = i + missing_ * n_tiles_, b = j / by_band_tiles_, row = b * band_ - missing_,
              above = row < 0 ? 0 : row, rest = i - above * n_tiles_;
    divisor const& rows = b == 0 ? by_first_ : row + band_ > m_tiles_ ? by_last_ : by_band_;
    int const n = rest / rows, m = above + rest % rows + first_m_;
    return {m < m_tiles_ ? m : m - m_tiles_, n};
  }

 private:
  int m_tiles_, n_tiles_, first_m_, band_, missing_;  // rows that the first band has less than others
  divisor by_band_tiles_, by_band_, by_first_, by_last_;
};

}  // namespace fusewire
