// GEMM + all-reduce in one kernel: C [M, N] = the sum over ranks of A * B, on every rank. The operator is in
// gemm_ar.hpp.
//
//   one-shot   A, B --mainloop--> fp32 sums --> inbox [source][M][N] of every rank
//              --signal--> flag (source, tile, part)
//              wait for a tile's flags of every source --> add up in the order of ranks --> epilogue --> C
//   two-shot   A, B --mainloop--> fp32 sums --> inbox [source][rows][N] of the rank that owns the rows
//              --signal--> flag (source, tile, part)
//              wait for an own tile's flags of every source --> add up --> epilogue --> C, and the second inbox [M][N]
//              of every rank --signal--> flag
//              wait for the flag of another rank's tile --> C
//
// For each element of C, a rank sends 4 (W - 1) bytes with one shot, about 6 bytes with two. One-shot waits once,
// two-shot twice.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. A block adds up only when all
// multiplications of its rank are done or under way in other blocks. It takes other ranks' tiles only when the same
// holds for all sums of its rank. Block 0's last wait (credit) comes last.
// Order: as in gemm_rs_kernel.hpp. In one-shot, sums are stored to the rank's own inbox, and the same threads copy
// them from there; they meet in between. In two-shot, the block that stored a result into all inboxes raises its flag.
// Reuse: the inbox by the channel's argument, both parts of it. Only this launch reads A and B.
// Abandonment: a flag whose wait was given up counts as raised, and the sums may be anything. If the channel poisons,
// NaN is stored then.
#pragma once
#include <fusewire/comm/all_reduce.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// C = epilogue(the sum over ranks of A B), which every rank adds up. Called by: gemm_ar, on every rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::threads, Mainloop::min_blocks_per_cu)
    gemm_ar_one_shot(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                     __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank(), ranks = ch.world.size(), n_tiles = ceil_div(g.c.cols, Mainloop::tile_n),
            parts = x.parts().value();
  all_reduce_sink const inbox{e,       ch.world, g.c.rows, g.c.cols,           Mainloop::tile_m, Mainloop::tile_n,
                              n_tiles, x.part(), parts,    Mainloop::part_unit};
  local_shards source(g.shards, g.k, x.k_part(), x.k_parts());
  auto work = Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{});

  bool const whole = is_row_aligned<4 * sizeof(T)>(g.c);
  for (; work.now() < g.tiles.count(); work.next()) {
    tile_coord const t = g.tiles[work.now()];
    for (int p = 0; p < parts; ++p) e.wait(b, 0, ranks - 1, inbox.flag(t) + p);
    bool const poisoned = e.control().should_fill_nan();
    detail::for_each_quad(b, t.m * Mainloop::tile_m, t.n * Mainloop::tile_n, Mainloop::tile_m, Mainloop::tile_n,
                          g.c.rows, g.c.cols, [&](int r, int col) {
                            alignas(8) T four[4];
                            detail::add_sources(
                                four, ranks, [&](int s) { return inbox.from(s, rank); }, r, col, g.c.cols, poisoned,
                                epilogue);
                            store_quad(g.c, r, col, four, whole);
                          });
  }
  launch.end(b);
}

/// The same, but the owner of a row adds up and sends the result to all ranks. Called by: gemm_ar, on every rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::threads, Mainloop::min_blocks_per_cu)
    gemm_ar_two_shot(__grid_constant__ channel_view const ch, __grid_constant__ sum_arguments<T> const g,
                     __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank(), ranks = ch.world.size(), n_tiles = ceil_div(g.c.cols, Mainloop::tile_n);
  row_shards const& shards = g.shards;
  reduce_scatter_sink const inbox{e, shards, rank, g.c.cols, n_tiles, x.part(), x.parts().value()};
  local_shards source(shards, g.k, x.k_part(), x.k_parts());
  auto work = Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{});

  bool const whole = is_row_aligned<4 * sizeof(T)>(g.c);
  auto const results = [&](int of) {  // the second inbox
    std::int64_t const pitch = reduce_scatter_sink::pitch(g.c.cols);
    return matrix<T>{reinterpret_cast<T*>(e.inbox<float>(of) + std::int64_t(ranks) * shards.per_rank * pitch), g.c.rows,
                     g.c.cols, pitch};
  };
  auto const result_flag = [&](int nth, int tile_n) {
    return (shards.tile_rows * inbox.parts + nth) * n_tiles + tile_n;
  };

  int const row0 = shards.first_row(rank), mine = shards.tile_rows_of(rank) * n_tiles;
  for (; work.now() < mine; work.next()) {
    int const m = work.now() / n_tiles, n = work.now() % n_tiles;
    inbox.wait(b, ranks, m, n);
    bool const poisoned = e.control().should_fill_nan();
    detail::for_each_quad(
        b, m * Mainloop::tile_m, n * Mainloop::tile_n, Mainloop::tile_m, Mainloop::tile_n, shards.rows(rank), g.c.cols,
        [&](int r, int col) {
          alignas(8) T four[4];
          auto const of_all = [&](float x, int row, int column) { return epilogue(x, row0 + row, column); };
          detail::add_sources(
              four, ranks, [&](int s) { return inbox.from(s, rank); }, r, col, g.c.cols, poisoned, of_all);
          store_quad(g.c, row0 + r, col, four, whole);
          for (int p = 1; p < ranks; ++p)
            *reinterpret_cast<uint2*>(results(ch.world.next(p)).at(row0 + r, col)) =
                *reinterpret_cast<uint2 const*>(four);
        });
    for (int p = 1; p < ranks; ++p) e.signal(b, ch.world.next(p), result_flag(m, n));
  }

  for (int const all = mine + shards.all_tile_rows() * n_tiles; work.now() < all; work.next()) {
    int const m = (work.now() - mine) / n_tiles, n = (work.now() - mine) % n_tiles, owner = shards.owner(m);
    if (owner == rank) continue;
    e.wait(b, owner, result_flag(shards.nth_of_owner(m), n));
    bool const poisoned = e.control().should_fill_nan();
    int const m0 = shards.first_row(owner) + shards.row_in_shard(m);
    detail::for_each_quad(b, m0, n * Mainloop::tile_n, Mainloop::tile_m, Mainloop::tile_n,
                          shards.first_row(owner) + shards.rows(owner), g.c.cols, [&](int r, int col) {
                            alignas(8) T four[4];
                            *reinterpret_cast<uint2*>(four) = *reinterpret_cast<uint2 const*>(results(rank).at(r, col));
                            for (T& x : four)
                              if (poisoned) x = T(__builtin_nanf(""));
                            store_quad(g.c, r, col, four, whole);
                          });
  }
  launch.end(b);
}

}  // namespace fusewire
