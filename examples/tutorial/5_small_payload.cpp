// Tutorial, step 5: a small payload without a flag. Every rank sends its few numbers to all ranks, in LL words, of
// which each carries its launch; and the launch is a graph, replayed with other numbers.
//
//   rank r --- (value, stamp) in 8 bytes ---> record of r on every rank --polled until all stamps are right--> sum
//
// Deadlock: every thread sends before it waits, and launch() takes only grids whose blocks all run concurrently.
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int words = 256, replays = 4;

// [begin: kernel]
__global__ void sum_small(channel_view ch, ll_buffer_view inbox, float const* mine, float* sum) {
  block const b;  // of `words` threads: a word each
  channel_epoch const e = ch.begin(b);
  int const ranks = ch.world.size(), i = b.rank();
  ll_slot const slot(inbox, ch.world, e.number());
  for (int n = 0; n < ranks; ++n) slot.send(ch.world.next(n), 0, i, mine[i]);  // record 0, word i
  ll_reader read(e, ch.world);
  float all;
  do {
    all = 0;
    for (int source = 0; source < ranks; ++source) all += read(slot.word(slot.from(source), 0, i), source);
  } while (read.again());  // a word is not there yet
  sum[i] = all;
  e.end(b);
}
// [end: kernel]

float value(int rank, int i, int n) { return float((rank * 5 + i * 3 + n) % 11); }

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    // [begin: host]
    ll_buffer_options const o{.records = 1, .words = words, .name = "numbers"};
    requirements const needs = channel::requirements(w.size(), {.max_bytes = 1, .flags_per_source = 1}) +
                               ll_buffer::requirements(w.size(), o) + 2 * requirements::of<float>(words);
    heap heap(w, needs);
    channel ch(heap, needs);
    ll_buffer inbox(ch, o);
    // [end: host]
    auto const mine = heap.allocate<float>(words), sum = heap.allocate<float>(words);
    // [begin: graph]
    hipGraph_t graph;
    hipGraphExec_t step;
    w.barrier();  // ranks that are threads: nobody copies or synchronises while another one captures
    check_hip(hipStreamBeginCapture(w.stream(), hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
    launch(w, w.stream(), {.blocks = 1, .threads = words}, sum_small, ch.view(make_header("small", 0)), inbox.view(),
           static_cast<float const*>(heap.here(mine)), heap.here(sum));
    check_hip(hipStreamEndCapture(w.stream(), &graph), "hipStreamEndCapture");
    check_hip(hipGraphInstantiate(&step, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
    w.barrier();
    // [end: graph]
    for (int n = 0; n < replays; ++n) {
      std::vector<float> numbers(words), wanted(words);
      for (int i = 0; i < words; ++i) {
        numbers[std::size_t(i)] = value(w.rank(), i, n);
        for (int r = 0; r < w.size(); ++r) wanted[std::size_t(i)] += value(r, i, n);
      }
      heap.upload(mine, numbers);
      check_hip(hipGraphLaunch(step, w.stream()), "hipGraphLaunch");
      w.check(w.stream());  // waits; throws if a word did not come
      if (heap.download(sum) != wanted) throw error(text("rank ", w.rank(), ", replay ", n, ": wrong sums"));
    }
    check_hip(hipGraphExecDestroy(step), "hipGraphExecDestroy");
    check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
    std::printf("rank %d: %d replays, all sums right\n", w.rank(), replays);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
