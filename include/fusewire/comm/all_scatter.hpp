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
  int n, tile_m, tile_n, n_tiles;  // columns of one rank; of a tile; tiles of a tile row
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
    // Marked as equal in all lanes, as in gathered_tiles: a condition on them must not divide code with a barrier
    int const row = platform::uniform(t.m * tile_m + s.rows.begin),
              rows = platform::uniform(min(c.rows - row, s.rows.size())), n0 = platform::uniform(t.n * tile_n),
              cols = platform::uniform(min(n - n0, tile_n));
    matrix<T> const mine = columns(w.rank()).part(row, n0, rows, cols);
    bool const vectors = platform::uniform(int(is_row_aligned<16>(mine) && cols % per_16_bytes<T> == 0)) != 0;
    g.sync();
    for (int i = 1; i < w.size(); ++i) {
      int const peer = w.next(i);
      if (rows > 0) {
        matrix<T> const to = from(w.rank(), peer).part(row, n0, rows, cols);
        if (vectors) copy_aligned(g, mine, to);
        else
          for (int r = 0; r < rows; ++r) copy(g, static_cast<T const*>(mine.at(r, 0)), to.at(r, 0), cols);
      }
      e.signal(g, peer, flag(t) + s.slice);
    }
  }
};

}  // namespace fusewire
