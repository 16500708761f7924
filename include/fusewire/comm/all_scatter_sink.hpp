// All-scatter as a tile sink: this rank's columns of C go to every rank.
#pragma once
#include <fusewire/comm/tile_vectors.hpp>
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
  int n, tile_m, tile_n, n_tiles;  // columns of one rank; of a tile; tiles of a M tile
  int stores;                      // blocks that each store a slice of a tile

  /// The columns of C that `rank` computes.
  __device__ matrix<T> columns(int rank) const { return {c.data + std::int64_t(rank) * n, c.rows, n, c.ld}; }
  /// What `source` has stored into the inbox of rank `of`.
  __device__ matrix<T> from(int source, int of) const {
    std::int64_t const pitch = inbox_pitch<T>(n);
    return {e.inbox<T>(of) + std::int64_t(source) * c.rows * pitch, c.rows, n, pitch};
  }
  __device__ matrix<T> at(tile_coord) const { return columns(w.rank()); }
  /// The first of the `stores` flags that each source raises for a tile.
  __device__ int flag(tile_coord t) const { return (t.m * n_tiles + t.n) * stores; }
  template <group Group>
  __device__ __forceinline__ void stored(Group g, tile_coord t, stored_slice s) const {
    int const row = t.m * tile_m + s.rows.begin, rows = platform::uniform(min(c.rows - row, s.rows.size())),
              n0 = t.n * tile_n, cols = min(n - n0, tile_n);
    g.sync();
    for (int i = 1; i < w.size() && rows > 0; ++i)
      copy(g, columns(w.rank()).submatrix(row, n0, rows, cols),
           from(w.rank(), w.next(i)).submatrix(row, n0, rows, cols));
    signal_all(g, w.size() - 1, [&](int i) { return e.to(w.next(i + 1), flag(t) + s.slice); }, e.number());
  }
};

}  // namespace fusewire
