// What a report says: of many blocks that waited, and of launches of two channels that are queued in crossed order.
#include <string>

#include <fusewire/memory/launch_report.hpp>

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

/// Device memory with the watch of one rank.
class watch_on_device {
 public:
  explicit watch_on_device(watch const& seen) {
    check_hip(hipMalloc(reinterpret_cast<void**>(&at_), sizeof seen), "hipMalloc");
    check_hip(hipMemcpy(at_, &seen, sizeof seen, hipMemcpyHostToDevice), "hipMemcpy");
  }
  watch_on_device(watch_on_device const&) = delete;
  watch_on_device& operator=(watch_on_device const&) = delete;
  ~watch_on_device() { (void)hipFree(at_); }
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(at_); }

 private:
  watch* at_ = nullptr;
};

/// What a rank notes whose blocks wait for flags `first`, `first` + 1, ... of rank `from`. Its first wait has expired
/// if `expired`, and every other one has ended because that did.
watch waits_in_vain(unsigned blocks, std::uint64_t first, int from, bool expired, unsigned gave_up) {
  watch w{};
  w.abandoned = 1 + gave_up, w.reported = 1, w.limit_ns = 500'000'000;
  w.launch[0] = make_header("ring", 0).what[0];
  for (unsigned i = 0; i < blocks; ++i)
    w.waits[i] = {.block = int(i),
                  .from = from,
                  .flag_offset = (first + i) * sizeof(flag),
                  .found = 0,
                  .wanted = 1,
                  .released = !(expired && i == 0),
                  .claimed = 1,
                  .complete = 1};
  return w;
}

}  // namespace

TEST_CASE("report: of many blocks eight are named, the earliest step and every rank first", "[faults]") {
  constexpr unsigned flags = 32;
  unsigned const blocks = GENERATE(1, 4, 9);
  watch const first = waits_in_vain(blocks, 4, 1, true, 0), second = waits_in_vain(blocks, 16, 0, false, 0);
  watch_on_device const on_first(first), on_second(second);
  name_table names;
  names.add_flags(0, flags, [](std::uint64_t i) { return text("flag ", i); });
  world_view view(0, 2);
  view.signal[0] = on_first.bytes(), view.signal[1] = on_second.bytes();
  detail::launch_report const report(view, names, [](int) { return false; });
  std::string const said = [&] {
    try {
      report.raise(report.watch_of(0, nullptr), nullptr, "");
    } catch (wait_timeout const& e) {
      return std::string(e.what());
    }
  }();
  INFO(said);
  CHECK(contains(first_line(said), "rank 0, block 0 of ring"));
  CHECK(contains(first_line(said), " for a flag from rank 1 (flag 4, "));
  unsigned named = 0;
  for (auto at = said.find(" for a flag"); at != said.npos; at = said.find(" for a flag", at + 1)) ++named;
  CHECK(named == std::min(2 * blocks, 8u));
  auto const lines = said.substr(said.find('\n'));
  CHECK(lines.starts_with("\n  after that, rank 1, block 0 waited, until rank 0 timed out"));
  CHECK(contains(said, text("\n  and ", 2 * blocks - 8, " more blocks")) == (2 * blocks > 8));
}

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
