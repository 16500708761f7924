// All-gather + GEMM in one kernel: C [M, N] = gather(A) [M, K] * B [K, N] on every rank. The operator is in
// ag_gemm.hpp.
//
//   beside the tiles   gather_pieces.hpp: push, or pull, and signal a flag (source, tile row, chunk) for each piece
//   tiles              own rows or columns: from A, at once; others: wait flag --> from the inbox --mainloop--> C
//
// The mainloop decides which threads move the pieces: the first blocks before they take tiles, or warps of every block
// while the others multiply. A part's sums over k run in the order of shards from the own one on, or in that of ranks
// (own_shard_first = false); the same in every run. With starts_together, tiles of own rows wait for the first piece of
// a peer's, so that the tiles of both read B together.
//
// Deadlock: all blocks are resident (launch() checks). The threads that push wait for nothing. Those that pull wait for
// headers, which every rank's blocks send before they wait for anything. Blocks that communicate first take tiles
// afterwards, and other mainloops have warps for it, so a tile waits only for work that some block is already doing.
// Block 0's last waits (acknowledgements, credit) come after its own pieces, and keep no piece and no tile of others
// waiting.
// Order: the group that asks the source acquires the flags. The mainloop hands that order on to what loads for it: by a
// barrier, or by a proxy fence.
// Reuse: the inbox by the channel's argument. A of this rank: in push it is read only by this launch; in pull the
// launch ends only after every peer has acknowledged, so the caller may overwrite it as soon as the launch is over.
// Abandonment: a flag that is given up counts as raised, what is loaded then may be anything, and nothing of C is
// valid. Where the channel poisons, a block's tiles become NaN when it has stored them; of a tile that blocks share
// each does so, the last one to store it the last.
#pragma once
#include <fusewire/kernels/gathered_range.hpp>
#include <fusewire/kernels/gathered_tiles.hpp>
#include <fusewire/kernels/poison.hpp>
#include <fusewire/tile/epilogue.hpp>
#include <fusewire/tile/mainloop.hpp>

namespace fusewire {

template <class T>
struct ag_gemm_arguments {
  gather_plan<T> gather;
  matrix<T> c;  // [M, N]
  tile_order tiles;
  bool starts_together;  // gather::m; of mainloops that communicate while they multiply
};

/// Where the steps of a tile are cut into very many parts, a part is a range of all k; else it is a range of every
/// shard's.
template <mainloop M>
using gathered_source =
    std::conditional_t<M::one_range_of_k, gathered_range<typename M::asking>, gathered_tiles<typename M::asking>>;

template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::threads, Mainloop::min_blocks_per_cu)
    ag_gemm_kernel(__grid_constant__ channel_view const ch, __grid_constant__ ag_gemm_arguments<T> const g,
                   __grid_constant__ typename Mainloop::template operands<gathered_buffers> const x,
                   Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  channel_launch launch(ch, g.gather.pull);
  channel_epoch const& e = launch.epoch();
  bool const starts_together = !Mainloop::communicates_first && g.starts_together;
  gathered_source<Mainloop> source(e, ch.world.rank, g.gather.map, g.gather.own_shard_first, starts_together,
                                   x.k_part(), x.k_parts());
  into_or_poison<T> const sink{g.c, e, Mainloop::tile_m, Mainloop::tile_n};
  auto const gather = [&](auto group, int worker, int workers, auto const& begin) {
    gather_pieces(group, e, ch.world, g.gather, worker, workers, begin);
  };
  Mainloop::run_and_end(shared, launch, x, g.tiles, source, sink, gather, epilogue);
}

}  // namespace fusewire
