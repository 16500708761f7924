// Worlds of one program that take turns: the worlds of split() and their parent on one stream; and memory of one's own,
// which threads tell each other.
#include "support.hpp"

using namespace support;

namespace {

/// Adds up `number` of all ranks.
__global__ void add_up(channel_view ch, int number, int* sum) {
  block const b;
  auto const e = ch.begin(b);
  if (b.rank() < ch.world.size()) store(e.inbox<int>(b.rank()) + ch.world.rank(), number);
  signal_all(b, ch.world.size(), [&](int p) { return e.to(p, 0); }, e.number());
  e.wait(b, 0, ch.world.size() - 1, 0);
  if (b.leader())
    for (int p = 0; p < ch.world.size(); ++p) *sum += load(e.inbox<int>() + p);
  e.end(b);
}

/// A heap, a channel and a sum, launched on a stream that need not be the world's.
struct adder {
  requirements needs;
  heap h;
  channel ch;
  int* sum;

  explicit adder(world& w)
      : needs(channel::requirements(w.size(), {.max_bytes = 256, .flags_per_source = 1}) + requirements::of<int>(1)),
        h(w, needs), ch(h, needs), sum(h.here(h.allocate<int>(1))) {
    check_hip(hipMemset(sum, 0, sizeof(int)), "hipMemset");
    load_kernel(w, add_up, 64);
  }
  void add(hipStream_t stream, int number) {
    launch(h.world(), stream, {.blocks = 1, .threads = 64}, add_up, ch.view(make_header("add_up", 0)), number, sum);
  }
  int result() {
    int x = 0;
    check_hip(hipMemcpy(&x, sum, sizeof x, hipMemcpyDeviceToHost), "hipMemcpy");
    return x;
  }
};

/// Stores this rank's number into memory that the next rank has of its own.
__global__ void store_into(world_view w, sym<flag> arrived, int* at_next, int* mine, int* out) {
  block const b;
  store(at_next + b.rank(), w.rank() * 1000 + b.rank());
  signal(b, w.on(w.next(1), arrived), 1);
  wait(b, w, w.here(arrived), 1, w.next(w.size() - 1));
  out[b.rank()] = load(mine + b.rank());
}

}  // namespace

TEST_CASE("world: split worlds and their parent take turns on one stream") {
  none_found_anything(on_worlds(GENERATE(4, 6, 8), [](world& w) {
    findings found;
    found.rank = w.rank();
    int const half = w.rank() % 2, turns = 6;
    world part = w.split(half);
    adder all(w), some(part);
    w.barrier();
    int wanted_all = 0, wanted_some = 0;
    for (int i = 0; i < turns; ++i) {
      all.add(w.stream(), w.rank() + i);
      for (int r = 0; r < w.size(); ++r) wanted_all += r + i;
      for (int n = 0; n <= half; ++n) {  // the halves need not launch equally often
        some.add(w.stream(), 10 * w.rank() + n);
        for (int r = half; r < w.size(); r += 2) wanted_some += 10 * r + n;
      }
    }
    w.check(w.stream());
    part.check(w.stream());
    found.expect(all.result() == wanted_all, "all: ", all.result(), ", wanted ", wanted_all);
    found.expect(some.result() == wanted_some, "its half: ", some.result(), ", wanted ", wanted_some);
    w.barrier();
    return found.summary();
  }));
}

TEST_CASE("world: threads store into memory of their own that they tell each other") {
  needs_threads("pointers mean nothing to other processes");
  on_ranks(GENERATE(1, 2, 5), [](rank_of_test& r) {
    constexpr int words = 64;
    int *mine = nullptr, *out = nullptr;
    check_hip(hipMalloc(reinterpret_cast<void**>(&mine), words * sizeof(int)), "hipMalloc");
    check_hip(hipMalloc(reinterpret_cast<void**>(&out), words * sizeof(int)), "hipMalloc");
    auto const arrived = r.heap.allocate<flag>(1);
    auto const theirs = r.world.exchange().all_gather(mine);
    r.launch({1, words}, store_into, r.view(), arrived, theirs[std::size_t(r.view().next(1))], mine, out);
    r.world.check(r.stream);
    auto const got = r.download(static_cast<int const*>(out), words);
    int const from = r.view().next(r.size() - 1);
    for (int i = 0; i < words; ++i)
      r.found.expect(got[std::size_t(i)] == from * 1000 + i, "word ", i, " is ", got[std::size_t(i)]);
    r.meet();
    check_hip(hipFree(mine), "hipFree");
    check_hip(hipFree(out), "hipFree");
  });
}
