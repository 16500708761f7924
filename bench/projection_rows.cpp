// Every rank sends a row to all ranks and adds up what it gets: in LL words, and with a flag. Prints a
// line for each way. scripts/perf/rows.py runs it under fusewire-sim --time and writes the table of
// docs/writing_kernels.md.
#include "projection.hpp"

using namespace fusewire;
using namespace fusewire::projected;

namespace {

constexpr int ranks = 8;

enum class way { nothing, ll, flag };
constexpr char const* names[] = {"nothing", "ll", "flag"};

/// One block; words of the row are a multiple of 4.
template <way W>
__global__ void sum_rows(channel_view ch, ll_buffer_view inbox, int const* mine, int* sum, int words) {
  block const b;
  channel_epoch const e = ch.begin(b);
  world_view const& w = ch.world;
  if constexpr (W == way::ll) {
    ll_slot const slot(inbox, w, e.number());
    for (int j = b.rank(); j < words; j += b.size()) {
      int const x = mine[j];  // once: the compiler does not know that a send leaves it as it is
      for (int p = 0; p < ranks; ++p) slot.send(w.next(p), 0, j, x);
    }
    ll_reader read(e, w);
    for (int j = b.rank(); j < words; j += b.size()) {
      int all;
      do {
        std::uint64_t word[ranks];
        for (int r = 0; r < ranks; ++r) word[r] = ll_load(slot.from(r, 0) + j);
        platform::sched_barrier();
        all = 0;
        for (int r = 0; r < ranks; ++r) all += read.consume<int>(word[r], slot.from(r, 0) + j, r);
      } while (read.again());
      sum[j] = all;
    }
  }
  if constexpr (W == way::flag) {
    int4 const* const row = reinterpret_cast<int4 const*>(mine);
    for (int j = b.rank(); j < words / 4; j += b.size()) {
      int4 const x = row[j];
      for (int p = 0; p < ranks; ++p) e.inbox<int4>(w.next(p))[w.rank() * (words / 4) + j] = x;
    }
    signal_all(b, ranks, [&](int p) { return e.to(p, 0); }, e.number());
    e.wait(b, 0, ranks - 1, 0);
    for (int j = b.rank(); j < words / 4; j += b.size()) {
      int4 all{};
      for (int r = 0; r < ranks; ++r) {
        int4 const x = load(e.inbox<int4>() + r * (words / 4) + j);
        all.x += x.x, all.y += x.y, all.z += x.z, all.w += x.w;
      }
      reinterpret_cast<int4*>(sum)[j] = all;
    }
  }
  e.end(b);
}

/// us of one launch of ten.
template <way W>
double time_of(world& w, heap& h, stopwatch& watch, channel& ch, ll_buffer& inbox, int words, int threads) {
  auto const n = std::size_t(words);
  owned<int> const mine(h, h.allocate<int>(n)), sum(h, h.allocate<int>(n));
  std::vector<int> values(n), wanted(n);
  for (int j = 0; j < words; ++j) {
    values[std::size_t(j)] = 1000 * w.rank() + j;
    wanted[std::size_t(j)] = 1000 * ranks * (ranks - 1) / 2 + ranks * j;
  }
  h.upload(mine.get(), values);
  load_kernel(w, sum_rows<W>, threads);
  auto const several = [&](int count) {
    return stopwatch::slowest(watch.of_ranks([&] {
      for (int i = 0; i < count; ++i)
        launch(w, w.stream(), {.blocks = 1, .threads = threads}, sum_rows<W>, ch.view(make_header("rows", 0)),
               inbox.view(), h.here(mine.get()), h.here(sum.get()), words);
    }));
  };
  double const two = several(2), us = (several(12) - two) / 10;
  if (W != way::nothing && h.download(sum.get()) != wanted) throw error("wrong sums");
  return us;
}

template <way W>
void print_time(world& w, heap& h, stopwatch& watch, channel& ch, ll_buffer& inbox, int words, int threads) {
  double const us = time_of<W>(w, h, watch, ch, inbox, words, threads);
  if (w.rank() == 0) std::printf("%s %d %d %.2f\n", names[int(W)], words * 4, threads, us);
}

}  // namespace

/// projection_rows BYTES THREADS
int main(int argc, char** argv) try {
  int const words = argc > 2 ? std::atoi(argv[1]) / 4 : 0, threads = argc > 2 ? std::atoi(argv[2]) : 0;
  if (words < 4 || words % 4 != 0 || threads < 64 || threads > 1024) return 2;
  run(ranks, [&](world& w) {
    heap h(w, {.bulk = 16_MiB, .signal = 32_MiB});
    channel ch(h, {.max_bytes = std::size_t(ranks * words * 4), .flags_per_source = 1});
    ll_buffer inbox(ch, {.records = 1, .words = words});
    stopwatch watch(w, h);
    print_time<way::nothing>(w, h, watch, ch, inbox, words, threads);
    print_time<way::ll>(w, h, watch, ch, inbox, words, threads);
    print_time<way::flag>(w, h, watch, ch, inbox, words, threads);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
