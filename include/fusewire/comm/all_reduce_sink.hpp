// All-reduce in one shot as a tile sink: every rank's partial sums go to every rank.
#pragma once
#include <fusewire/comm/reduce_scatter_sink.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// A tile sink: the inbox of every rank; every rank is told. An inbox holds [source][M][N] partial sums, rounded to
/// Partial, in rows of whole 16 bytes. The rank's own are among them, so every rank reduces the same bits.
template <class Partial>
struct all_reduce_sink {
  channel_epoch const& e;             // of this launch
  world_view const& w;                // the ranks of the channel
  int m, n, tile_m, tile_n, n_tiles;  // extents of C; of a tile; tiles of a M tile
  int stores;                         // blocks that each store a slice of a tile

  /// The partial sums of `source` in the inbox of rank `of`.
  __device__ matrix<Partial> from(int source, int of) const {
    std::int64_t const pitch = inbox_pitch<Partial>(n);
    return {e.inbox<Partial>(of) + std::int64_t(source) * m * pitch, m, n, pitch};
  }
  __device__ matrix<Partial> at(tile_coord) const { return from(w.rank(), w.rank()); }
  /// The first of the `stores` flags that each source raises for a tile.
  __device__ int flag(tile_coord t) const { return (t.m * n_tiles + t.n) * stores; }
  template <group Group>
  __device__ __forceinline__ void stored(Group g, tile_coord t, stored_slice s) const {
    int const row = t.m * tile_m + s.rows.begin, rows = platform::uniform(min(m - row, s.rows.size())),
              n0 = t.n * tile_n, cols = min(int(inbox_pitch<Partial>(n)) - n0, tile_n);
    g.sync();
    detail::for_each_load(g, at(t).submatrix(row, n0, rows, cols), tile_n,
                          [&](int r, int col, detail::vec16<Partial> const& x) {
                            for (int i = 1; i < w.size(); ++i)
                              detail::store_vec16(from(w.rank(), w.next(i)).at(row + r, n0 + col), x);
                          });
    signal_all(g, w.size(), [&](int i) { return e.to(w.next(i), flag(t) + s.slice); }, e.number());
  }
};

}  // namespace fusewire
