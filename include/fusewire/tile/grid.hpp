// Tile orders as ranges: every tile exactly once, tested on the host.
#pragma once
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

/// The order in which the tiles of an m_tiles x n_tiles grid are taken: bands of `band` tile rows, column after column within a
/// band, so that the tiles in flight share rows of A and columns of B in the cache. Row `first_m` comes first, the rest follow cyclically.
struct tile_order {
  int m_tiles, n_tiles, first_m, band;

  __host__ __device__ constexpr int count() const { return m_tiles * n_tiles; }
  __host__ __device__ constexpr tile_at operator[](int i) const {
    int const in_band = band * n_tiles, b = i / in_band, rest = i - b * in_band;
    int const rows = m_tiles - b * band < band ? m_tiles - b * band : band;
    int const m = b * band + rest % rows + first_m;
    return {m < m_tiles ? m : m - m_tiles, rest / rows};
  }
};

}  // namespace fusewire
