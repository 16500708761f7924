// All-gather + GEMM on Hopper: C [M, N] = gather(A) [M, K] * B [K, N] on every rank, in one kernel whose every block does three things at once.
//
//   warps 2, 3   push: A --copy--> inbox of every other rank --signal--> flag (source, tile row, chunk)
//                pull: wait a peer's header; its A --copy--> own inbox --signal--> flag; acknowledge to the peer
//   warp 0       own columns or rows: from A, at once; others: wait flag --> from the inbox     copy engine --> stages --> wgmma --> C
//   warp 1       B, as far ahead as there are stages
//
// A crosses the link once, in the order in which the tiles in flight ask for it: every rank begins with its own shard and goes on with rank + 1,
// rank + 2, ..., so at any time each rank sends to one peer and receives from one. A part's sums over k run in that order, or in that of ranks
// (own_shard_first = false); the same in every run.
// With starts_together, tiles of own rows wait for the first piece of a peer's, so that the tiles of both read B together.
//
// Deadlock: all blocks are resident (launch checks). Warps 2 and 3 move their pieces without waiting (push), or wait for headers (pull), which
// block 0 of every rank sends before it waits; credit and acknowledgements, which those of block 0 wait for then, need no more. The other warps
// wait only for warps 2 and 3 of some rank to have moved their pieces, and for each other as gemm_sm90.hpp says.
// Order: flags are acquired by lanes of warp 0; after they have met, each hands the order on to the copy engine with a proxy fence, whichever loads.
// Reuse: the inbox by the channel's argument. A: in push it is read only by this launch; in pull every peer acknowledges its copy before block 0
// lets the launch end. Warps 2 and 3 of block 0 see to that, and to the credit, while the others multiply.
// Abandonment: a flag that is given up counts as raised. Warp 0 goes on, and what it loads is anything; nothing of C is valid then. A channel that
// poisons makes a block's tiles NaN when it has stored them; of a tile that blocks share each does, the last one to store it the last.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/kernels/find_shard.hpp>
#include <fusewire/kernels/poison.hpp>
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
  bool starts_together;  // gather::m
  bool b_is_constant;
  sm90_stages stages;
  tile_order tiles;
  piece_order pieces;
  divisor parts;       // blocks of a cluster
};

/// What the copy engine reads. The inbox holds gather::k's shards one below the other, [W M, K/W], and gather::m's as [M, K].
struct ag_gemm_sm90_maps {
  box_maps own, inbox[2], b;
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

/// A tile source: the steps along k that fall to one block of a cluster, shard after shard from the own one on. Of every shard each block has a
/// range, so that it waits for few flags.
class gathered_tiles {
 public:
  /// Where a step begins.
  struct place {
    int shard, column, step;  // column within the shard; steps since the shard's first
  };

  __device__ gathered_tiles(channel_epoch const& e, int rank, gather_map const& map, bool own_shard_first, bool starts_together, ag_gemm_sm90_maps const& maps, int part, divisor const& parts)
      : e_(e), map_(map), maps_(maps), by_k_(map.by == gather::k), starts_together_(starts_together), rank_(rank), cols_(map.cols()), first_shard_(own_shard_first && by_k_ ? rank : 0) {
    int const all = ceil_div(cols_, 64), each = all / parts, more = all % parts;
    count_ = each + (part < more);
    first_ = (part * each + (part < more ? part : more)) * 64;
    first_chunk_ = map.chunk_of(first_);
    chunks_ = map.chunk_of(first_ + (count_ - 1) * 64) - first_chunk_ + 1;
  }

  __device__ int steps() const { return by_k_ ? count_ * map_.ranks : count_; }
  __device__ place first() const { return {first_shard_, first_, 0}; }
  /// By at most the steps that are left of the shard.
  __device__ void advance(place& p, int steps) const {
    p.column += steps * 64;
    if ((p.step += steps) < count_) return;
    p = {next_shard(p.shard), first_, 0};
  }
  __device__ int k(place const& p) const { return by_k_ ? p.shard * cols_ + p.column : p.column; }
  __device__ int left_of_shard(place const& p) const { return count_ - p.step; }

