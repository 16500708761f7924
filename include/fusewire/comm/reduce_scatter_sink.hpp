// Reduce-scatter as a tile sink: the inbox of partial sums at the rank that owns the rows, and how they are reduced.
#pragma once
#include <fusewire/comm/row_shards.hpp>
#include <fusewire/comm/tile_vectors.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/gemm/tile_sink.hpp>

namespace fusewire {

/// A tile sink: the inbox of the rank that owns the tile's rows; this rank is told. An inbox holds [source][rows][N]
/// partial sums, rounded to Partial, in rows of whole 16 bytes. Each of the blocks that share a tile raises a flag for
/// the rows that it has stored.
///
/// If `shards` cuts C for one rank, tiles have rows of several owners. They go to [M][N] in this rank's own inbox,
/// behind what others send, and the blocks that stored them copy each owner's rows from there.
template <class Partial>
struct reduce_scatter_sink {
  channel_epoch const& e;    // of this launch
  world_view const& w;       // the ranks of the channel
  row_shards const& shards;  // how tiles cut the rows of C
  divisor per_rank;          // R: rank r owns rows [r R, (r + 1) R) of C
  int n, tile_n, n_tiles;    // columns of C; of a tile; tiles of a M tile
  int stores;                // blocks that each store a slice of a tile

  /// Whether tiles have rows of several owners.
  __device__ bool mixes_owners() const { return shards.per_rank > per_rank.value(); }
  /// The rows of rank r.
  __device__ index_range rows(int r) const { return fixed_slice(shards.m, per_rank.value(), r); }
  /// The rows of a M tile of `shards`.
  __device__ index_range rows_of_tile(int m_tile) const {
    int const owner = shards.owner(m_tile), row = shards.row_in_shard(m_tile), above = shards.first_row(owner);
    return {above + row, above + min(row + shards.tile_m, shards.rows(owner))};
  }
  /// The ranks that own these rows.
  __device__ index_range owners(index_range const& of) const {
    return {of.begin / per_rank, (of.end - 1) / per_rank + 1};
  }
  /// Elements of an inbox.
  __device__ std::int64_t size() const {
    return (w.size() * per_rank.value() + (mixes_owners() ? shards.m : 0)) * inbox_pitch<Partial>(n);
  }

  /// The partial sums of `source` in the inbox of `owner`.
  __device__ matrix<Partial> from(int source, int owner) const {
    std::int64_t const pitch = inbox_pitch<Partial>(n);
    Partial* const inbox = e.inbox<Partial>(owner);
    if (mixes_owners() && source == owner) return mixed(inbox).submatrix(rows(owner).begin, 0, rows(owner).size(), n);
    return {inbox + source * per_rank.value() * pitch, rows(owner).size(), n, pitch};
  }
  __device__ matrix<Partial> at(tile_coord t) const {
    if (mixes_owners()) return mixed(e.inbox<Partial>(w.rank()));
    // So that the owner's rows have the numbers that they have in the grid of tiles
    int const above = t.m * shards.tile_m - shards.row_in_shard(t.m);
    matrix<Partial> const c = from(w.rank(), shards.owner(t.m));
    return {c.data - above * c.ld, above + c.rows, n, c.ld};
  }
  /// The first of the `stores` flags, of each source, of a tile in its owner's nth M tile, or in the nth of all.
  __device__ int flag(int nth, int column) const { return (nth * n_tiles + column) * stores; }
  template <group Group>
  __device__ __forceinline__ void stored(Group g, tile_coord t, stored_slice s) const {
    if (platform::uniform(int(mixes_owners())) != 0) return copy_to_owners(g, t, s);
    e.signal(g, shards.owner(t.m), flag(shards.nth_of_owner(t.m), t.n) + s.slice);
  }

  /// M tiles of which this rank reduces rows.
  __device__ int m_tiles() const {
    index_range const mine = rows(w.rank());
    if (mine.size() == 0) return 0;
    return mixes_owners() ? (mine.end - 1) / shards.tile_m - mine.begin / shards.tile_m + 1
                          : shards.m_tiles_of(w.rank());
  }
  /// The first of them, as flag() counts.
  __device__ int first_m_tile() const { return mixes_owners() ? rows(w.rank()).begin / shards.tile_m : 0; }
  /// Waits for the partial sums of all sources for the tile in a column of tiles and the nth of these M tiles.
  /// Returns the tile's rows, counted within this rank's. Called by: every thread of the group.
  template <group Group>
  __device__ __forceinline__ index_range wait(Group g, int nth, int column) const {
    index_range const mine = rows(w.rank());
    int const m_tile = first_m_tile() + nth, row = m_tile * shards.tile_m - (mixes_owners() ? mine.begin : 0);
    for (int s = 0; s < stores; ++s) e.wait(g, 0, w.size() - 1, flag(m_tile, column) + s);
    return {max(row, 0), min(row + shards.tile_m, mine.size())};
  }

 private:
  __device__ matrix<Partial> mixed(Partial* inbox) const {
    std::int64_t const pitch = inbox_pitch<Partial>(n);
    return {inbox + w.size() * per_rank.value() * pitch, shards.m, n, pitch};
  }
  template <group Group>
  __device__ __forceinline__ void copy_to_owners(Group g, tile_coord t, stored_slice s) const {
    // Conditions of code with a barrier are marked as equal in all lanes, as in gathered_tiles
    index_range const tile = rows_of_tile(t.m), all = owners(tile);
    int const first = platform::uniform(all.begin), count = platform::uniform(all.size()),
              rank = platform::uniform(w.rank()), n0 = t.n * tile_n, f = flag(t.m, t.n) + s.slice,
              cols = min(int(inbox_pitch<Partial>(n)) - n0, tile_n);
    g.sync();
    if (count == 1 && first == rank) return e.signal_here(g, rank, f);
    int const row = tile.begin + s.rows.begin, rows = max(0, min(tile.end, tile.begin + s.rows.end) - row);
    detail::for_each_load(g, at(t).submatrix(row, n0, rows, cols), tile_n,
                          [&](int r, int col, detail::vec16<Partial> const& x) {
                            int const owner = (row + r) / per_rank;
                            if (owner == rank) return;
                            detail::store_vec16(from(w.rank(), owner).at((row + r) % per_rank, n0 + col), x);
                          });
    signal_all(g, count, [&](int i) { return e.to(first + i, f); }, e.number());
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

/// c = what reduce_vector() says, for these rows and `columns` columns from n0 on.
/// Called by: every thread of the group.
template <class Partial, class T, group Group, class From, class Epilogue>
__device__ void reduce_tile(Group g, matrix<T> c, index_range rows, int n0, int columns, int sources, From const& from,
                            bool poisoned, Epilogue const& epilogue) {
  constexpr int n = per_16_bytes<Partial>;
  bool const aligned = is_row_aligned<n * sizeof(T)>(c);
  for_each_vector<n>(g, rows.begin, n0, rows.size(), columns, c.rows, c.cols, [&](int r, int col) {
    alignas(16) T out[n];
    reduce_vector<T, Partial>(out, sources, from, r, col, c.cols, poisoned, epilogue);
    store_vector(c, r, col, out, aligned);
  });
}

}  // namespace detail

}  // namespace fusewire
