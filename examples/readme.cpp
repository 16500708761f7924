// README.md's kernel as a whole program.
//
//   example_readme [ranks]                       ranks are threads; default: one per GPU
//   scripts/run-ranks -n 4 example_readme        ranks are processes
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace fusewire;

// Every rank sends its tiles to the next rank, which adds them to its own as they come.
__global__ void ring_sum(channel_view ch, float const* mine, float* sum, int tiles) {
  block b;
  auto e = ch.begin(b);  // this launch's epoch: inbox slot and flags
  for (int t = b.index(), n = b.size(); t < tiles; t += b.count()) {
    copy(b, mine + t * n, e.inbox<float>(ch.world.next(1)) + t * n, n);  // remote memory is memory
    e.signal(b, ch.world.next(1), t);                                    // release: this tile is there
    e.wait(b, ch.world.next(ch.world.size() - 1), t);                    // acquire: so is the previous rank's
    sum[t * n + b.rank()] = mine[t * n + b.rank()] + e.inbox<float>()[t * n + b.rank()];
  }
  e.end(b);  // no barrier, no reset: two slots and credits
}

int main(int argc, char** argv) {
  int const ranks = argc > 1 ? std::atoi(argv[1]) : device_count();
  run(ranks, [](world& w) {  // a thread per rank; started by torchrun, a process per rank
    auto const needs =
        channel::requirements(w.size(), {.max_bytes = 4096, .flags_per_source = 4}) + 2 * requirements::of<float>(1024);
    heap h(w, needs);  // nobody adds up bytes by hand
    channel ch(h, needs);
    float *mine = h.view().here(h.allocate<float>(1024)), *sum = h.view().here(h.allocate<float>(1024));
    std::vector<float> values(1024, 1 + w.rank());
    check_hip(hipMemcpy(mine, values.data(), 4096, hipMemcpyHostToDevice), "hipMemcpy");
    launch(w, w.stream(), {.blocks = 4, .threads = 256}, ring_sum, ch.view(make_header("ring", 0)), mine, sum, 4);
    w.check(w.stream());  // waits; throws if a rank did not come
    check_hip(hipMemcpy(values.data(), sum, 4096, hipMemcpyDeviceToHost), "hipMemcpy");
    std::printf("rank %d: %g\n", w.rank(), values[0]);  // of two ranks 3: the 1 of rank 0 and the 2 of rank 1
  });
}
