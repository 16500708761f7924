// Where a tile goes: the concept, and a matrix in this rank's memory.
#pragma once
#include <concepts>

#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/gemm/raster_order.hpp>

namespace fusewire {

/// A tile sink. at(t) is the matrix that takes tile t, in the memory of any rank. Its rows and columns are numbered as
/// in the grid of tiles; rows from at(t).rows on and columns from at(t).cols on are not stored. stored(g, t) is called
/// by every thread of a group when the thread has stored its part, before the group meets. If blocks share a tile, such
/// a group of each of them calls it, after storing the block's rows: ceil_slice(rows of the tile, blocks, the block's
/// number, the mainloop's part_unit). A mainloop may make the call as late as after the multiplication of the group's
/// next tile.
template <class S>
concept tile_sink = requires(S const s, block g, tile_coord t) {
  s.at(t).rows;
  s.stored(g, t);
};

/// A tile sink: a matrix in this rank's memory; no rank is told.
template <class T>
struct local_sink {
  matrix<T> c;  // [M, N]
  __device__ matrix<T> at(tile_coord) const { return c; }
  template <group Group>
  __device__ void stored(Group, tile_coord) const {}
};

}  // namespace fusewire
