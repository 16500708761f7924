// All-gather + GEMM on Hopper: C [M, N] = gather(A) [M, K] * B [K, N] on every rank, in one kernel whose every block does three things at once.
//
//   warps 2, 3   push: A --copy--> inbox of every other rank --signal--> flag (source, tile row, chunk)
//                pull: wait a peer's header; its A --copy--> own inbox --signal--> flag; acknowledge to the peer
//   warp 0       own columns or rows: from A, at once; others: wait flag --> from the inbox     copy engine --> stages --> wgmma --> C
//   warp 1       B, as far ahead as there are stages
//
// A crosses the link once, in the order in which the tiles in flight ask for it: every rank begins with its own shard and goes on with rank + 1,
// rank + 2, ..., so at any time each rank sends to one peer and receives from one. Sums over k run in that order, the same in every run.
//
// Deadlock: all blocks are resident (launch checks). Warps 2 and 3 wait for nothing (push), or for headers (pull), which block 0 of every
// rank sends before it waits. The other warps wait only for warps 2 and 3 of some rank, and for each other as gemm_sm90.hpp says.
// Order: flags are acquired by lanes of warp 0; after they have met, one lane hands the order on to the copy engine with a proxy fence.
// Reuse: the inbox by the channel's argument. A: in push it is read only by this launch; in pull every peer acknowledges its copy before block 0
// lets the launch end. Warps 2 and 3 of block 0 see to that, and to the credit, while the others multiply.
// Abandonment: a flag that is given up counts as raised. Warp 0 goes on, and what it loads is anything; nothing of C is valid then.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/kernels/gather_map.hpp>
#include <fusewire/tile/epilogue.hpp>
#include <fusewire/tile/gemm_sm90.hpp>

namespace fusewire {

template <class T>
struct ag_gemm_sm90_arguments {
  matrix<T const> a;   // this rank's shard: [M, K/W] or [rows of this rank, K]
  matrix<T> c;         // [M, N]
  gather_map map;
  bool pull;
  bool own_shard_first;
  int box_rows;        // of A, that the copy engine loads at once: a tile's, or fewer if there are not so many
  tile_order tiles;
  piece_order::nest pieces;
  int piece_band;      // tile rows
};

/// What the copy engine reads. The inbox holds gather::k's shards one below the other, [W M, K/W], and gather::m's as [M, K].
struct ag_gemm_sm90_maps {
  CUtensorMap own, inbox[2], b;
};

/// The shard of `source` in an inbox.
template <class T>
__device__ matrix<T> shard_in(T* inbox, gather_map const& map, int source) {
  std::int64_t const first_row = map.by == gather::k ? std::int64_t(source) * map.m : map.first_row(source);
  return {inbox + first_row * map.cols(), map.rows(source), map.cols(), map.cols()};
}

/// Whether a tile row is this rank's alone: its tiles read A itself. Of the others all rows are read from the inbox.
__device__ inline bool is_own(gather_map const& map, int tile_m, int rank) {
  return map.by == gather::m && map.first_owner(tile_m) == rank && map.last_owner(tile_m) == rank;
}

/// A tile source: the steps along k that fall to one block of a cluster, shard after shard from the own one on.
class gathered_tiles {
 public:
  /// Where a step begins.
  struct place {
    int shard, column, step;  // column within the shard; steps since the shard's first
  };

  __device__ gathered_tiles(channel_epoch const& e, int rank, gather_map const& map, bool own_shard_first, int box_rows, ag_gemm_sm90_maps const& maps, int part, int parts)
      : e_(e), map_(map), bytes_(box_rows * 128), maps_(maps), by_k_(map.by == gather::k), rank_(rank), cols_(map.cols()), first_shard_(own_shard_first && by_k_ ? rank : 0) {
    int const in_shard = ceil_div(cols_, 64);
    first_ = in_shard * part / parts;
    count_ = in_shard * (part + 1) / parts - first_;
  }

