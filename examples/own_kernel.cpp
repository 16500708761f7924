// A custom fused kernel: a matrix that is spread over the ranks is summed column by column on every rank, while its
// tiles travel.
//
//   rank r                                      every rank p
//   pushers    a[r]: tile t --- data, flag ----> inbox: source r, tile t
//   consumers                                    wait for (source, tile), add it to their columns
//
// Deadlock: pushers wait for nothing, and launch() accepts only grids whose blocks are all resident.
// Reuse of the inbox: the channel's business. See <fusewire/device/channel_view.hpp>.
//
//   example_own_kernel [ranks]                    ranks are threads, which may share a GPU; default: 4
//   scripts/run-ranks -n 4 example_own_kernel     ranks are processes
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

constexpr int tile_rows = 16, cols = 256;
constexpr int pushers = 4, consumers = 2;  // blocks
constexpr int launches = 5;

// a: [rows, cols] of this rank; sums: [cols]
__global__ void sum_columns(channel_view ch, matrix<float const> a, float* sums) {
  block const b;
  channel_epoch const e = ch.begin(b);
  int const ranks = ch.world.size(), tiles = a.rows / tile_rows;
  auto const inbox = [&](int peer, int source, int t) {
    return matrix<float>{e.inbox<float>(peer) + std::int64_t(source * tiles + t) * tile_rows * cols, tile_rows, cols,
                         cols};
  };
  if (b.index() < pushers) {
    for (int i = b.index(); i < tiles * ranks; i += pushers) {
      int const t = i / ranks, peer = ch.world.next(i % ranks);  // this rank first, then its neighbours
      copy(b, a.submatrix(t * tile_rows, 0, tile_rows, cols), inbox(peer, ch.world.rank(), t));
      e.signal(b, peer, t);
    }
  } else {
    int const share = cols / consumers, first = (b.index() - pushers) * share;
    for (int c = first + b.rank(); c < first + share; c += b.size()) sums[c] = 0;
    for (int source = 0; source < ranks; ++source)  // in fixed order: the same bits on every rank and in every run
      for (int t = 0; t < tiles; ++t) {
        e.wait(b, source, t);
        auto const tile = inbox(ch.world.rank(), source, t);
        for (int c = first + b.rank(); c < first + share; c += b.size())
          for (int r = 0; r < tile_rows; ++r) sums[c] += tile(r, c);
      }
  }
  e.end(b);  // the credit for two launches from now; the last block advances the epoch
}

int main(int argc, char** argv) try {
  constexpr int rows = 64;
  run(ranks_of(argc, argv).value_or(4), [&](world& w) {
    requirements const needs =
        channel::requirements(w.size(), {.max_bytes = std::size_t(w.size()) * rows * cols * sizeof(float),
                                         .flags_per_source = rows / tile_rows}) +
        requirements::of<float>(rows * cols) + requirements::of<float>(cols);
    heap heap(w, needs);
    channel ch(heap, needs);
    auto const a = heap.allocate<float>(rows * cols), sums = heap.allocate<float>(cols);

    for (int launch_number = 0; launch_number < launches; ++launch_number) {
      std::vector<float> mine(rows * cols), wanted(cols), got(cols);
      for (int rank = 0; rank < w.size(); ++rank)
        for (int i = 0; i < rows * cols; ++i) {
          float const x = float((rank * 7 + i * 3 + launch_number) % 11);
          wanted[std::size_t(i % cols)] += x;
          if (rank == w.rank()) mine[std::size_t(i)] = x;
        }
      auto const bytes_of = [](auto const& v) { return v.size() * sizeof(v[0]); };
      check_hip(hipMemcpyAsync(heap.view().here(a), mine.data(), bytes_of(mine), hipMemcpyHostToDevice, w.stream()),
                "hipMemcpyAsync");

      launch(w, w.stream(), {.blocks = pushers + consumers, .threads = 256}, sum_columns,
             ch.view(make_header("sumcols", 0, rows, cols)), matrix<float const>{heap.view().here(a), rows, cols, cols},
             heap.view().here(sums));

      // Before the copy: one into pageable memory must not wait behind a kernel that waits for other ranks
      w.check(w.stream());
      check_hip(hipMemcpyAsync(got.data(), heap.view().here(sums), bytes_of(got), hipMemcpyDeviceToHost, w.stream()),
                "hipMemcpyAsync");
      check_hip(hipStreamSynchronize(w.stream()), "hipStreamSynchronize");
      if (got != wanted) throw error(text("rank ", w.rank(), ", launch ", launch_number, ": wrong sums"));
    }
    std::printf("rank %d on device %d: %d launches, all sums right\n", w.rank(), w.device(), launches);
  });
  std::puts("passed");
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
