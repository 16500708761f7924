// All-scatter as a tile sink: this rank's columns of C go to every rank.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/gemm/tile_sink.hpp>

namespace fusewire {

/// A tile sink: this rank's columns of C, and from there the inbox of every other rank; every rank is told. Rows of an
/// inbox are whole 16 bytes.
template <class T>
struct all_scatter_sink {
  channel_epoch const& e;          // of this launch
  world_view const& w;             // the ranks of the channel
  matrix<T> c;                     // [M, W n]
  int n, tile_m, tile_n, n_tiles;  // columns of one rank; of a tile; tiles of a tile row
  int part, parts, part_unit;      // this block's number; blocks that share a tile; of the mainloop

  /// Elements from one row of an inbox to the next.
  __host__ __device__ static constexpr std::int64_t pitch(int n) {
    return ceil_div(n, per_16_bytes<T>) * std::int64_t(per_16_bytes<T>);
  }

  /// The columns of C that `rank` computes.
  __device__ matrix<T> columns(int rank) const { return {c.data + std::int64_t(rank) * n, c.rows, n, c.ld}; }
  /// What `source` has stored into the inbox of rank `of`.
  __device__ matrix<T> from(int source, int of) const {
    return {e.inbox<T>(of) + std::int64_t(source) * c.rows * pitch(n), c.rows, n, pitch(n)};
  }
  __device__ matrix<T> at(tile_coord) const { return columns(w.rank()); }
  /// The first of the `parts` flags that each source raises for a tile.
  __device__ int flag(tile_coord t) const { return (t.m * n_tiles + t.n) * parts; }
  template <group Group>
  __device__ void stored(Group g, tile_coord t) const {
    // opaque: the compiler must not keep what follows from t.m in registers while the tile is multiplied
    int const m0 = platform::opaque(t.m) * tile_m, n0 = t.n * tile_n, cols = min(n - n0, tile_n);
    index_range const rows = ceil_slice(min(c.rows - m0, tile_m), parts, part, part_unit);
    g.sync();
    for (int i = 1; i < w.size(); ++i) {
      int const peer = w.next(i), row = m0 + rows.begin;
      if (rows.size() > 0)
        copy(g, columns(w.rank()).part(row, n0, rows.size(), cols),
             from(w.rank(), peer).part(row, n0, rows.size(), cols));
      e.signal(g, peer, flag(t) + part);
    }
  }
};

}  // namespace fusewire
