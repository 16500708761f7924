// Rows of C that their owners have reduced, on their way to all ranks: the second half of an all-reduce.
#pragma once
#include <fusewire/comm/reduce_scatter_sink.hpp>

namespace fusewire {

/// What follows reduce_scatter_sink where every rank gets C. The owner of rows stores them to its C and to the second
/// inbox of every other rank, behind the partial sums; there it lies as [M][N] in rows of whole 16 bytes. A flag of
/// each owner publishes its rows of a tile.
template <class T, class Partial>
struct reduced_rows {
  channel_epoch const& e;                     // of this launch
  world_view const& w;                        // the ranks of the channel
  reduce_scatter_sink<Partial> const& inbox;  // of partial sums
  matrix<T> c;                                // [M, N]

  /// Bytes of both inboxes, whole 256.
  __device__ std::uint64_t bytes() const {
    std::uint64_t const results = std::uint64_t(c.rows) * std::uint64_t(inbox_pitch<T>(c.cols)) * sizeof(T);
    return (std::uint64_t(inbox.size()) * sizeof(Partial) + results + 255) / 256 * 256;
  }
  /// Stores a vector of the row'th row of this rank, to all ranks. aligned: as store_vector() has it, of C.
  template <int N>
  __device__ __forceinline__ void store(int row, int col, T const (&x)[N], bool aligned) const {
    int const r = inbox.rows(w.rank()).begin + row;
    detail::store_vector(c, r, col, x, aligned);
    for (int p = 1; p < w.size(); ++p) {
      matrix<T> to = in_inbox(w.next(p));
      to.cols = int(to.ld);  // whole vectors
      detail::store_vector(to, r, col, x, true);
    }
  }
  /// Publishes this rank's rows of a tile, in the nth of its M tiles. Called by: every thread of the group.
  template <group Group>
  __device__ __forceinline__ void stored(Group g, int nth, int column) const {
    int const i = flag(inbox.first_m_tile() + nth, column);
    signal_all(g, w.size(), [&](int p) { return e.to(w.next(p), i); }, e.number());
  }
  /// Waits for the other ranks' rows of a tile, of all M tiles, and stores them to C.
  /// Called by: every thread of the group.
  template <group Group>
  __device__ __forceinline__ void take(Group g, int m_tile, int column) const {
    row_shards const& shards = inbox.shards;
    index_range const tile = inbox.rows_of_tile(m_tile), owners = inbox.owners(tile), own = inbox.rows(w.rank());
    if (platform::uniform(int(owners.size() == 1 && owners.begin == w.rank())) != 0) return;
    e.wait(g, owners.begin, owners.end - 1, flag(shards.nth_of_owner(m_tile), column));
    auto const take_rows = [&](int begin, int end) {
      detail::take_tile(g, c.submatrix(0, 0, end, c.cols), begin, column * inbox.tile_n, end - begin, inbox.tile_n,
                        in_inbox(w.rank()), e.control().should_fill_nan());
    };
    take_rows(tile.begin, min(tile.end, own.begin));
    take_rows(max(tile.begin, own.end), tile.end);
  }

 private:
  __device__ matrix<T> in_inbox(int of) const {
    T* const behind_partials = reinterpret_cast<T*>(e.inbox<Partial>(of) + inbox.size());
    return {behind_partials, c.rows, c.cols, inbox_pitch<T>(c.cols)};
  }
  __device__ int flag(int nth, int column) const {
    return (inbox.shards.m_tiles * inbox.stores + nth) * inbox.n_tiles + column;
  }
};

}  // namespace fusewire
