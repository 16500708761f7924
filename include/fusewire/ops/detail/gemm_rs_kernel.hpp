// GEMM + reduce-scatter in one kernel: C on a rank = its rows of the sum over ranks of A * B. The operator is in
// gemm_rs.hpp.
//
//   tiles        A, B --mainloop--> partial sums --> inbox [source][rows][N] of the rank that owns the rows
//                --signal--> flag (source, tile, slice)
//   after them   wait for a tile's flags of every source --> add up in the order of ranks --> epilogue --> C
//
// With small M, tiles have rows of several owners, so that B is read once: the blocks that stored such a tile copy
// each owner's rows. Else M tiles of all ranks alternate, and every rank begins with one of the rank after it: at any
// time a rank multiplies for all ranks, itself among them, so all links are in use, and no tile waits for a link that
// all tiles want.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. A block adds up only when all
// multiplications of its rank are done or running in other blocks. Block 0's last wait (credit) comes after its own
// work.
// Order: the threads that stored a tile of sums, or a slice of its rows, raise its flag, so the flag's release covers
// the sums. If the tile has rows of several owners, they sync first, copy each owner's rows, and raise all owners'
// flags with one release, which covers the copies. The block that adds up acquires every flag of every source first.
// Reuse: the inbox by the channel's argument; what a rank stores for its own copies lies there, too. Only this launch
// reads A and B.
// Abandonment: a flag whose wait timed out counts as raised, and the sums may be anything. If the channel poisons,
// NaN is stored then.
#pragma once
#include <fusewire/comm/reduce_scatter_sink.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// C = epilogue(the sum over ranks of A B), for this rank's rows. Called by: gemm_rs, on every rank.
/// Partial: the type in which partial sums travel; they are added in fp32.
template <class T, mainloop Mainloop, class Epilogue, class Partial = T>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    gemm_rs_kernel(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                   __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_n = Mainloop::traits.tile_n;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const n = g.c.cols, n_tiles = ceil_div(n, tile_n), rank = ch.world.rank();
  reduce_scatter_sink<Partial> const inbox{e, ch.world, g.shards, g.per_rank, n, tile_n, n_tiles, x.stores()};
  local_shards source(g.shards, g.k, x.k_slice());
  tail const reduce{inbox.m_tiles() * n_tiles, [&](block b, int item) {
                      int const column = item % n_tiles;
                      index_range const rows = inbox.wait(b, item / n_tiles, column);
                      auto const sums = [&](int source) { return inbox.from(source, rank); };
                      detail::reduce_tile<Partial>(b, g.c, rows, column * tile_n, tile_n, ch.world.size(), sums,
                                                   e.control().should_fill_nan(), epilogue);
                    }};
  Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{}, reduce);
}

}  // namespace fusewire
