// GEMM + all-reduce in one kernel: C [M, N] = the sum over ranks of A * B, on every rank. The operator is in
// gemm_ar.hpp.
//
//   one-shot   A, B --mainloop--> partial sums --> inbox [source][M][N] of every rank
//              --signal--> flag (source, tile, slice)
//              wait for a tile's flags of every source --> add up in the order of ranks --> epilogue --> C
//   two-shot   A, B --mainloop--> partial sums --> inbox [source][rows][N] of the rank that owns the rows
//              --signal--> flag (source, tile, slice)
//              wait for a local tile's flags of every source --> add up --> epilogue --> C, and the second inbox [M][N]
//              of every rank --signal--> flag
//              wait for the flag of another rank's tile --> C
//
// For each element of C, a rank sends 2 (W - 1) bytes with one shot, 4 (W - 1) / W with two; fp32 partial sums double
// what is reduced. One-shot waits once, two-shot twice. With few rows, two-shot's tiles have rows of several owners, as
// in gemm_rs_kernel.hpp.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. A block adds up only when all
// multiplications of its rank are done or running in other blocks. It takes other ranks' tiles only when the same
// holds for all sums of its rank. Block 0's last wait (credit) comes last.
// Order: as in gemm_rs_kernel.hpp. In one-shot, sums are stored to the rank's own inbox, and the same threads copy
// them from there; they sync in between. One release covers a tile's copies, or results, for all ranks.
// Reuse: the inbox by the channel's argument, both parts of it. Only this launch reads A and B.
// Abandonment: a flag whose wait timed out counts as raised, and the sums may be anything. If the channel poisons,
// NaN is stored then.
#pragma once
#include <fusewire/comm/all_reduce_sink.hpp>
#include <fusewire/comm/reduced_rows.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// C = epilogue(the sum over ranks of A B), which every rank adds up. Called by: gemm_ar, on every rank.
template <class T, mainloop Mainloop, class Epilogue, class Partial = T>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    gemm_ar_one_shot(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                     __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_m = Mainloop::traits.tile_m, tile_n = Mainloop::traits.tile_n;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank(), ranks = ch.world.size(), n_tiles = ceil_div(g.c.cols, tile_n), stores = x.stores();
  all_reduce_sink<Partial> const inbox{e, ch.world, g.c.rows, g.c.cols, tile_m, tile_n, n_tiles, stores};
  local_shards source(g.shards, g.k, x.k_slice());
  tail const reduce{g.tiles.count(), [&](block b, int item) {
                      tile_coord const t = g.tiles[item];
                      for (int s = 0; s < stores; ++s) e.wait(b, 0, ranks - 1, inbox.flag(t) + s);
                      auto const sums = [&](int source) { return inbox.from(source, rank); };
                      detail::reduce_tile<Partial>(b, g.c, {t.m * tile_m, (t.m + 1) * tile_m}, t.n * tile_n, tile_n,
                                                   ranks, sums, e.control().should_fill_nan(), epilogue);
                    }};
  Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{}, reduce);
}

/// The same, but the owner of a row adds up and sends the result to all ranks. Called by: gemm_ar, on every rank.
template <class T, mainloop Mainloop, class Epilogue, class Partial = T>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    gemm_ar_two_shot(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                     __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_n = Mainloop::traits.tile_n;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank(), ranks = ch.world.size(), n_tiles = ceil_div(g.c.cols, tile_n);
  row_shards const& shards = g.shards;
  reduce_scatter_sink<Partial> const inbox{e, ch.world, shards, g.per_rank, g.c.cols, tile_n, n_tiles, x.stores()};
  local_shards source(shards, g.k, x.k_slice());

  reduced_rows<T, Partial> const rows{e, ch.world, inbox, g.c};

  auto const reduce = [&](block b, int nth, int column) {
    constexpr int width = per_16_bytes<Partial>;
    index_range const of_tile = inbox.wait(b, nth, column);
    bool const poisoned = e.control().should_fill_nan(), aligned = is_row_aligned<width * sizeof(T)>(g.c);
    int const above = inbox.rows(rank).begin, n0 = column * tile_n;
    auto const sums = [&](int source) { return inbox.from(source, rank); };
    auto const of_all = [&](float x, int r, int col) { return epilogue(x, above + r, col); };
    detail::for_each_vector<width>(
        b, of_tile.begin, n0, of_tile.size(), tile_n, of_tile.end, g.c.cols, [&](int r, int col) {
          alignas(16) T out[width];
          detail::reduce_vector<T, Partial>(out, ranks, sums, r, col, g.c.cols, poisoned, of_all);
          rows.store(r, col, out, aligned);
        });
    rows.stored(b, nth, column);
  };
  int const local = inbox.m_tiles() * n_tiles;
  tail const both{local + shards.all_m_tiles() * n_tiles, [&](block b, int item) {
                    if (item < local) reduce(b, item / n_tiles, item % n_tiles);
                    else rows.take(b, (item - local) / n_tiles, (item - local) % n_tiles);
                  }};
  Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{}, both);
}

}  // namespace fusewire
