// Tutorial, step 7: a custom tile source for the library's mainloops. Every rank multiplies the matrix that the rank
// before it sends, while it arrives.
//
//   rank r-1 --- chunks of its A, flags ---> inbox of rank r --wait for a chunk--> mainloop --> C = A of rank r-1 * B
//
// Deadlock: all blocks run concurrently, and the threads that send wait for nothing.
#include <fusewire/fusewire.hpp>
#include <fusewire/gemm/gemm_launcher.hpp>
#include <fusewire/gemm/epilogue.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int m = 200, n = 160, k = 512, chunk_k = 128, chunks = k / chunk_k, launches = 3;

// [begin: source]
template <group Group>
struct arriving_rows : local_rows {  // which knows the steps along k, and where tiles have their rows
  channel_epoch const& e;
  int from;

  __device__ k_segment wait(int column) const {
    int const chunk = column / chunk_k;
    e.wait(Group{}, from, chunk);
    platform::order_async_copies();            // asynchronous loads see it, too
    k_segment run = local_rows::wait(column);  // this column and the rest of the row
    run.buffer = int(e.number() % 2);          // the inbox of this launch
    int const there = ((chunk + 1) * chunk_k - column) / k_step;
    if (run.count > there) run.count = there;  // steps that the flag speaks of
    return run;
  }
};
// [end: source]

struct arguments {
  matrix<bf16 const> a;  // [m, k], which goes to the next rank
  matrix<bf16> c;        // [m, n]
  raster_order tiles;    // of c
};

// [begin: kernel]
template <mainloop M>
__global__ void __launch_bounds__(M::traits.threads, M::traits.min_blocks_per_cu)
    multiply_arriving(__grid_constant__ channel_view const ch, __grid_constant__ arguments const g,
                      __grid_constant__ typename M::template operands<2> const x, identity epilogue) {
  extern __shared__ bytes16 shared[];
  channel_launch launch(ch);
  channel_epoch const& e = launch.epoch();
  int const next = ch.world.next(1), previous = ch.world.next(ch.world.size() - 1);
  auto const send = [&](auto group, int worker, int workers, auto const& begin) {
    begin();  // the epoch is known from here on
    matrix<bf16> const inbox{e.inbox<bf16>(next), m, k, k};
    for (int const chunk : round_robin(chunks, worker, workers)) {
      copy(group, g.a.submatrix(0, chunk * chunk_k, m, chunk_k), inbox.submatrix(0, chunk * chunk_k, m, chunk_k));
      e.signal(group, next, chunk);
    }
  };
  arriving_rows<typename M::source_group> source{{m, k, M::traits.tile_m, x.k_slice()}, e, previous};
  M::run(shared, launch, x, g.tiles, source, local_sink<bf16>{g.c}, send, epilogue, no_tail{});
}
// [end: kernel]

/// Small integers: sums of them are exact.
float a_at(int row, int col, int rank) { return float((row + 3 * col + rank) % 5 - 2); }
float b_at(int row, int col) { return float((row + 2 * col) % 3 - 1); }

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    requirements const needs =
        channel::requirements(w.size(), {.max_bytes = m * k * sizeof(bf16), .flags_per_source = chunks}) +
        requirements::of<bf16>(m * k) + requirements::of<bf16>(k * n) + requirements::of<bf16>(m * n);
    heap heap(w, needs);
    // [begin: host]
    channel ch(heap, needs);
    auto const kernel_of = [&]<class M>() { return &multiply_arriving<M>; };
    gemm_launcher<bf16> launcher(w, "arriving");
    launcher.load(kernel_of);  // the kernel with every mainloop that a plan may name
    // [end: host]
    auto const a = heap.allocate<bf16>(m * k), b = heap.allocate<bf16>(k * n), c = heap.allocate<bf16>(m * n);
    std::vector<bf16> my_a, my_b;
    for (int i = 0; i < m * k; ++i) my_a.push_back(bf16(a_at(i / k, i % k, w.rank())));
    for (int i = 0; i < k * n; ++i) my_b.push_back(bf16(b_at(i % k, i / k)));  // column after column
    heap.upload(a, my_a);
    heap.upload(b, my_b);
    int const from = heap.view().next(w.size() - 1);
    for (int i = 0; i < launches; ++i) {
      // [begin: launch]
      gemm_problem<bf16> const p{.rows = m, .b = {heap.here(b), k, n, k}, .b_layout = layout::column_major, .a_ld = k};
      gemm_plan const& plan = launcher.plan(kernel_of, p);  // mainloop and tile for this shape
      channel_view const view = ch.view(gemm_header<bf16>("arriving", plan, 0, m, n, k));
      auto const inbox = [&](int slot) { return matrix<bf16 const>{view.slot<bf16>(slot), m, k, k}; };
      arguments const g{{heap.here(a), m, k, k},
                        {heap.here(c), m, n, n},
                        {ceil_div(m, plan.tile_m), ceil_div(n, plan.tile_n), 0, plan.group_m}};
      launcher.launch(w.stream(), kernel_of, p, plan, {inbox(0), inbox(1)},
                      {.tiles = g.tiles.count(), .comm_workers = chunks}, identity{}, view, g);
      // [end: launch]
      w.check(w.stream());
      auto const got = heap.download(c);
      for (int row = 0; row < m; ++row)
        for (int col = 0; col < n; ++col) {
          float sum = 0;
          for (int j = 0; j < k; ++j) sum += a_at(row, j, from) * b_at(j, col);
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
