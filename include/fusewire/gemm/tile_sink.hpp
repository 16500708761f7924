// Where a tile goes: the concept, and a matrix in this rank's memory.
#pragma once
#include <concepts>

#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/gemm/raster_order.hpp>

namespace fusewire {

/// What one block has stored of a tile.
struct stored_slice {
  index_range rows;           // of the tile; they may reach past those of the sink's matrix
  int slice = 0, slices = 1;  // number of this slice; blocks that each store one
};

/// A tile sink. at(t) is the matrix that takes tile t, in the memory of any rank. Its rows and columns are numbered as
/// in the grid of tiles; rows from at(t).rows on and columns from at(t).cols on are not stored. stored(g, t, s) is
/// called by every thread of a group when the thread has stored its part of slice s, before the group syncs. If blocks
/// share a tile, such a group of each of them calls it. A mainloop may make the call as late as after the
/// multiplication of the group's next tile. The compiler knows nothing of t there, so what a sink computes from it
/// takes no registers while the tile is multiplied. On gfx942 a stored() with a barrier is inlined (__forceinline__):
/// in its own function the compiler takes t, s and the launch's epoch for different in each lane.
template <class S>
concept tile_sink = requires(S const s, block g, tile_coord t, stored_slice slice) {
  s.at(t).rows;
  s.stored(g, t, slice);
};
/// t, of which the compiler knows nothing.
__device__ inline tile_coord opaque(tile_coord t) {
  return {platform::no_hoist(platform::opaque(t.m)), platform::no_hoist(platform::opaque(t.n)), t.group};
}

/// The epilogue of tile t: the caller's or, if the sink has of_tile(t, epilogue), what that returns.
template <tile_sink Sink, class Epilogue>
__device__ __forceinline__ decltype(auto) epilogue_of_tile(Sink const& sink, tile_coord t, Epilogue const& epilogue) {
  if constexpr (requires { sink.of_tile(t, epilogue); }) return sink.of_tile(t, epilogue);
  else return (epilogue);
}

/// A tile sink: a matrix in this rank's memory; no rank is told.
template <class T>
struct local_sink {
  matrix<T> c;  // [M, N]
  __device__ matrix<T> at(tile_coord) const { return c; }
  template <group Group>
  __device__ void stored(Group, tile_coord, stored_slice) const {}
};

}  // namespace fusewire
