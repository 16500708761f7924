// Tutorial, step 1: every rank stores numbers into the memory of the next rank. The host says when they are there.
//
//   rank 0 --- 0, 1, 2, ... ---> rank 1 --- 1000, 1001, ... ---> rank 2 --- 2000, 2001, ... ---> ... ---> rank 0
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <vector>

#include "../command_line.hpp"

using namespace fusewire;

constexpr int words = 1024;

// [begin: kernel]
__global__ void store_at_next(world_view w, sym<int> inbox) {
  block const b;
  int* const there = w.on(w.next(1), inbox);  // the next rank's inbox: an ordinary pointer
  for (int i = b.rank(); i < words; i += b.size()) store(there + i, w.rank() * 1000 + i);
}
// [end: kernel]

int main(int argc, char** argv) try {
  // [begin: host]
  int const ranks = ranks_of(argc, argv).value_or(4);
  run(ranks, [](world& w) {                            // calls this on every rank
    heap heap(w, requirements::of<int>(words));        // memory that all ranks reach, with room for so many
    sym<int> const inbox = heap.allocate<int>(words);  // the same array on every rank
    launch(w, w.stream(), {.blocks = 1, .threads = 256}, store_at_next, heap.view(), inbox);
    w.check(w.stream());  // this rank's kernel has ended
    w.barrier();          // and so has every other rank's
    // [end: host]

    std::vector<int> got(words);
    check_hip(hipMemcpy(got.data(), heap.view().here(inbox), words * sizeof(int), hipMemcpyDeviceToHost), "hipMemcpy");
    int const from = heap.view().next(w.size() - 1);
    for (int i = 0; i < words; ++i)
      if (got[std::size_t(i)] != from * 1000 + i)
        throw error(text("rank ", w.rank(), ": word ", i, " is ", got[std::size_t(i)]));
    std::printf("rank %d has what rank %d stored\n", w.rank(), from);
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
