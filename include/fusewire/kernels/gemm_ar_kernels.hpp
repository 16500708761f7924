// GEMM + all-reduce in one kernel: C [M, N] = the sum over ranks of A * B, on every rank. The operator is in gemm_ar.hpp.
//
//   one-shot   A, B --mainloop--> fp32 sums --> inbox [source][M][N] of every rank --signal--> flag (source, tile)
//              wait for a tile's flag of every source --> add up in the order of ranks --> epilogue --> C
//   two-shot   A, B --mainloop--> fp32 sums --> inbox [source][rows][N] of the rank that owns the rows --signal--> flag (source, tile)
//              wait for an own tile's flag of every source --> add up --> epilogue --> C, and the second inbox [M][N] of every rank --signal--> flag
//              wait for another rank's tile --> C
//
// One-shot sends W - 1 times M x N x 4 bytes, and waits once; two-shot about 6 bytes for 4 (W - 1), and waits twice.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing; a block adds up only when all of its rank's multiplications have been
// handed out, to blocks that are at them, and takes others' tiles only when all of its rank's sums have been. Block 0's last wait (credit) comes last.
// Order: as in gemm_rs_kernels.hpp. With one shot a block stores its sums at home and copies them from there: the barrier behind the mainloop's store orders
// that within the block. With two, the flag of a result is raised by the block that stored it into all inboxes.
// Reuse: the inbox by the channel's argument, both parts of it. A and B are read by this launch alone.
// Abandonment: a flag that is given up counts as raised, and what is added up may be anything; where the channel poisons, what is stored then is NaN.
#pragma once
#include <fusewire/kernels/partial_sums.hpp>
#include <fusewire/tile/epilogue.hpp>

namespace fusewire {

template <class T>
struct gemm_ar_arguments {
  gemm_operands<T, 1> x;  // A is [M, K], B [K, N]
  matrix<T> c;            // [M, N]
  row_shards shards;      // two-shot: of all ranks; one-shot: as if one rank owned all rows
  tile_order tiles;
};

/// A tile sink: the inbox of every rank, each of which is told. Holds [source][M][N] sums in fp32, rows of whole 16 bytes.
struct everyones_inbox {
  channel_epoch const& e;
  world_view const& w;
  int m, n, tile_m, tile_n, n_tiles;