  __device__ void begin(int tile_m) {
    tile_m_ = tile_m;
    is_last_ = tile_m == map_.m_tiles() - 1;
    box_bytes_ = box_rows(map_.m - tile_m * map_.tile_m, map_.tile_m) * 128;
    first_owner_ = by_k_ ? 0 : map_.first_owner(tile_m);
    is_own_ = is_own(map_, tile_m, rank_);
    owners_ = by_k_ ? 1 : map_.last_owner(tile_m) - first_owner_ + 1;
    float const of_one = __fdividef(1.0f, float(owners_));  // exact enough for numbers up to 32, and sooner there than a quotient of integers
    at_once_ = int(32.5f * of_one);
    lane_chunk_ = int((float(wave{}.rank()) + 0.5f) * of_one);
    lane_owner_ = wave{}.rank() - lane_chunk_ * owners_;
    known_chunks_ = known_ = 0;
    if (is_own_ && starts_together_) {
      int const peer = rank_ + 1 < map_.ranks ? rank_ + 1 : 0;
      e_.wait(wave{}, peer, map_.flag(map_.first_row(peer) / map_.tile_m, first_chunk_));
    }
  }
  __device__ box_run wait(place const& p) {
    int const row = tile_m_ * map_.tile_m, left = count_ - p.step;
    if (by_k_ ? p.shard == rank_ : is_own_) return {box_of(maps_.own), by_k_ ? row : row - map_.first_row(rank_), p.column, left, box_bytes_};
    int const nth = p.shard - first_shard_, before = (nth < 0 ? nth + map_.ranks : nth) * count_ + p.step;
    if (known_ <= before) {
      do known_ = await_chunks();
      while (known_ <= before);
      fence_copy_engine();
    }
    int const there = known_ - before;
    return {box_of(maps_.inbox[e_.number() & 1]), by_k_ ? p.shard * map_.m + row : row, p.column, there < left ? there : left, box_bytes_};
  }

 private:
  __device__ CUtensorMap const* box_of(box_maps const& m) const { return is_last_ ? &m.last : &m.whole; }
  __device__ int next_shard(int shard) const { return shard + 1 < map_.ranks ? shard + 1 : 0; }

  /// Waits for the next chunk to arrive from all the tile row's owners; how many steps, over all shards in the order of use, have then arrived.
  /// The lanes look at many at once, into the next shards too, a few times before one of them waits with the patience, and the limit, of wait().
  __device__ int await_chunks() {
    chunk const mine = chunk_at(known_chunks_ + lane_chunk_), next = chunk_at(known_chunks_);
    bool const asks = lane_chunk_ < at_once_ && known_chunks_ + lane_chunk_ < (by_k_ ? chunks_ * map_.ranks : chunks_), own = by_k_ && mine.source == rank_;
    for (int look = 0; look < 64; ++look) {
      bool const up = asks && (own || e_.arrived(mine.source + lane_owner_, mine.flag));
      int const missing = __ffs(int(~__ballot_sync(~0u, up)));  // 1 + the first lane that saw none, 0: all saw theirs
      int const there = missing == 0 ? at_once_ : __shfl_sync(~0u, lane_chunk_, missing - 1);
      wave{}.sync();  // what one lane has acquired, all may read
      if (there == 0) continue;
      known_chunks_ += there;
      return __shfl_sync(~0u, mine.end, (there - 1) * owners_);
    }
    e_.wait(wave{}, next.source, by_k_ ? next.source : map_.last_owner(tile_m_), next.flag);
    ++known_chunks_;
    return next.end;
  }

