// Tutorial, step 4: a custom fused kernel, y = max(0, A x), where every rank has some columns of A and the same part of
// x.
//
//   producers   a tile of A[:, r] x[r] --- parts, flags ----> inbox of every rank: row of source r, tile t
//   consumers                                                 wait for tile t of all sources, add, max(0, .) --> y
//
// Deadlock: producers wait for nothing, and launch() takes only grids whose blocks all run concurrently.
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int tile_rows = 64, tiles = 8, rows = tile_rows * tiles, cols = 32;  // of each rank
constexpr int producers = 4, consumers = 2, launches = 3;

// [begin: kernel]
__global__ void matvec(channel_view ch, matrix<float const> a, float const* x, float* y) {
  block const b;  // of tile_rows threads: a row each
  channel_epoch const e = ch.begin(b);
  int const ranks = ch.world.size();
  if (b.index() < producers) {
    for (int t = b.index(); t < tiles; t += producers) {
      int const row = t * tile_rows + b.rank();
      float part = 0;
      for (int k = 0; k < a.cols; ++k) part += a(row, k) * x[k];
      for (int i = 0; i < ranks; ++i) e.inbox<float>(ch.world.next(i))[ch.world.rank() * rows + row] = part;
      signal_all(b, ranks, [&](int peer) { return e.to(peer, t); }, e.number());
    }
  } else {
    for (int t = b.index() - producers; t < tiles; t += consumers) {
      e.wait(b, 0, ranks - 1, t);  // flag t of all ranks, this one's too
      int const row = t * tile_rows + b.rank();
      float sum = 0;
      for (int source = 0; source < ranks; ++source) sum += e.inbox<float>()[source * rows + row];
      y[row] = sum > 0 ? sum : 0;
    }
  }
  e.end(b);
}
// [end: kernel]

/// Small integers: sums of them are exact.
float a_at(int row, int col, int n) { return float((row + 3 * col + n) % 5 - 2); }
float x_at(int col) { return float(col % 3 - 1); }

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    // [begin: host]
    requirements const needs =
        channel::requirements(w.size(),
                              {.max_bytes = std::size_t(w.size()) * rows * sizeof(float), .flags_per_source = tiles}) +
        requirements::of<float>(rows * cols) + requirements::of<float>(cols) + requirements::of<float>(rows);
    heap heap(w, needs);
    channel ch(heap, needs);
    // [end: host]
    auto const here = [&](int count) { return heap.view().here(heap.allocate<float>(std::size_t(count))); };
    float *const a = here(rows * cols), *const x = here(cols), *const y = here(rows);
    for (int n = 0; n < launches; ++n) {
      std::vector<float> my_a(rows * cols), my_x(cols), wanted(rows), got(rows);
      int const first = w.rank() * cols;
      for (int i = 0; i < rows * cols; ++i) my_a[std::size_t(i)] = a_at(i / cols, first + i % cols, n);
      for (int k = 0; k < cols; ++k) my_x[std::size_t(k)] = x_at(first + k);
      for (int row = 0; row < rows; ++row) {
        float sum = 0;
        for (int k = 0; k < w.size() * cols; ++k) sum += a_at(row, k, n) * x_at(k);
        wanted[std::size_t(row)] = sum > 0 ? sum : 0;
      }
      check_hip(hipMemcpy(a, my_a.data(), my_a.size() * sizeof(float), hipMemcpyHostToDevice), "hipMemcpy");
      check_hip(hipMemcpy(x, my_x.data(), my_x.size() * sizeof(float), hipMemcpyHostToDevice), "hipMemcpy");
      // [begin: launch]
      launch(w, w.stream(), {.blocks = producers + consumers, .threads = tile_rows}, matvec,
             ch.view(make_header("matvec", 0, rows, cols)), matrix<float const>{a, rows, cols, cols}, x, y);
      // [end: launch]
      w.check(w.stream());
      check_hip(hipMemcpy(got.data(), y, got.size() * sizeof(float), hipMemcpyDeviceToHost), "hipMemcpy");
      if (got != wanted) throw error(text("rank ", w.rank(), ", launch ", n, ": wrong y"));
    }
    std::printf("rank %d: %d launches, all of y right\n", w.rank(), launches);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