  __device__ int bytes() const { return bytes_; }
  __device__ int steps() const { return by_k_ ? count_ * map_.ranks : count_; }
  __device__ place first() const { return {first_shard_, first_ * 64, 0}; }
  __device__ void advance(place& p) const {
    p.column += 64;
    if (++p.step < count_) return;
    p = {p.shard + 1 < map_.ranks ? p.shard + 1 : 0, first_ * 64, 0};
  }
  __device__ int k(place const& p) const { return by_k_ ? p.shard * cols_ + p.column : p.column; }

  __device__ void begin(int tile_m) {
    tile_m_ = tile_m;
    first_owner_ = by_k_ ? 0 : map_.first_owner(tile_m);
    last_owner_ = by_k_ ? 0 : map_.last_owner(tile_m);
    is_own_ = is_own(map_, tile_m, rank_);
  }
  __device__ void wait(place const& p) {
    if (by_k_ ? p.shard == rank_ : is_own_) return;
    if (p.step == 0) {
      chunk_ = p.column / map_.chunk_k;
      there_ = chunk_ * map_.chunk_k;
    }
    int const end = p.column + 64 < cols_ ? p.column + 64 : cols_;
    if (there_ >= end) return;
    while (there_ < end) {
      int const more = by_k_ ? arrivals(p.shard, p.shard) : arrivals(first_owner_, last_owner_);
      chunk_ += more;
      there_ += more * map_.chunk_k;
    }
    fence_copy_engine();
  }
  __device__ void load(place const& p, void* to, mbarrier& full) const {
    int const row = tile_m_ * map_.tile_m;
    if (by_k_ ? p.shard == rank_ : is_own_) load_box(to, maps_.own, p.column, by_k_ ? row : row - map_.first_row(rank_), full);
    else load_box(to, maps_.inbox[e_.number() & 1], p.column, by_k_ ? p.shard * map_.m + row : row, full);
  }

 private:
  /// How many chunks of the tile row have arrived from all its owners, from chunk_ on; waits for the first. The lanes look at many at once,
  /// a few times, before one of them waits with the patience, and the limit, of wait().
  __device__ int arrivals(int first, int last) const {
    int const owners = last - first + 1, lane = wave{}.rank();
    int const ask = 32 / owners < map_.chunks() - chunk_ ? 32 / owners : map_.chunks() - chunk_;
    for (int look = 0; look < 64 && ask > 0; ++look) {
      bool const up = lane < ask * owners && e_.arrived(first + lane % owners, map_.flag(tile_m_, chunk_ + lane / owners));
      int const missing = __ffs(int(~__ballot_sync(~0u, up)));  // 1 + the first lane that saw none, 0: all saw theirs
      int const there = (missing == 0 ? 32 : missing - 1) / owners;
      wave{}.sync();
      if (there > 0) return there;
    }
    e_.wait(wave{}, first, last, map_.flag(tile_m_, chunk_));
    return 1;
  }

