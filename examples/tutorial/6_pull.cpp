// Tutorial, step 6: a pull. Ranks read each other's own arrays, tile by tile, and blocks draw tiles when they are free.
//
//   rank r, block                                    rank p
//   begin_readable, for p to read                    begin_readable: p's array is there to be read
//   wait_begun(p) <---------------------- header ---
//   while a tile is left: sum += p's tile <--------- (loads by r's threads)
//   acknowledge(p) --------------------------------> wait_acknowledged: p may change its array
//
// Deadlock: headers are sent before anything is waited for, and launch() takes only grids whose blocks all run
// concurrently.
#include <fusewire/fusewire.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int tile = 64, tiles = 12, count = tile * tiles, launches = 4;

// [begin: kernel]
__global__ void sum_arrays(channel_view ch, sym<float> array, float* sum) {
  __shared__ int word;
  block const b;  // of `tile` threads
  channel_epoch const e = ch.begin_readable(b);
  channel_pull const pull = e.pull();
  world_view const& w = ch.world;
  bool begun = true;
  for (int r = 0; r < w.size(); ++r) begun &= pull.wait_begun(b, r);
  for (int t = e.next(b, &word); t < tiles; t = e.next(b, &word)) {  // the next tile that no block has claimed
    int const i = t * tile + b.rank();
    float all = 0;
    if (begun)
      for (int r = 0; r < w.size(); ++r) all += load(w.on(r, array) + i);
    sum[i] = all;
  }
  for (int r = 0; r < w.size(); ++r) pull.acknowledge(b, r, unsigned(b.count()));  // each block has done its part
  if (b.index() == 0) pull.wait_acknowledged(b);
  e.end(b);
}
// [end: kernel]

float value(int rank, int i, int n) { return float((rank * 5 + i * 3 + n) % 11); }

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    requirements const needs =
        channel::requirements(w.size(), {.max_bytes = 1, .flags_per_source = 1}) + 2 * requirements::of<float>(count);
    heap heap(w, needs);
    channel ch(heap, needs);
    auto const array = heap.allocate<float>(count), sum = heap.allocate<float>(count);
    for (int n = 0; n < launches; ++n) {
      std::vector<float> mine(count), wanted(count);
      for (int i = 0; i < count; ++i) {
        mine[std::size_t(i)] = value(w.rank(), i, n);
        for (int r = 0; r < w.size(); ++r) wanted[std::size_t(i)] += value(r, i, n);
      }
      heap.upload(array, mine);
      // [begin: launch]
      launch(w, w.stream(), {.blocks = std::max(3, w.xcd_count()), .threads = tile}, sum_arrays,
             ch.view(make_header("pull", 0, tiles)), array, heap.here(sum));
      // [end: launch]
      w.check(w.stream());
      if (heap.download(sum) != wanted) throw error(text("rank ", w.rank(), ", launch ", n, ": wrong sums"));
    }
    std::printf("rank %d: %d launches, all sums right\n", w.rank(), launches);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
