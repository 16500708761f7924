// Reduce-scatter as a tile sink: the inbox of fp32 sums at the rank that owns the rows, and how they are added up.
#pragma once
#include <fusewire/comm/for_each_quad.hpp>
#include <fusewire/comm/row_shards.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/gemm/store_quad.hpp>
#include <fusewire/gemm/tile_sink.hpp>

namespace fusewire {

/// A tile sink: the inbox of the rank that owns the tile's rows; this rank is told. An inbox holds [source][rows][N]
/// sums in fp32, in rows of whole 16 bytes. Each of the blocks that share a tile raises a flag for the rows that it has
/// stored.
struct reduce_scatter_sink {
  channel_epoch const& e;    // of this launch
  row_shards const& shards;  // which rank owns which rows
  int rank, n, n_tiles;      // this rank; columns of C; tiles of a tile row
  int stores;                // blocks that each store a slice of a tile

  /// Elements from one row of sums to the next.
  __host__ __device__ static constexpr std::int64_t pitch(int n) { return ceil_div(n, 4) * std::int64_t(4); }

  /// The sums of `source` in the inbox of `owner`.
  __device__ matrix<float> from(int source, int owner) const {
    return {e.inbox<float>(owner) + source * shards.per_rank * pitch(n), shards.rows(owner), n, pitch(n)};
  }
  __device__ matrix<float> at(tile_coord t) const {
    // So that the owner's rows have the numbers that they have in the grid of tiles
    int const above = t.m * shards.tile_m - shards.row_in_shard(t.m);
    matrix<float> const c = from(rank, shards.owner(t.m));
    return {c.data - above * c.ld, above + c.rows, n, c.ld};
  }
  /// The first of the `stores` flags, of each source, of a tile in its owner's nth tile row.
  __device__ int flag(int nth, int tile_n) const { return (nth * n_tiles + tile_n) * stores; }
  template <group Group>
  __device__ void stored(Group g, tile_coord t, stored_slice s) const {
    e.signal(g, shards.owner(t.m), flag(shards.nth_of_owner(t.m), t.n) + s.slice);
  }
  /// Waits for the sums of all sources for a tile in this rank's nth tile row. Called by: every thread of the group.
  template <group Group>
  __device__ void wait(Group g, int ranks, int nth, int tile_n) const {
    for (int s = 0; s < stores; ++s) e.wait(g, 0, ranks - 1, flag(nth, tile_n) + s);
  }
};

namespace detail {

/// Sets four elements, from (r, col) on, to epilogue(the sum over sources, in their order), or to NaN if `poisoned`.
/// from(s) is the matrix of source s; cols: columns of C, beyond which elements are zero.
template <class T, class From, class Epilogue>
__device__ void add_sources(T (&four)[4], int sources, From const& from, int r, int col, int cols, bool poisoned,
                            Epilogue const& epilogue) {
  float sum[4] = {};
#pragma unroll 4
  for (int s = 0; s < sources; ++s) {
    float4 const part = *reinterpret_cast<float4 const*>(from(s).at(r, col));
    sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    four[j] = col + j < cols ? T(poisoned ? __builtin_nanf("") : epilogue(sum[j], r, col + j)) : T(0.0f);
}

/// c = epilogue(the sum over sources), as add_sources() adds up, for the tile_m x tile_n elements from c(m0, n0) on.
/// Called by: every thread of the group.
template <class T, group Group, class From, class Epilogue>
__device__ void reduce_tile(Group g, matrix<T> c, int m0, int n0, int tile_m, int tile_n, int sources, From const& from,
                            bool poisoned, Epilogue const& epilogue) {
  bool const whole = has_whole_quads(c);
  for_each_quad(g, m0, n0, tile_m, tile_n, c.rows, c.cols, [&](int r, int col) {
    alignas(8) T four[4];
    add_sources(four, sources, from, r, col, c.cols, poisoned, epilogue);
    store_quad(c, r, col, four, whole);
  });
}

}  // namespace detail

}  // namespace fusewire
