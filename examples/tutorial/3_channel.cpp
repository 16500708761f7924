// Tutorial, step 3: step 2, many times. A channel has the inbox and the flags, and nothing is reset between launches.
//
//   launch 1: slot 1   launch 2: slot 0   launch 3: slot 1   ...      each with its own inbox and flags
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int blocks = 4, threads = 256, words = blocks * threads, launches = 5;

// [begin: kernel]
__global__ void add_previous(channel_view ch, int const* mine, int* sum) {
  block const b;
  channel_epoch const e = ch.begin(b);  // which launch this is: its inbox, its flags
  int const to = ch.world.next(1), from = ch.world.next(ch.world.size() - 1);
  int const first = b.index() * threads;
  copy(b, mine + first, e.inbox<int>(to) + first, threads);
  e.signal(b, to, b.index());
  e.wait(b, from, b.index());
  int const i = first + b.rank();
  sum[i] = mine[i] + e.inbox<int>()[i];
  e.end(b);  // every block, last of all
}
// [end: kernel]

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    // [begin: host]
    requirements const needs =
        channel::requirements(w.size(), {.max_bytes = words * sizeof(int), .flags_per_source = blocks}) +
        2 * requirements::of<int>(words);
    heap heap(w, needs);
    channel ch(heap, needs);
    // [end: host]
    int *const mine = heap.view().here(heap.allocate<int>(words)), *const sum =
                                                                       heap.view().here(heap.allocate<int>(words));
    std::vector<int> values(words);
    for (int n = 1; n <= launches; ++n) {
      for (int i = 0; i < words; ++i) values[std::size_t(i)] = w.rank() * 1000 + n * i;
      check_hip(hipMemcpy(mine, values.data(), words * sizeof(int), hipMemcpyHostToDevice), "hipMemcpy");
      // [begin: launch]
      launch(w, w.stream(), {.blocks = blocks, .threads = threads}, add_previous, ch.view(make_header("addprev", 0)),
             mine, sum);
      // [end: launch]
      w.check(w.stream());
      check_hip(hipMemcpy(values.data(), sum, words * sizeof(int), hipMemcpyDeviceToHost), "hipMemcpy");
      int const from = heap.view().next(w.size() - 1);
      for (int i = 0; i < words; ++i)
        if (values[std::size_t(i)] != (w.rank() + from) * 1000 + 2 * n * i)
          throw error(text("rank ", w.rank(), ", launch ", n, ": sum ", i, " is ", values[std::size_t(i)]));
    }
    std::printf("rank %d: %d launches, all sums right\n", w.rank(), launches);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
