// GEMM + reduce-scatter in one kernel: C of a rank = its rows of the sum over ranks of A * B. The operator is in gemm_rs.hpp.
//
//   all blocks, first   A, B --mainloop--> fp32 sums --> inbox [source][rows][N] of the rank that owns the rows --signal--> flag (source, tile)
//   all blocks, then    wait for a tile's flag of every source --> add up in the order of ranks --> epilogue --> C
//
// Every rank begins with the rows of the rank after it and ends with its own, so at any time each rank sends to one peer and receives from one.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing, and a block adds up only when all of its rank's have been
// handed out, to blocks that are at them. Block 0's last wait (credit) comes after its own work.
// Order: the block that stored a tile of sums raises its flag, so its release carries them; the block that adds them up acquires every source's flag first.
// Reuse: the inbox by the channel's argument. A and B are read by this launch alone.
// Abandonment: a flag that is given up counts as raised, and what is added up may be anything; where the channel poisons, what is stored then is NaN.
#pragma once
#include <fusewire/kernels/partial_sums.hpp>
#include <fusewire/tile/epilogue.hpp>

namespace fusewire {

template <class T>
struct gemm_rs_arguments {
  gemm_operands<T, 1> x;  // A is [M, K], B [K, N]
  matrix<T> c;            // [rows of this rank, N]
  row_shards shards;
  tile_order tiles;       // of all ranks' rows
};

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) gemm_rs_kernel(channel_view ch, gemm_rs_arguments<T> g, Epilogue epilogue) {
  constexpr gemm_config C = Tile::config;
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  int const rank = ch.world.rank, ranks = ch.world.size, n_tiles = ceil_div(g.c.cols, C.block_n);
  owners_inbox const inbox{e, g.shards, rank, g.c.cols, n_tiles};
  bool const whole = detail::has_whole_quads(g.c);

  auto const next = [&] { return e.next(b, reinterpret_cast<int*>(shared)); };
  local_shards source(g.shards, g.x.a[0].cols);
  int i = block_gemm<T, C>::run_tiles(shared, g.x, g.tiles, next, source, inbox, identity{});

  for (int const mine = g.shards.tile_rows_of(rank) * n_tiles; i - g.tiles.count() < mine; i = next()) {
    int const t = i - g.tiles.count(), m = t / n_tiles, n = t % n_tiles;
    e.wait(b, 0, ranks - 1, inbox.flag(m, n));
    bool const poisoned = e.poisons();
    detail::for_each_quad(b, m * C.block_m, n * C.block_n, C.block_m, C.block_n, g.c.rows, g.c.cols, [&](int r, int col) {
      alignas(8) T four[4];
      detail::add_sources(four, ranks, [&](int s) { return inbox.from(s, rank); }, r, col, g.c.cols, poisoned, epilogue);
      detail::store_quad(g.c, r, col, four, whole);
    });
  }
  e.end(b);
}

}  // namespace fusewire
