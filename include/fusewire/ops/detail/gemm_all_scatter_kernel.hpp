// GEMM + all-scatter in one kernel: C [M, W n] on every rank. Rank r computes its columns [r n, (r + 1) n) = A * B. The
// operator is in gemm_all_scatter.hpp.
//
//   tiles        A, B --mainloop--> epilogue --> local columns of C
//                --copy--> inbox [source][M][n] of every other rank --signal--> flag (source, tile, slice)
//   after them   wait for the flags of another rank's tile --> its columns of C
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. A block takes other ranks'
// tiles only when all tiles of its rank are done or running in other blocks. Block 0's last wait (credit) comes after
// its own work.
// Order: the threads that stored a tile, or a part of its rows, sync, copy it and raise its flags, so the flags'
// release covers the copies. The block that takes a tile out of the inbox acquires every one of its flags first.
// Reuse: the inbox by the channel's argument. Only this launch reads A and B.
// Abandonment: a flag whose wait timed out counts as raised, and the tile taken out may be anything. If the channel
// poisons, it becomes NaN.
#pragma once
#include <fusewire/comm/all_scatter_sink.hpp>
#include <fusewire/comm/tile_vectors.hpp>
#include <fusewire/comm/row_shards.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// C = epilogue(A B), and the columns of the other ranks. Called by: gemm_all_scatter, on every rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    gemm_all_scatter_kernel(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                            __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_m = Mainloop::traits.tile_m, tile_n = Mainloop::traits.tile_n;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const ranks = ch.world.size(), n = g.c.cols / ranks, n_tiles = ceil_div(n, tile_n), stores = x.stores();
  all_scatter_sink<T> const inbox{e, ch.world, g.c, n, tile_m, tile_n, n_tiles, stores};
  local_shards source(g.shards, g.k, x.k_slice());
  int const tiles = g.tiles.count();
  tail const take{(ranks - 1) * tiles, [&](block b, int item) {
                    int const nth = item / tiles, from = ch.world.next(1 + nth);
                    tile_coord const t = g.tiles[item - nth * tiles];
                    for (int s = 0; s < stores; ++s) e.wait(b, from, inbox.flag(t) + s);
                    detail::take_tile(b, inbox.columns(from), t.m * tile_m, t.n * tile_n, tile_m, tile_n,
                                      inbox.from(from, ch.world.rank()), e.control().should_fill_nan());
                  }};
  Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, epilogue, take);
}

}  // namespace fusewire
