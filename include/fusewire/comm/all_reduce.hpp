// All-reduce in one shot as a tile sink: every rank's sums go to every rank.
#pragma once
#include <fusewire/comm/reduce_scatter.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// A tile sink: the inbox of every rank; every rank is told. An inbox holds [source][M][N] sums in fp32, in rows of
/// whole 16 bytes.
struct all_reduce_sink {
  channel_epoch const& e;             // of this launch
  world_view const& w;                // the ranks of the channel
  int m, n, tile_m, tile_n, n_tiles;  // extents of C; of a tile; tiles of a tile row
  int part, parts, part_unit;         // this block's number; blocks that share a tile; of the mainloop

  /// The sums of `source` in the inbox of rank `of`.
  __device__ matrix<float> from(int source, int of) const {
    std::int64_t const pitch = reduce_scatter_sink::pitch(n);
    return {e.inbox<float>(of) + std::int64_t(source) * m * pitch, m, n, pitch};
  }
  __device__ matrix<float> at(tile_coord) const { return from(w.rank(), w.rank()); }
  /// The first of the `parts` flags that each source raises for a tile.
  __device__ int flag(tile_coord t) const { return (t.m * n_tiles + t.n) * parts; }
  template <group Group>
  __device__ void stored(Group g, tile_coord t) const {
    // opaque: the compiler must not keep what follows from t.m in registers while the tile is multiplied
    int const m0 = platform::opaque(t.m) * tile_m, n0 = t.n * tile_n, columns = int(reduce_scatter_sink::pitch(n)) - n0,
              cols = min(columns, tile_n);
    index_range const rows = ceil_slice(min(m - m0, tile_m), parts, part, part_unit);
    g.sync();
    e.signal_here(g, w.rank(), flag(t) + part);
    for (int i = 1; i < w.size(); ++i) {
      int const peer = w.next(i), row = m0 + rows.begin;
      if (rows.size() > 0)
        copy_aligned(g, from(w.rank(), w.rank()).part(row, n0, rows.size(), cols),
                     from(w.rank(), peer).part(row, n0, rows.size(), cols));
      e.signal(g, peer, flag(t) + part);
    }
  }
};

}  // namespace fusewire
