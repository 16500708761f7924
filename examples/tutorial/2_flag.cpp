// Tutorial, step 2: every rank sends numbers to the next rank, which adds its own to them in the same kernel. A flag
// says that the numbers are there.
//
//   rank r:  mine --copy, signal--> rank r+1          rank r-1 --copy, signal--> inbox --wait--> sum = mine + inbox
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int blocks = 4, threads = 256, words = blocks * threads;

__global__ void add_previous(world_view w, sym<int> mine, sym<int> inbox, sym<flag> arrived, int* sum) {
  block const b;
  int const to = w.next(1), from = w.next(w.size() - 1);
  int const first = b.index() * threads;  // each block has its part of the numbers, and its own flag
  // [begin: signal]
  copy(b, w.here(mine) + first, w.on(to, inbox) + first, threads);
  signal(b, w.on(to, arrived) + b.index(), 1);  // after what all threads of this block have stored
  // [end: signal]
  // [begin: wait]
  wait(b, w, w.here(arrived) + b.index(), 1, from);  // what `from` stored before its signal is now here
  int const i = first + b.rank();
  sum[i] = w.here(mine)[i] + w.here(inbox)[i];
  // [end: wait]
}

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    // [begin: host]
    heap heap(w, 3 * requirements::of<int>(words) + requirements::of<flag>(blocks));
    auto const mine = heap.allocate<int>(words), inbox = heap.allocate<int>(words), sum = heap.allocate<int>(words);
    auto const arrived = heap.allocate<flag>(blocks);  // they start at 0
    // [end: host]
    std::vector<int> values(words);
    for (int i = 0; i < words; ++i) values[std::size_t(i)] = w.rank() * 1000 + i;
    check_hip(hipMemcpy(heap.view().here(mine), values.data(), words * sizeof(int), hipMemcpyHostToDevice),
              "hipMemcpy");
    // [begin: launch]
    launch(w, w.stream(), {.blocks = blocks, .threads = threads}, add_previous, heap.view(), mine, inbox, arrived,
           heap.view().here(sum));
    w.check(w.stream());  // throws wait_timeout, naming the flag and its rank, if a signal never came
    // [end: launch]
    check_hip(hipMemcpy(values.data(), heap.view().here(sum), words * sizeof(int), hipMemcpyDeviceToHost), "hipMemcpy");
    int const from = heap.view().next(w.size() - 1);
    for (int i = 0; i < words; ++i)
      if (values[std::size_t(i)] != (w.rank() + from) * 1000 + 2 * i)
        throw error(text("rank ", w.rank(), ": sum ", i, " is ", values[std::size_t(i)]));
    std::printf("rank %d has added what rank %d sent\n", w.rank(), from);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
