// Tutorial, step 8: a custom tile sink for the library's mainloops. GEMM + reduce-scatter: every rank has a part of k,
// and rank r gets its rows of the sum of all products.
//
//   tiles        A, B --mainloop--> fp32 sums --> inbox of the rank that owns the rows: [source][rows][n], and a flag
//   after them   wait for a tile's flags of every source --> add up in the order of ranks --> C
//
// Deadlock: all blocks run concurrently; multiplications wait for nothing, and a block adds up only when all of its
// rank's are done or other blocks are at them.
#include <fusewire/fusewire.hpp>
#include <fusewire/comm/reduce_scatter_sink.hpp>
#include <fusewire/gemm/gemm_launcher.hpp>
#include <fusewire/gemm/epilogue.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int rows = 72, n = 160, k = 128, launches = 3;  // rows, k: of each rank

// [begin: sink]
struct sums_at_owner {
  channel_epoch const& e;
  row_shards const& shards;   // rank r owns the r-th `rows` rows; M tiles take turns over the ranks
  int rank, n_tiles, stores;  // this rank; tiles of a row; blocks that each store a slice of a tile

  __device__ matrix<float> from(int source, int owner) const {
    return {e.inbox<float>(owner) + source * rows * n, rows, n, n};
  }
  __device__ matrix<float> at(tile_coord t) const {
    int const above = t.m * shards.tile_m - shards.row_in_shard(t.m);  // tiles number rows from the first M tile on
    return {from(rank, shards.owner(t.m)).data - above * n, above + rows, n, n};
  }
  __device__ int flag(int nth, int tile_n) const { return (nth * n_tiles + tile_n) * stores; }  // in its nth M tile
  template <group Group>
  __device__ void stored(Group g, tile_coord t, stored_slice s) const {
    e.signal(g, shards.owner(t.m), flag(shards.nth_of_owner(t.m), t.n) + s.slice);
  }
};
// [end: sink]

struct arguments {
  matrix<bf16> c;      // [rows, n]
  row_shards shards;   // of the sum [m, n]
  raster_order tiles;  // of the sum
};

// [begin: kernel]
template <mainloop M>
__global__ void __launch_bounds__(M::traits.threads, M::traits.min_blocks_per_cu)
    multiply_and_scatter(__grid_constant__ channel_view const ch, __grid_constant__ arguments const g,
                         __grid_constant__ typename M::template operands<1> const x, identity epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_m = M::traits.tile_m, tile_n = M::traits.tile_n;
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank(), ranks = ch.world.size(), n_tiles = ceil_div(n, tile_n);
  sums_at_owner const sink{e, g.shards, rank, n_tiles, x.stores()};
  local_shards source(g.shards, k, x.k_slice());
  auto const add_up = [&](block b, int tile) {  // called by every thread of a block that has no more tiles
    int const nth = tile / n_tiles, m0 = nth * tile_m, n0 = tile % n_tiles * tile_n;
    for (int s = 0; s < sink.stores; ++s) e.wait(b, 0, ranks - 1, sink.flag(nth, tile % n_tiles) + s);
    for (int i = b.rank(); i < tile_m * tile_n; i += b.size()) {
      int const row = m0 + i / tile_n, col = n0 + i % tile_n;
      float sum = 0;
      if (row >= rows || col >= n) continue;
      for (int s = 0; s < ranks; ++s) sum += sink.from(s, rank)(row, col);
      g.c(row, col) = bf16(sum);
    }
  };
  tail const after{g.shards.m_tiles * n_tiles, add_up};  // this rank's tiles of the sum
  M::run(shared, launch, x, g.tiles, source, sink, no_comm{}, epilogue, after);
}
// [end: kernel]

/// Small integers: sums of them are exact.
float a_at(int row, int j) { return float((row + 3 * j) % 5 - 2); }
float b_at(int j, int col) { return float((j + 2 * col) % 3 - 1); }

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    int const ranks = w.size(), m = ranks * rows;
    // [begin: host]
    requirements const needs =
        channel::requirements(ranks, {.max_bytes = std::size_t(m) * n * sizeof(float),
                                      .flags_per_source = gemm_launcher<bf16>::max_tile_slices(rows, n)}) +
        requirements::of<bf16>(std::size_t(m) * k) + requirements::of<bf16>(k * n) + requirements::of<bf16>(rows * n);
    heap heap(w, needs);
    channel ch(heap, needs);
    // [end: host]
    auto const kernel_of = [&]<class M>() { return &multiply_and_scatter<M>; };
    gemm_launcher<bf16> launcher(w, "multiply_and_scatter");
    launcher.load(kernel_of);
    auto const a = heap.allocate<bf16>(std::size_t(m) * k), b = heap.allocate<bf16>(k * n),
               c = heap.allocate<bf16>(rows * n);
    std::vector<bf16> my_a, my_b;
    int const first_k = w.rank() * k, first_row = w.rank() * rows;
    for (int i = 0; i < m * k; ++i) my_a.push_back(bf16(a_at(i / k, first_k + i % k)));
    for (int i = 0; i < k * n; ++i) my_b.push_back(bf16(b_at(first_k + i % k, i / k)));  // column after column
    heap.upload(a, my_a);
    heap.upload(b, my_b);
    for (int i = 0; i < launches; ++i) {
      // [begin: launch]
      gemm_problem<bf16> const p{
          .rows = rows, .b = {heap.here(b), k, n, k}, .b_layout = layout::column_major, .a_ld = k, .shards = ranks};
      gemm_plan const& plan = launcher.plan(kernel_of, p);
      row_shards const shards(m, ranks, plan.tile_m);
      int const next = heap.view().next(1);  // whose rows come first
      arguments const g{
          {heap.here(c), rows, n, n}, shards, {shards.all_m_tiles(), ceil_div(n, plan.tile_n), next, plan.group_m}};
      launcher.launch(w.stream(), kernel_of, p, plan, {matrix<bf16 const>{heap.here(a), m, k, k}},
                      {.tiles = g.tiles.count()}, identity{}, ch.view(gemm_header<bf16>("scatter", plan, 0, m, n, k)),
                      g);
      // [end: launch]
      w.check(w.stream());
      auto const got = heap.download(c);
      for (int row = 0; row < rows; ++row)
        for (int col = 0; col < n; ++col) {
          float sum = 0;
          for (int j = 0; j < ranks * k; ++j) sum += a_at(first_row + row, j) * b_at(j, col);
          if (got[std::size_t(row * n + col)].bits != bf16(sum).bits)
            throw error(text("rank ", w.rank(), ", launch ", i, ": wrong c(", row, ", ", col, ")"));
        }
    }
    std::printf("rank %d: %d launches, all of c right\n", w.rank(), launches);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