  channel_epoch const& e_;
  gather_map const& map_;
  int const bytes_;
  ag_gemm_sm90_maps const& maps_;
  bool const by_k_;
  int const rank_, cols_, first_shard_;
  int first_, count_;  // this block's steps within a shard
  // Of the current tile and shard:
  int tile_m_ = 0, first_owner_ = 0, last_owner_ = 0;
  bool is_own_ = false;
  int chunk_ = 0, there_ = 0;  // chunks, columns that have arrived
};

namespace detail {

/// The pieces between this rank and the shards' owners: itself first, of whose shard only the tile rows that it shares are moved.
template <class T>
__device__ piece_order pieces_of(ag_gemm_sm90_arguments<T> const& g, int rows) {
  return {g.pieces, g.map.ranks, rows, g.map.chunks(), g.piece_band};
}

template <class T, group Group>
__device__ void push_pieces(Group g, channel_epoch const& e, world_view const& w, ag_gemm_sm90_arguments<T> const& x, int worker, int workers) {
  gather_map const& map = x.map;
  piece_order const pieces = pieces_of(x, map.pieces(w.rank) / map.chunks());
  for (int const i : dealt(pieces.count(), worker, workers)) {
    piece_at const at = pieces[i];
    int const peer = w.next(map.ranks - at.peer);  // who asks for this shard first comes first
    gather_piece const p = map.piece(w.rank, at.row, at.chunk);
    if (peer == w.rank && (map.by == gather::k || is_own(map, p.flag / map.chunks(), peer))) continue;
    int const row = p.row - map.first_row(w.rank), col = p.col - map.first_col(w.rank);
    copy_aligned<8>(g, x.a.part(row, col, p.rows, p.cols), shard_in(e.inbox<T>(peer), map, w.rank).part(row, col, p.rows, p.cols));
    e.signal(g, peer, p.flag);
  }
}

template <class T, group Group>
__device__ void pull_pieces(Group g, channel_epoch const& e, world_view const& w, ag_gemm_sm90_arguments<T> const& x, int worker, int workers) {
  gather_map const& map = x.map;
  piece_order const pieces = pieces_of(x, map.most_pieces() / map.chunks());
  int begun = w.rank;
  bool same = true;  // `begun` has launched the same
  for (int const i : dealt(pieces.count(), worker, workers)) {
    piece_at const at = pieces[i];
    int const source = w.next(at.peer), rows = map.pieces(source) / map.chunks();
    if (source == w.rank && map.by == gather::k || rows == 0) {
      if (at.row == 0 && at.chunk == 0) e.acknowledge_nothing(g, source);
      continue;
    }
    if (at.row >= rows) continue;
    gather_piece const p = map.piece(source, at.row, at.chunk);
    if (source != w.rank || !is_own(map, p.flag / map.chunks(), source)) {
      if (source != begun) same = e.wait_begun(g, begun = source);
      int const row = p.row - map.first_row(source), col = p.col - map.first_col(source);
      auto const* const a = source == w.rank ? x.a.data : reinterpret_cast<T const*>(w.bulk[source] + e.peer_word(source, 0));
      matrix<T const> const shard{a, map.rows(source), map.cols(), source == w.rank ? x.a.ld : std::int64_t(e.peer_word(source, 1))};
      if (same) copy_aligned<8>(g, shard.part(row, col, p.rows, p.cols), shard_in(e.inbox<T>(), map, source).part(row, col, p.rows, p.cols));
      e.signal_here(g, source, p.flag);
    }
    e.acknowledge(g, source, unsigned(rows * map.chunks()));
  }
}

}  // namespace detail

template <class T, class Tile, layout BOrder, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads(), 1)
    ag_gemm_sm90(channel_view ch, ag_gemm_sm90_arguments<T> g, __grid_constant__ ag_gemm_sm90_maps const maps, Epilogue epilogue) {
  using gemm = gemm_sm90<T, Tile::config, BOrder>;
  extern __shared__ bytes16 shared[];
  block const b;
  if (b.leader()) {
    prefetch(maps.b);
    prefetch(maps.own);
  }
  // Warp 1 needs no epoch, and does not wait for one to be loaded.
  channel_epoch const e = wave{}.index() == 1 ? channel_epoch(ch, 0) : ch.begin(b);

  auto const gather_pieces = [&](auto idle_warps) {
    if (g.pull) detail::pull_pieces(idle_warps, e, ch.world, g, b.index(), b.count());
    else detail::push_pieces(idle_warps, e, ch.world, g, b.index(), b.count());
    if (b.index() > 0) return;
    if (g.pull) e.wait_acknowledged(idle_warps);
    e.collect_credit(idle_warps);
  };
  gathered_tiles const source(e, ch.world.rank, g.map, g.own_shard_first, g.box_rows, maps, cluster_rank(), cluster_size());
  gemm::run(shared, maps.b, g.tiles, dealt(g.tiles.count(), cluster_index(), cluster_count()), g.c, source, gather_pieces, epilogue);
  e.leave(b);
}

}  // namespace fusewire