  /// The i-th chunk in the order of use: flag `flag` of `source`, and of the tile row's owners after it, says that it has arrived, and with it all
  /// steps before the end-th.
  struct chunk {
    int source, flag, end;
  };
  __device__ chunk chunk_at(int i) const {
    int shard = first_shard_, before = 0;
    for (; by_k_ && i >= chunks_; i -= chunks_, before += count_) shard = next_shard(shard);
    int const at = first_chunk_ + i, in_shard = ((at + 1) * map_.chunk_k - first_) / 64;
    return {by_k_ ? shard : first_owner_, map_.flag(tile_m_, at), before + (in_shard < count_ ? in_shard : count_)};
  }

  channel_epoch const& e_;
  gather_map const& map_;
  ag_gemm_sm90_maps const& maps_;
  bool const by_k_, starts_together_;
  int const rank_, cols_, first_shard_;
  int first_, count_, first_chunk_, chunks_;  // of every shard: this block's first column, its steps, and the chunks in which they lie
  // Of the current tile row:
  int tile_m_ = 0, first_owner_ = 0, owners_ = 1, box_bytes_ = 0;
  bool is_own_ = false, is_last_ = false;
  int at_once_ = 0, lane_chunk_ = 0, lane_owner_ = 0;  // chunks that the lanes look at together; which one, and whose flag, this lane does
  int known_chunks_ = 0, known_ = 0;                   // chunks, and steps, that have arrived, over all shards in the order of use
};

namespace detail {

/// Barrier 3 of a block, at which warps 2 and 3 learn that all others but warp 1 have the epoch: not only asked for it.
template <int Threads>
struct has_epoch {
  __device__ static void arrive(channel_epoch const& e) {
    platform::settle(e.number());
    asm volatile("bar.arrive 3, %0;" ::"n"(Threads - 32) : "memory");
  }
  __device__ static void sync(channel_epoch const& e) {
    platform::settle(e.number());
    asm volatile("bar.sync 3, %0;" ::"n"(Threads - 32) : "memory");
  }
};

/// Whether pieces of a tile row that `rank` shares, and moves to itself, are due in this turn: in the last one, since others wait longer. But where tile
/// rows are taken one after the other, a row shared with the next rank is multiplied as soon as that one's first pieces are there: in turn 0.
template <class T>
__device__ bool is_turn_of_own(ag_gemm_sm90_arguments<T> const& x, int rank, int tile_row, int turn) {
  return x.pieces.first_turn() == 1 || turn == (x.map.last_owner(tile_row) == rank ? x.map.ranks : 0);
}

// The pieces between this rank and the shards' owners, itself among them. `start` makes the epoch known; a push works out before it what it moves first.

template <class T, group Group, class Start>
__device__ void push_pieces(Group g, channel_epoch const& e, world_view const& w, ag_gemm_sm90_arguments<T> const& x, int worker, int workers, Start const& start) {
  gather_map const& map = x.map;
  struct transfer {
    int peer;
    gather_piece piece;
    bool needed;
  };
  auto const transfer_of = [&](int i) -> transfer {
    piece_at const at = x.pieces[i];
    int const peer = w.next(map.ranks - at.turn);  // who asks for this shard first comes first
    gather_piece const p = map.piece(w.rank, at.row, at.chunk);
    return {peer, p, peer != w.rank || (map.by == gather::m && !is_own(map, p.tile_row, peer) && is_turn_of_own(x, peer, p.tile_row, at.turn))};
  };
  int i = worker;
  transfer t = transfer_of(i);
  start();
  for (int const count = x.pieces.count(); i < count; t = transfer_of(i += workers)) {
    if (!t.needed) continue;
    gather_piece const& p = t.piece;
    int const row = p.row - map.first_row(w.rank), col = p.col - map.first_col(w.rank);
    copy_aligned(g, x.a.part(row, col, p.rows, p.cols), shard_in(e.inbox<T>(t.peer), map, w.rank).part(row, col, p.rows, p.cols));
    e.signal(g, t.peer, p.flag);
  }
}

template <class T, group Group, class Start>
__device__ void pull_pieces(Group g, channel_epoch const& e, world_view const& w, ag_gemm_sm90_arguments<T> const& x, int worker, int workers, Start const& start) {
  gather_map const& map = x.map;
  start();
  matrix<T const> shard = x.a;
  int of = w.rank;       // whose it is
  bool readable = true;
  for (int const i : dealt(x.pieces.count(), worker, workers)) {
    piece_at const at = x.pieces[i];
    int const source = w.next(at.turn), rows = map.tile_rows(source);
    if (source == w.rank && map.by == gather::k || rows == 0) {
      if (at.row == 0 && at.chunk == 0) e.acknowledge_nothing(g, source);
      continue;
    }
    if (at.row >= rows) continue;
    gather_piece const p = map.piece(source, at.row, at.chunk);
    if (source == w.rank && !is_turn_of_own(x, source, p.tile_row, at.turn)) continue;
    if (source != w.rank || !is_own(map, p.tile_row, source)) {
      if (source != of) {
        of = source;
        shard = x.a;
        readable = source == w.rank || find_shard(g, e, w, map, source, shard);
      }
      int const row = p.row - map.first_row(source), col = p.col - map.first_col(source);
      if (readable) copy_aligned<8>(g, shard.part(row, col, p.rows, p.cols), shard_in(e.inbox<T>(), map, source).part(row, col, p.rows, p.cols));
      e.signal_here(g, source, p.flag);
    }
    e.acknowledge(g, source, unsigned(rows * map.chunks()));
  }
}

}  // namespace detail

template <class T, int BlockM, int BlockN, layout BOrder, class Epilogue>
__global__ void __launch_bounds__(sm90_gemm_config{BlockM, BlockN}.threads(), 1)
    ag_gemm_sm90(channel_view ch, ag_gemm_sm90_arguments<T> g, __grid_constant__ ag_gemm_sm90_maps const maps, Epilogue epilogue) {
  constexpr sm90_gemm_config C{BlockM, BlockN};  // as an argument of a kernel nvcc does not take it
  using gemm = gemm_sm90<T, C, BOrder>;
  using has_epoch = detail::has_epoch<C.threads()>;
  extern __shared__ bytes16 shared[];
  block const b;
  if (b.leader()) {
    prefetch(maps.b.whole);
    prefetch(maps.own.whole);
  }
  // Launched early, a block makes itself ready before what the stream did before is over. Warp 1 needs no epoch.
  channel_epoch e(ch, 0);
  auto const learn_epoch = [&] {
    wait_for_stream();
    e = ch.begin(b);  // one L2: what peers pull is readable when a kernel has ended
    release_stream();
  };
  auto const start = [&] {
    learn_epoch();
    if (wave{}.index() > 0) has_epoch::arrive(e);  // warp 0, which has more urgent things to do than to wait for the epoch, arrives last of all
  };
  auto const asked = [&] { has_epoch::arrive(e); };
  auto const gather_pieces = [&](auto idle_warps) {
    if (g.pull) detail::pull_pieces(idle_warps, e, ch.world, g, b.index(), b.count(), learn_epoch);
    else detail::push_pieces(idle_warps, e, ch.world, g, b.index(), b.count(), learn_epoch);
    if (b.index() == 0) {
      if (g.pull) e.wait_acknowledged(idle_warps);
      e.collect_credit(idle_warps);
    }
    has_epoch::sync(e);
    if (idle_warps.leader()) e.leave(b, e.depart());
  };
  gathered_tiles const source(e, ch.world.rank, g.map, g.own_shard_first, g.starts_together, maps, cluster_rank(), g.parts);
  strided const share = dealt(g.tiles.count(), cluster_index(), cluster_count());
  gemm::run(shared, g.stages, maps.b, g.b_is_constant, g.tiles, share, g.c, source, start, asked, gather_pieces, epilogue);
  if (e.poisons())
    for (int const i : share) detail::poison_tile(b, g.c, g.tiles[i].m * BlockM, g.tiles[i].n * BlockN, BlockM, BlockN);
}

}  // namespace fusewire