  __device__ matrix<float> from(int source, int of) const {
    std::int64_t const pitch = owners_inbox::pitch(n);
    return {e.inbox<float>(of) + std::int64_t(source) * m * pitch, m, n, pitch};
  }
  __device__ matrix<float> at(tile_at) const { return from(w.rank, w.rank); }
  __device__ int flag(int tile_row, int tile_n) const { return tile_row * n_tiles + tile_n; }
  template <group Group>
  __device__ void stored(Group g, tile_at t) const {
    int const m0 = t.m * tile_m, n0 = t.n * tile_n, columns = int(owners_inbox::pitch(n)) - n0;
    int const rows = m - m0 < tile_m ? m - m0 : tile_m, cols = columns < tile_n ? columns : tile_n;
    e.signal_here(g, w.rank, flag(t.m, t.n));
    for (int i = 1; i < w.size; ++i) {
      int const peer = w.next(i);
      copy_aligned(g, from(w.rank, w.rank).part(m0, n0, rows, cols), from(w.rank, peer).part(m0, n0, rows, cols));
      e.signal(g, peer, flag(t.m, t.n));
    }
  }
};

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) gemm_ar_one_shot(channel_view ch, gemm_ar_arguments<T> g, Epilogue epilogue) {
  constexpr gemm_config C = Tile::config;
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  int const rank = ch.world.rank, ranks = ch.world.size, n_tiles = ceil_div(g.c.cols, C.block_n);
  everyones_inbox const inbox{e, ch.world, g.c.rows, g.c.cols, C.block_m, C.block_n, n_tiles};
  bool const whole = detail::has_whole_quads(g.c);

  auto const next = [&] { return e.next(b, reinterpret_cast<int*>(shared)); };
  local_shards source(g.shards, g.x.a[0].cols);
  int i = block_gemm<T, C>::run_tiles(shared, g.x, g.tiles, next, source, inbox, identity{});

  for (int const all = g.tiles.count(); i < 2 * all; i = next()) {
    tile_at const t = g.tiles[i - all];
    e.wait(b, 0, ranks - 1, inbox.flag(t.m, t.n));
    bool const poisoned = e.poisons();
    detail::for_each_quad(b, t.m * C.block_m, t.n * C.block_n, C.block_m, C.block_n, g.c.rows, g.c.cols, [&](int r, int col) {
      alignas(8) T four[4];
      detail::add_sources(four, ranks, [&](int s) { return inbox.from(s, rank); }, r, col, g.c.cols, poisoned, epilogue);
      detail::store_quad(g.c, r, col, four, whole);
    });
  }
  e.end(b);
}

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) gemm_ar_two_shot(channel_view ch, gemm_ar_arguments<T> g, Epilogue epilogue) {
  constexpr gemm_config C = Tile::config;
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  int const rank = ch.world.rank, ranks = ch.world.size, n_tiles = ceil_div(g.c.cols, C.block_n);
  row_shards const& shards = g.shards;
  owners_inbox const inbox{e, shards, rank, g.c.cols, n_tiles};
  bool const whole = detail::has_whole_quads(g.c);
  int const flags = shards.tile_rows * n_tiles, row0 = shards.first_row(rank);  // the second inbox has flags of its own, behind those of the first
  auto const results = [&](int of) {
    std::int64_t const pitch = owners_inbox::pitch(g.c.cols);
    return matrix<T>{reinterpret_cast<T*>(e.inbox<float>(of) + std::int64_t(ranks) * shards.per_rank * pitch), g.c.rows, g.c.cols, pitch};
  };

  auto const next = [&] { return e.next(b, reinterpret_cast<int*>(shared)); };
  local_shards source(shards, g.x.a[0].cols);
  int i = block_gemm<T, C>::run_tiles(shared, g.x, g.tiles, next, source, inbox, identity{});

  int first = g.tiles.count();
  for (int const mine = shards.tile_rows_of(rank) * n_tiles; i - first < mine; i = next()) {
    int const m = (i - first) / n_tiles, n = (i - first) % n_tiles;
    e.wait(b, 0, ranks - 1, inbox.flag(m, n));
    bool const poisoned = e.poisons();
    detail::for_each_quad(b, m * C.block_m, n * C.block_n, C.block_m, C.block_n, shards.rows(rank), g.c.cols, [&](int r, int col) {
      alignas(8) T four[4];
      auto const of_all = [&](float x, int row, int column) { return epilogue(x, row0 + row, column); };
      detail::add_sources(four, ranks, [&](int s) { return inbox.from(s, rank); }, r, col, g.c.cols, poisoned, of_all);
      detail::store_quad(g.c, row0 + r, col, four, whole);
      for (int p = 1; p < ranks; ++p) *reinterpret_cast<uint2*>(results(ch.world.next(p)).at(row0 + r, col)) = *reinterpret_cast<uint2 const*>(four);
    });
    for (int p = 1; p < ranks; ++p) e.signal(b, ch.world.next(p), flags + inbox.flag(m, n));
  }
  first += shards.tile_rows_of(rank) * n_tiles;

  for (int const others = (shards.all_tile_rows() - shards.tile_rows_of(rank)) * n_tiles; i - first < others; i = next()) {
    int const after = (i - first) / n_tiles, n = (i - first) % n_tiles;  // tile rows of the ranks before this one, then of those after it
    int const m = after < rank * shards.tile_rows ? after : after + shards.tile_rows_of(rank), owner = shards.owner(m);
    e.wait(b, owner, flags + inbox.flag(m, n));
    bool const poisoned = e.poisons();
    int const m0 = shards.first_row(owner) + shards.row_in_shard(m);
    detail::for_each_quad(b, m0, n * C.block_n, C.block_m, C.block_n, shards.first_row(owner) + shards.rows(owner), g.c.cols, [&](int r, int col) {
      alignas(8) T four[4];
      *reinterpret_cast<uint2*>(four) = *reinterpret_cast<uint2 const*>(results(rank).at(r, col));
      for (T& x : four)
        if (poisoned) x = T(__builtin_nanf(""));
      detail::store_quad(g.c, r, col, four, whole);
    });
  }
  e.end(b);
}

}  // namespace fusewire
