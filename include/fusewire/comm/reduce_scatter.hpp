// Reduce-scatter as a tile sink: the inbox of partial sums at the rank that owns the rows, and how they are reduced.
#pragma once
#include <fusewire/comm/row_shards.hpp>
#include <fusewire/comm/tile_vectors.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/gemm/tile_sink.hpp>

namespace fusewire {

/// A tile sink: the inbox of the rank that owns the tile's rows; this rank is told. An inbox holds [source][rows][N]
/// partial sums, rounded to Partial, in rows of whole 16 bytes. Each of the blocks that share a tile raises a flag for
/// the rows that it has stored.
template <class Partial>
struct reduce_scatter_sink {
  channel_epoch const& e;    // of this launch
  row_shards const& shards;  // which rank owns which rows
  int rank, n, n_tiles;      // this rank; columns of C; tiles of a tile row
  int stores;                // blocks that each store a slice of a tile

  /// The partial sums of `source` in the inbox of `owner`.
  __device__ matrix<Partial> from(int source, int owner) const {
    std::int64_t const pitch = inbox_pitch<Partial>(n);
    return {e.inbox<Partial>(owner) + source * shards.per_rank * pitch, shards.rows(owner), n, pitch};
  }
  __device__ matrix<Partial> at(tile_coord t) const {
    // So that the owner's rows have the numbers that they have in the grid of tiles
    int const above = t.m * shards.tile_m - shards.row_in_shard(t.m);
    matrix<Partial> const c = from(rank, shards.owner(t.m));
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

/// A vector of epilogue(the fp32 sum over sources, in their order), or of NaN if `poisoned`, from (r, col) on.
/// from(s): the partial sums of source s; cols: columns of C, beyond which elements are zero.
template <class T, class Partial, class From, class Epilogue>
__device__ void reduce_vector(T (&out)[per_16_bytes<Partial>], int sources, From const& from, int r, int col, int cols,
                              bool poisoned, Epilogue const& epilogue) {
  constexpr int n = per_16_bytes<Partial>;
  float sum[n] = {};
#pragma unroll 4
  for (int s = 0; s < sources; ++s) {
    vec16<Partial> const partial = load_vec16<Partial>(from(s).at(r, col));
#pragma unroll
    for (int j = 0; j < n; ++j) sum[j] += float(partial.element[j]);
  }
#pragma unroll
  for (int j = 0; j < n; ++j)
    out[j] = col + j < cols ? T(poisoned ? __builtin_nanf("") : epilogue(sum[j], r, col + j)) : T(0.0f);
}

/// c = what reduce_vector() says, for the tile_m x tile_n elements from c(m0, n0) on.
/// Called by: every thread of the group.
template <class Partial, class T, group Group, class From, class Epilogue>
__device__ void reduce_tile(Group g, matrix<T> c, int m0, int n0, int tile_m, int tile_n, int sources, From const& from,
                            bool poisoned, Epilogue const& epilogue) {
  constexpr int n = per_16_bytes<Partial>;
  bool const aligned = is_aligned_to<n>(c);
  for_each_vector<n>(g, m0, n0, tile_m, tile_n, c.rows, c.cols, [&](int r, int col) {
    alignas(16) T out[n];
    reduce_vector<T, Partial>(out, sources, from, r, col, c.cols, poisoned, epilogue);
    store_vector(c, r, col, out, aligned);
  });
}

}  // namespace detail

}  // namespace fusewire
