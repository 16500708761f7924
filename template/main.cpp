// Every rank sends its tiles to the next rank, which adds them to its own as they come.
#include <fusewire/fusewire.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace fusewire;

__global__ void ring_sum(channel_view ch, float const* mine, float* sum, int tiles) {
  block b;
  auto e = ch.begin(b);
  int const n = b.size(), next = ch.world.next(1), previous = ch.world.next(ch.world.size() - 1);
  for (int t = b.index(); t < tiles; t += b.count()) {
    copy(b, mine + t * n, e.inbox<float>(next) + t * n, n);
    e.signal(b, next, t);
    e.wait(b, previous, t);
    sum[t * n + b.rank()] = mine[t * n + b.rank()] + e.inbox<float>()[t * n + b.rank()];
  }
  e.end(b);
}

constexpr int tiles = 4, tile = 256;

int main(int argc, char** argv) try {
  // Threads, of which several may share a GPU; under a launcher such as torchrun as many processes as it starts
  run(argc > 1 ? std::atoi(argv[1]) : 4, [](world& w) {
    requirements const needs =
        channel::requirements(w.size(), {.max_bytes = tiles * tile * sizeof(float), .flags_per_source = tiles}) +
        2 * requirements::of<float>(tiles * tile);
    heap h(w, needs);
    channel ch(h, needs);
    float *mine = h.view().here(h.allocate<float>(tiles * tile)), *sum = h.view().here(h.allocate<float>(tiles * tile));

    std::vector<float> values(tiles * tile, float(w.rank()));
    check_hip(hipMemcpy(mine, values.data(), values.size() * sizeof(float), hipMemcpyHostToDevice), "hipMemcpy");
    launch(w, w.stream(), {.blocks = tiles, .threads = tile}, ring_sum, ch.view(make_header("ring_sum", 0)), mine, sum,
           tiles);
    w.check(w.stream());  // waits for the kernel; throws, and says who waited for whom, if a rank did not come
    check_hip(hipMemcpy(values.data(), sum, values.size() * sizeof(float), hipMemcpyDeviceToHost), "hipMemcpy");

    float const wanted = float(w.rank() + (w.rank() + w.size() - 1) % w.size());
    for (float v : values)
      if (v != wanted) throw error(text("rank ", w.rank(), ": ", v, ", expected ", wanted));
    std::printf("rank %d: every sum is %g\n", w.rank(), double(wanted));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
