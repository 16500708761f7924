// Ranks pass a message around a ring, inside one kernel each: store the data at the neighbour, raise a flag there, wait
// for one's own.
//
//   rank 0 --- data, flag ---> rank 1 --- data, flag ---> ... ---> rank W-1 --- data, flag ---> rank 0
//
//   example_message_passing [ranks]                  ranks are threads, which may share a GPU; default: 4
//   scripts/run-ranks -n 4 example_message_passing   ranks are processes
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

constexpr int words = 1024;

/// Rank 0 starts with 0, 1, 2, ...; every rank adds 1 to each word and sends the message on, until it is back at rank
/// 0.
__global__ void pass_on(world_view w, sym<int> inbox, sym<flag> arrived) {
  block const b;
  int const to = w.next(1), from = w.next(w.size() - 1);
  if (w.rank() != 0) wait(b, w, w.here(arrived), 1, from);  // the message is here, for every thread of the block
  // Remote memory is memory
  for (int i = b.rank(); i < words; i += b.size()) w.on(to, inbox)[i] = (w.rank() == 0 ? i : w.here(inbox)[i]) + 1;
  signal(b, w.on(to, arrived), 1);  // after the data of all threads
  if (w.rank() == 0) wait(b, w, w.here(arrived), 1, from);
}

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [&](world& w) {
    heap heap(w, requirements::of<int>(words) + requirements::of<flag>(1));  // collective, as are allocations
    auto const inbox = heap.allocate<int>(words);
    auto const arrived = heap.allocate<flag>(1);  // starts at 0

    launch(w, w.stream(), {.blocks = 1, .threads = 256}, pass_on, heap.view(), inbox, arrived);
    // Throws wait_timeout, naming the flag, if a message never came
    w.check(w.stream());

    std::vector<int> got(words);
    check_hip(
        hipMemcpyAsync(got.data(), heap.view().here(inbox), words * sizeof(int), hipMemcpyDeviceToHost, w.stream()),
        "hipMemcpyAsync");
    check_hip(hipStreamSynchronize(w.stream()), "hipStreamSynchronize");
    int const hops = w.rank() == 0 ? w.size() : w.rank();
    for (int i = 0; i < words; ++i)
      if (got[std::size_t(i)] != i + hops)
        throw error(text("rank ", w.rank(), ": word ", i, " is ", got[std::size_t(i)], " after ", hops, " hops"));
    std::printf("rank %d on device %d: the message came after %d hop%s\n", w.rank(), w.device(), hops,
                hops == 1 ? "" : "s");
  });
  std::puts("passed");
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
