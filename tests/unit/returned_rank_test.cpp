// What a report says of a rank that has returned, while others wait for it.
#include "faults.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

__global__ void wait_for_last(channel_view ch) {
  block const b;
  auto const e = ch.begin(b);
  e.wait(b, ch.world.size() - 1, b.index());
  e.end(b);
}

std::size_t times(std::string const& s, std::string const& piece) {
  std::size_t n = 0;
  for (auto at = s.find(piece); at != s.npos; at = s.find(piece, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("report: a rank that has returned is named by those who wait for it, and one launch is described once") {
  needs_threads("processes do not know who has returned");
  if (reports_races()) SKIP("a missing signal is a race");
  bool const returns = GENERATE(true, false);
  constexpr int ranks = 3, last = ranks - 1, blocks = 2;
  auto const verdicts = on_worlds(ranks, [&](world& w) {
    heap h(w, short_waits());
    channel ch(h, {.max_bytes = 64, .flags_per_source = blocks});
    load_kernel(w, wait_for_last, 64);
    w.barrier();
    if (w.rank() == last) {
      if (!returns) w.barrier();  // it stays, and launches nothing
      return std::string();
    }
    std::string said;
    try {
      launch(w, w.stream(), {blocks, 64}, wait_for_last, ch.view(make_header("lonely", 77)));
      w.check(w.stream());
    } catch (error const& e) {
      said = e.what();
    }
    if (!returns) w.barrier();
    return said;
  });
  for (int r = 0; r < last; ++r) {
    std::string const& said = verdicts[std::size_t(r)];
    INFO(said);
    CHECK(contains(said, " for a flag from rank 2 ("));
    CHECK(contains(said, "; rank 2 has returned from its function, or left its world") == returns);
    CHECK(contains(said, "\n  after that, rank "));
    CHECK(times(said, "lonely (variant 77") == 1);
  }
}
