// How the chunks of a gathered A travel: pushed into every peer's inbox, or pulled into this rank's own. The mainloop
// decides which threads move them.
//
//   push   A --copy--> inbox of every other rank --signal--> flag (source, M tile, k chunk)
//   pull   wait for a peer's header; its A --copy--> local inbox --signal--> flag; acknowledge to the peer
//
// A crosses a link once, in the order in which the tiles in flight ask for it. Every rank begins with its own shard and
// goes on with rank + 1, rank + 2, ..., so at any time each rank sends to one peer and receives from one. The local
// shard is not copied, except the rows of M tiles that ranks share.
//
// Order: the group that copied a chunk raises its flag (signal), and a pull reads a peer's A between the peer's header
// and the acknowledgement. A push waits for nothing, and a pull only for headers. So threads that multiply may wait for
// chunks that are being moved. The rest of the argument stands above each kernel.
#pragma once
#include <algorithm>

#include <fusewire/device/channel_view.hpp>
#include <fusewire/comm/all_gather/find_shard.hpp>
#include <fusewire/gemm/raster_order.hpp>

namespace fusewire {

/// How A is gathered in a launch.
template <class T>
struct gather_plan {
  matrix<T const> a;  // this rank's shard: [M, K/W] or [rows of this rank, K]
  /// How A is cut.
  gather_map map;
  /// The order in which chunks travel.
  chunk_order chunks;
  /// Whether readers fetch; else owners store.
  bool pull;
  bool local_shard_first;  // with gather::k; false: every rank takes the shards in the order of ranks
  bool alternating;        // groups of a sender block's waves alternate (pusher.hpp)
};

/// The shard of `source` in an inbox. With gather::k an inbox holds the shards one below the other, [W M, K/W]; with
/// gather::m it holds [M, K].
template <class T>
__device__ matrix<T> shard_in(T* inbox, gather_map const& map, int source) {
  std::int64_t const first_row = map.by == gather::k ? std::int64_t(source) * map.m : map.first_row(source);
  return {inbox + first_row * map.cols(), map.rows(source), map.cols(), map.cols()};
}
/// All of an inbox, as the mainloop reads it.
template <class T>
__host__ __device__ matrix<T> gathered_in(T* inbox, gather_map const& map) {
  return {inbox, map.by == gather::k ? map.ranks * map.m : map.m, map.cols(), map.cols()};
}

/// Whether all rows of a M tile are this rank's: its tiles read A itself. Tiles of other M tiles read all rows from
/// the inbox.
__device__ inline bool is_local(gather_map const& map, int tile_m, int rank) {
  return map.by == gather::m && map.first_owner(tile_m) == rank && map.last_owner(tile_m) == rank;
}

/// Where a rank's tiles begin, and the order of the chunks that they ask for. First come the M tiles that are this
/// rank's alone. With by_peer they fill whole raster groups, the first of which may have fewer rows: in a group of
/// local and other rows the local ones would wait. A M tile that two ranks share comes with the M tiles of the second
/// rank: it is there when these rows are.
struct gather_order {
  /// The first M tile; the M tiles of the first group, 0: as many as any other group has.
  int first_m_tile, first_group;
  /// The chunks, in the order in which the tiles ask for them.
  chunk_order chunks;
};
/// The order for this rank. `group_m`: M tiles in flight together; `split_k`: blocks that share a tile.
inline gather_order order_of_gather(gather_map const& map, int rank, bool pull, chunk_order::nest nest, int group_m,
                                    int split_k = 1) {
  bool const in_turn = nest == chunk_order::nest::by_peer;
  int const local = ceil_div(map.first_row(rank), map.tile_m),
            next = rank + 1 < map.ranks ? map.first_row(rank + 1) / map.tile_m : map.m_tiles();
  int const first_turn = in_turn && map.rows_per_rank() % map.tile_m != 0 ? 0 : 1;
  // With gather::k nothing is pushed in the local turn, which is the last. Then there is a turn for each link
  bool const links = nest == chunk_order::nest::by_row && map.by == gather::k && !pull && map.ranks > 1;
  return {local % map.m_tiles(),
          in_turn ? std::max(next - local, 0) % group_m : 0,
          {nest, map.ranks - links, pull ? map.max_m_tiles() : map.m_tiles_of(rank), map.k_chunks(), group_m, split_k,
           first_turn}};
}

namespace detail {

/// Whether a rank copies its rows of a M tile that it shares with a neighbour to its own inbox in this turn:
///
///   the order has no turn 0                           yes, in any local turn of the order
///   `rank` is the last owner of the M tile          in the last turn: chunks for peers are more urgent
///   the M tile ends in the next rank's shard        in turn 0: it is multiplied when that rank's chunks come
template <class T>
__device__ bool is_local_turn(gather_plan<T> const& x, int rank, int m_tile, int turn) {
  return x.chunks.first_turn() == 1 || turn == (x.map.last_owner(m_tile) == rank ? x.map.ranks : 0);
}

/// A chunk of this rank's shard that a rank needs; not needed: it is not sent.
struct chunk_push {
  int peer;
  gather_chunk chunk;
  bool needed;
};
/// The i-th push in the order of the chunks.
template <class T>
__device__ chunk_push push_at(world_view const& w, gather_plan<T> const& x, int i) {
  gather_map const& map = x.map;
  chunk_position const at = x.chunks[i];
  int const peer = w.next(map.ranks - at.turn);  // the peer that asks for this shard first comes first
  gather_chunk const p = map.chunk(w.rank(), at.row, at.k_chunk);
  return {peer, p,
          peer != w.rank() ||
              (map.by == gather::m && !is_local(map, p.m_tile, peer) && is_local_turn(x, peer, p.m_tile, at.turn))};
}

// They move the chunks between this rank and its peers, and some of its own to its own inbox. start() makes the epoch
// known; a push finds its first chunk before that.

template <class T, group Group, class Start>
__device__ void push_chunks(Group g, channel_epoch const& e, world_view const& w, gather_plan<T> const& x, int worker,
                            int workers, Start const& start) {
  gather_map const& map = x.map;
  int i = worker;
  chunk_push t = push_at(w, x, i);
  start();
  for (int const count = x.chunks.count(); i < count; t = push_at(w, x, i += workers)) {
    if (!platform::uniform(int(t.needed))) continue;  // in all lanes, which sync below
    gather_chunk const& p = t.chunk;
    int const row = p.row - map.first_row(w.rank()), col = p.col - map.first_col(w.rank());
    copy_aligned(g, x.a.submatrix(row, col, p.rows, p.cols),
                 shard_in(e.inbox<T>(t.peer), map, w.rank()).submatrix(row, col, p.rows, p.cols));
    e.signal(g, t.peer, p.flag);
  }
}

template <class T, group Group, class Start>
__device__ void pull_chunks(Group g, channel_epoch const& e, world_view const& w, gather_plan<T> const& x, int worker,
                            int workers, Start const& start) {
  gather_map const& map = x.map;
  start();
  matrix<T const> shard = x.a;
  int of = w.rank();  // the owner of `shard`
  bool readable = true;
  for (int const i : round_robin(x.chunks.count(), worker, workers)) {
    chunk_position const at = x.chunks[i];
    int const source = w.next(at.turn), rows = map.m_tiles_of(source);
    if ((source == w.rank() && map.by == gather::k) || rows == 0) {
      if (at.row == 0 && at.k_chunk == 0) e.pull().acknowledge_nothing(g, source);
      continue;
    }
    if (at.row >= rows) continue;
    gather_chunk const p = map.chunk(source, at.row, at.k_chunk);
    if (source == w.rank() && !is_local_turn(x, source, p.m_tile, at.turn)) continue;
    if (source != w.rank() || !is_local(map, p.m_tile, source)) {
      if (source != platform::uniform(of)) {
        of = source;
        shard = x.a;
        readable = source == w.rank() || find_shard(g, e, w, map, source, shard);
      }
      int const row = p.row - map.first_row(source), col = p.col - map.first_col(source);
      if (readable)
        copy_aligned<8>(g, shard.submatrix(row, col, p.rows, p.cols),
                        shard_in(e.inbox<T>(), map, source).submatrix(row, col, p.rows, p.cols));
      e.signal_here(g, source, p.flag);
    }
    e.pull().acknowledge(g, source, unsigned(rows * map.k_chunks()));
  }
}

}  // namespace detail

/// Moves this worker's share of the chunks. It calls start(), which makes the epoch known.
/// Called by: every thread of the group.
template <class T, group Group, class Start>
__device__ void transfer_chunks(Group g, channel_epoch const& e, world_view const& w, gather_plan<T> const& x,
                                int worker, int workers, Start const& start) {
  if (x.pull) detail::pull_chunks(g, e, w, x, worker, workers, start);
  else detail::push_chunks(g, e, w, x, worker, workers, start);
}

}  // namespace fusewire
