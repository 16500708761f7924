// What a report says of launches of two channels that are queued in crossed order.
#include <string>

#include "faults.hpp"

using namespace support;

namespace {

__global__ void meet_next(channel_view ch) {
  block const b;
  channel_epoch const e = ch.begin(b);
  (void)e.pull().wait_begun(b, ch.world.next(1));
  e.end(b);
}

std::string first_line(std::string const& s) { return s.substr(0, s.find('\n')); }

}  // namespace

TEST_CASE("report: of two channels' launches in crossed order, of which one fits, it says so", "[faults]") {
  heap_options waits = short_waits();
  waits.wait_limit = std::chrono::seconds(4);  // every process has launched by then, on a busy machine, too
  auto const verdicts = on_ranks(
      2,
      [&](rank_of_test& r) {
        channel a(r.heap, {.max_bytes = 64, .flags_per_source = 1}),
            b(r.heap, {.max_bytes = 64, .flags_per_source = 1});
        int const shared = platform::max_shared_bytes / 2 + 1024;
        int const all = resident_blocks(r.world, meet_next, 64, shared);
        hipStream_t second = nullptr;
        check_hip(hipStreamCreateWithFlags(&second, hipStreamNonBlocking), "hipStreamCreateWithFlags");
        r.meet();
        if (r.world.ranks_on_device() == 1) {
          bool const first_a = r.rank() == 0;
          // By hand: launch() has rules of its own for what may be queued
          meet_next<<<unsigned(all), 64, unsigned(shared), r.stream>>>(
              (first_a ? a : b).view(make_header(first_a ? "first" : "second", 0)));
          meet_next<<<unsigned(all), 64, unsigned(shared), second>>>(
              (first_a ? b : a).view(make_header(first_a ? "second" : "first", 0)));
          check_hip(hipGetLastError(), "kernel launch");
          check_hip(hipStreamSynchronize(second), "hipStreamSynchronize");
          r.world.exchange().all_gather(0);  // all blocks have reported
          r.note = verdict(r);
        }
        a.reset();
        check_hip(hipStreamDestroy(second), "hipStreamDestroy");
      },
      waits);
  if (verdicts[0].empty()) SKIP("ranks share a GPU, where a launch returns when it has ended");
  for (auto const& said : verdicts) {
    INFO(said);
    CHECK(
        contains(first_line(said), ". Ranks 0 and 1 wait for each other in launches of two channels (first (variant "));
    CHECK(contains(first_line(said), "; second (variant "));
    CHECK(contains(first_line(said), "queued in different orders, and do not fit concurrently?"));
  }
}
