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
#include <fusewire/kernels/gathered_tiles.hpp>
#include <fusewire/kernels/poison.hpp>
#include <fusewire/tile/epilogue.hpp>
#include <fusewire/tile/gemm_sm90.hpp>

namespace fusewire {

template <class T>
struct ag_gemm_sm90_arguments {
  gather_plan<T> gather;
  matrix<T> c;           // [M, N]
  bool starts_together;  // gather::m
  bool b_is_constant;
  sm90_stages stages;
  tile_order tiles;
  divisor parts;         // blocks of a cluster
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

}  // namespace detail

template <class T, int BlockM, int BlockN, layout BOrder, class Epilogue>
__global__ void __launch_bounds__(sm90_gemm_config{BlockM, BlockN}.threads(), 1)
    ag_gemm_sm90(channel_view ch, ag_gemm_sm90_arguments<T> g, __grid_constant__ sm90_operands<gathered_buffers> const operands, Epilogue epilogue) {
  constexpr sm90_gemm_config C{BlockM, BlockN};  // as an argument of a kernel nvcc does not take it
  using gemm = gemm_sm90<T, C, BOrder>;
  using has_epoch = detail::has_epoch<C.threads()>;
  extern __shared__ bytes16 shared[];
  block const b;
  if (b.leader()) {
    prefetch(operands.b.whole);
    prefetch(operands.a[own_shard].whole);
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
  auto const gather = [&](auto idle_warps) {
    gather_pieces(idle_warps, e, ch.world, g.gather, b.index(), b.count(), learn_epoch);
    if (b.index() == 0) {
      if (g.gather.pull) e.wait_acknowledged(idle_warps);
      e.collect_credit(idle_warps);
    }
    has_epoch::sync(e);
    if (idle_warps.leader()) e.leave(b, e.depart());
  };
  gathered_tiles<wave> const source(e, ch.world.rank, g.gather.map, g.gather.own_shard_first, g.starts_together, cluster_rank(), g.parts);
  strided const share = dealt(g.tiles.count(), cluster_index(), cluster_count());
  gemm::run(shared, g.stages, operands, g.b_is_constant, g.tiles, share, source, into<T>{g.c}, g.c.cols, start, asked, gather, epilogue);
  if (e.poisons())
    for (int const i : share) detail::poison_tile(b, g.c, g.tiles[i].m * BlockM, g.tiles[i].n * BlockN, BlockM, BlockN);
}

}  // namespace fusewire
