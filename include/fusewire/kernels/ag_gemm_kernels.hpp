// All-gather + GEMM in one kernel: C [M, N] = gather(A) [M, K] * B [K, N] on every rank. The operator is in ag_gemm.hpp.
//
//   push   comm blocks   A --copy--> inbox of every rank --signal--> flag (source, tile row, chunk)
//   pull   comm blocks   wait peer's header; peer's A --copy--> own inbox --signal--> flag; acknowledge to the peer
//   both   all blocks    wait flag --> inbox [M, K] --mainloop--> C
//
// A crosses the link once: every piece is copied once to each rank that needs it, and the tiles read the inbox, which is local. A
// rank's own shard goes the same way, so the mainloop sees one plain matrix.
//
// Deadlock: all blocks are resident (launch() checks). In push, comm blocks wait for nothing. In pull they wait for headers, which
// every rank's blocks send before they wait for anything. Blocks take tiles only after their communication, so a tile waits only
// for work that somebody is already doing. Block 0's last waits (acknowledgements, credit) come after its own tiles.
// Reuse: the inbox by the channel's argument. A of this rank: in push it is read only by this launch; in pull the launch ends only
// after every peer has acknowledged, so the caller may overwrite it as soon as the launch is over.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/kernels/find_shard.hpp>
#include <fusewire/kernels/poison.hpp>
#include <fusewire/tile/epilogue.hpp>
#include <fusewire/tile/gemm.hpp>
#include <fusewire/tile/grid.hpp>

namespace fusewire {

template <class T>
struct ag_gemm_arguments {
  matrix<T const> a;    // this rank's shard: [M, K/W] or [rows of this rank, K]
  b_operand<T> b;       // [K, N]
  matrix<T> c;          // [M, N]
  gather_map map;
  int comm_blocks;      // the first blocks of the grid
  tile_order tiles;     // of C
  bool own_shard_first; // else every rank sums the shards in the order of ranks, and C has the same bits everywhere
};

namespace detail {

template <class T>
__device__ matrix<T> part(matrix<T> whole, gather_piece const& p, int row0 = 0, int col0 = 0) {
  return whole.part(p.row - row0, p.col - col0, p.rows, p.cols);
}

/// Every tile of C, taken by whichever block is free.
template <class T, gemm_config C, int Direction, class Epilogue>
__device__ void multiply_gathered(block b, channel_epoch const& e, int rank, ag_gemm_arguments<T> const& g, Epilogue const& epilogue) {
  using gemm = block_gemm<T, C>;
  extern __shared__ bytes16 shared[];
  gather_map const& map = g.map;
  matrix<T const> const gathered{e.inbox<T>(), map.m, map.k, map.k};
  tile_order const& tiles = g.tiles;
  int const shards = map.by == gather::k ? map.ranks : 1;

  for (int t = e.next(b, reinterpret_cast<int*>(shared)); t < tiles.count(); t = e.next(b, reinterpret_cast<int*>(shared))) {
    int const tile_m = tiles[t].m, m0 = tile_m * C.block_m, n0 = tiles[t].n * C.block_n;
    matrix<T const> const a = gathered.part(m0, 0, map.m - m0 < C.block_m ? map.m - m0 : C.block_m, map.k);
    typename gemm::accumulator acc;
    gemm mainloop(shared, acc);
    for (int i = 0; i < shards; ++i) {
      int const s = g.own_shard_first ? (rank + Direction * i + map.ranks) % map.ranks : i;
      int const first_source = map.by == gather::k ? s : map.first_owner(tile_m), last_source = map.by == gather::k ? s : map.last_owner(tile_m);
      int const col0 = map.first_col(s);
      for (int chunk = 0; chunk < map.chunks(); ++chunk) {
        e.wait(b, first_source, last_source, map.flag(tile_m, chunk));
        int const k0 = chunk * map.chunk_k, k1 = k0 + map.chunk_k < map.cols() ? k0 + map.chunk_k : map.cols();
        mainloop.run(a, g.b, n0, col0 + k0, col0 + k1);
      }
    }
    mainloop.finish();
    mainloop.store(g.c, m0, n0, epilogue);
    if (e.poisons()) poison_tile(b, g.c, m0, n0, C.block_m, C.block_n);
  }
}

}  // namespace detail

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) ag_gemm_push(channel_view ch, ag_gemm_arguments<T> g, Epilogue epilogue) {
  block const b;
  channel_epoch const e = ch.begin(b);
  int const rank = ch.world.rank, ranks = ch.world.size;

  if (b.index() < g.comm_blocks)
    for (int const i : dealt(g.map.pieces(rank) * ranks, b.index(), g.comm_blocks)) {
      gather_piece const p = g.map.piece(rank, i / ranks);
      int const peer = ch.world.next(i % ranks);
      matrix<T> const inbox{e.inbox<T>(peer), g.map.m, g.map.k, g.map.k};
      copy_aligned(b, detail::part(g.a, p, g.map.first_row(rank), g.map.first_col(rank)), detail::part(inbox, p));
      e.signal(b, peer, p.flag);
    }
  detail::multiply_gathered<T, Tile::config, -1>(b, e, rank, g, epilogue);
  e.end(b);
}

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) ag_gemm_pull(channel_view ch, ag_gemm_arguments<T> g, Epilogue epilogue) {
  block const b;
  channel_epoch const e = ch.begin_readable(b);
  int const rank = ch.world.rank, ranks = ch.world.size;
  matrix<T> const inbox{e.inbox<T>(), g.map.m, g.map.k, g.map.k};

  if (b.index() < g.comm_blocks)
    for (int const i : dealt(g.map.most_pieces() * ranks, b.index(), g.comm_blocks)) {
      int const source = ch.world.next(i % ranks), pieces = g.map.pieces(source);
      if (i / ranks >= pieces) {
        if (i < ranks) e.acknowledge_nothing(b, source);
        continue;
      }
      gather_piece const p = g.map.piece(source, i / ranks);
      matrix<T const> shard;
      if (find_shard(b, e, ch.world, g.map, source, shard)) copy_aligned(b, detail::part(shard, p, g.map.first_row(source), g.map.first_col(source)), detail::part(inbox, p));
      e.signal_here(b, source, p.flag);
      e.acknowledge(b, source, unsigned(pieces));
    }
  detail::multiply_gathered<T, Tile::config, +1>(b, e, rank, g, epilogue);
  if (b.index() == 0) e.wait_acknowledged(b);
  e.end(b);
}

}  // namespace fusewire
