// GEMM + reduce-scatter in one kernel: C on a rank = its rows of the sum over ranks of A * B. The operator is in
// gemm_rs.hpp.
//
//   tiles        A, B --mainloop--> fp32 sums --> inbox [source][rows][N] of the rank that owns the rows
//                --signal--> flag (source, tile, part)
//   after them   wait for a tile's flags of every source --> add up in the order of ranks --> epilogue --> C
//
// Tile rows of all ranks take turns, and every rank begins with one of the rank after it: at any time a rank multiplies
// for all ranks, itself among them, so all links are in use, and no tile waits for a link that all tiles want.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. A block adds up only when all
// multiplications of its rank are done or under way in other blocks. Block 0's last wait (credit) comes after its own
// work.
// Order: the threads that stored a tile of sums, or a part of its rows, raise its flag, so the flag's release covers
// the sums. The block that adds them up acquires every flag of every source first.
// Reuse: the inbox by the channel's argument. Only this launch reads A and B.
// Abandonment: a flag whose wait was given up counts as raised, and the sums may be anything. If the channel poisons,
// NaN is stored then.
#pragma once
#include <fusewire/comm/reduce_scatter.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// C = epilogue(the sum over ranks of A B), for this rank's rows. Called by: gemm_rs, on every rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::threads, Mainloop::min_blocks_per_cu)
    gemm_rs_kernel(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                   __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_launch launch(ch);
  int const rank = ch.world.rank(), ranks = ch.world.size(), n_tiles = ceil_div(g.c.cols, Mainloop::tile_n);
  reduce_scatter_sink const inbox{launch.epoch(), g.shards, rank, g.c.cols, n_tiles, x.part(), x.parts().value()};
  local_shards source(g.shards, g.k, x.k_part(), x.k_parts());
  auto work = Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{});

  bool const whole = is_row_aligned<4 * sizeof(T)>(g.c);
  for (int const mine = g.shards.tile_rows_of(rank) * n_tiles; work.now() < mine; work.next()) {
    int const m = work.now() / n_tiles, n = work.now() % n_tiles;
    inbox.wait(b, ranks, m, n);
    bool const poisoned = launch.epoch().control().should_fill_nan();
    detail::for_each_quad(b, m * Mainloop::tile_m, n * Mainloop::tile_n, Mainloop::tile_m, Mainloop::tile_n, g.c.rows,
                          g.c.cols, [&](int r, int col) {
                            alignas(8) T four[4];
                            detail::add_sources(
                                four, ranks, [&](int s) { return inbox.from(s, rank); }, r, col, g.c.cols, poisoned,
                                epilogue);
                            store_quad(g.c, r, col, four, whole);
                          });
  }
  launch.end(b);
}

}  // namespace fusewire
