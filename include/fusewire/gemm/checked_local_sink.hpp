// NaN in place of results that are undefined because a wait timed out.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/gemm/tile_sink.hpp>

namespace fusewire {

namespace detail {

/// Fills `rows` rows and `columns` columns of c, from c(m0, n0) on, with NaN. Called by: every thread of the group.
template <class T, group Group>
__device__ void poison_tile(Group g, matrix<T> c, int m0, int n0, int rows, int columns) {
  for (int r = m0; r < c.rows && r < m0 + rows; ++r)
    for (int j = n0 + g.rank(); j < c.cols && j < n0 + columns; j += g.size()) c(r, j) = T(__builtin_nanf(""));
}

}  // namespace detail

/// A tile sink: as local_sink, but if the channel poisons, tiles that are stored after a wait timed out become NaN.
template <class T>
struct checked_local_sink {
  matrix<T> c;             // [M, N]
  channel_epoch const& e;  // of this launch
  int tile_m, tile_n;      // rows and columns of a tile's part of c

  __device__ matrix<T> at(tile_coord) const { return c; }
  template <group Group>
  __device__ void stored(Group g, tile_coord t, stored_slice) const {
    if (!e.control().fills_nan()) return;
    g.sync();  // all threads have stored
    if (e.control().should_fill_nan()) detail::poison_tile(g, c, t.m * tile_m, t.n * tile_n, tile_m, tile_n);
  }
};

}  // namespace fusewire
