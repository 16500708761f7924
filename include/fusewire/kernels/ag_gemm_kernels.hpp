// All-gather + GEMM in one kernel: C [M, N] = gather(A) [M, K] * B [K, N] on every rank. The operator is in ag_gemm.hpp.
//
//   comm blocks   gather_pieces.hpp: push, or pull, and signal a flag (source, tile row, chunk) for each piece
//   all blocks    own rows or columns: from A, at once; others: wait flag --> from the inbox --mainloop--> C
//
// Deadlock: all blocks are resident (launch() checks). In push, comm blocks wait for nothing. In pull they wait for headers, which
// every rank's blocks send before they wait for anything. Blocks take tiles only after their communication, so a tile waits only
// for work that somebody is already doing. Block 0's last waits (acknowledgements, credit) come after its own tiles.
// Reuse: the inbox by the channel's argument. A of this rank: in push it is read only by this launch; in pull the launch ends only
// after every peer has acknowledged, so the caller may overwrite it as soon as the launch is over.
#pragma once
#include <fusewire/kernels/gathered_tiles.hpp>
#include <fusewire/kernels/poison.hpp>
#include <fusewire/tile/epilogue.hpp>
#include <fusewire/tile/gemm.hpp>

namespace fusewire {

template <class T>
struct ag_gemm_arguments {
  gather_plan<T> gather;
  gemm_operands<T, gathered_buffers> x;  // B is [K, N]
  matrix<T> c;                           // [M, N]
  tile_order tiles;
  int comm_blocks;                       // the first blocks of the grid
};

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) ag_gemm_kernel(channel_view ch, ag_gemm_arguments<T> g, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = g.gather.pull ? ch.begin_readable(b) : ch.begin(b);

  if (b.index() < g.comm_blocks) gather_pieces(b, e, ch.world, g.gather, b.index(), g.comm_blocks, [] {});
  auto const next = [&] { return e.next(b, reinterpret_cast<int*>(shared)); };
  gathered_tiles<block> source(e, ch.world.rank, g.gather.map, g.gather.own_shard_first, false, 0, divisor(1));
  block_gemm<T, Tile::config>::run_tiles(shared, g.x, g.tiles, next, source, into_or_poison<T>{g.c, e, Tile::config.block_m, Tile::config.block_n}, epilogue);

  if (b.index() == 0 && g.gather.pull) e.wait_acknowledged(b);
  e.end(b);
}

}  // namespace fusewire
