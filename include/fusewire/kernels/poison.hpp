// What is stored in place of results that nobody can have computed.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/tile/tiles.hpp>

namespace fusewire {

namespace detail {

/// Makes a tile of c NaN, from c(m0, n0) on. Called by: every thread of the group.
template <class T, group Group>
__device__ void poison_tile(Group g, matrix<T> c, int m0, int n0, int rows, int columns) {
  for (int r = m0; r < c.rows && r < m0 + rows; ++r)
    for (int j = n0 + g.rank(); j < c.cols && j < n0 + columns; j += g.size()) c(r, j) = T(__builtin_nanf(""));
}

}  // namespace detail

/// A tile sink: as into, but what is stored when a wait has been given up becomes NaN, if the channel poisons.
template <class T>
struct into_or_poison {
  matrix<T> c;
  channel_epoch const& e;
  int tile_m, tile_n;

  __device__ matrix<T> at(tile_at) const { return c; }
  template <group Group>
  __device__ void stored(Group g, tile_at t) const {
    if (!e.may_poison()) return;
    g.sync();  // nobody stores any more
    if (e.poisons()) detail::poison_tile(g, c, t.m * tile_m, t.n * tile_n, tile_m, tile_n);
  }
};

}  // namespace fusewire
