// Devices of this vendor that are not a whole GPU: a partition of a GPU, or a GPU with a mask that leaves only some of
// its compute units.
#include "../support.hpp"

#include <cstdlib>

using namespace support;

namespace {

/// Every block waits for all of them: it returns only if all are co-resident.
__global__ void all_here(world_view w, sym<flag> counter, sym<unsigned> arrived, int blocks) {
  block b;
  if (b.leader()) {
    atomic_ref<unsigned> const all(w.on(0, arrived));
    if (all.fetch_add(1u) + 1 == unsigned(blocks))
      signal_all(thread{}, w.size(), [&](int r) { return w.on(r, counter); }, 1);
  }
  wait(b, w, w.here(counter), 1, 0);
}

/// Blocks of this many bytes have a compute unit each.
constexpr int unit_bytes = platform::max_shared_bytes / 2 + 1024;

struct masked_stream {
  explicit masked_stream(std::vector<std::uint32_t> const& mask) {
    check_hip(hipExtStreamCreateWithCUMask(&stream, std::uint32_t(mask.size()), mask.data()),
              "hipExtStreamCreateWithCUMask");
  }
  masked_stream(masked_stream const&) = delete;
  ~masked_stream() { (void)hipStreamDestroy(stream); }
  hipStream_t stream = nullptr;
};

}  // namespace

TEST_CASE("device: XCDs by the number of compute units, for a HIP that does not say") {
  STATIC_REQUIRE(platform::xcds_of(304) == 8);  // MI300X
  STATIC_REQUIRE(platform::xcds_of(152) == 4);  // in two partitions
  STATIC_REQUIRE(platform::xcds_of(76) == 2);
  STATIC_REQUIRE(platform::xcds_of(38) == 1);
  STATIC_REQUIRE(platform::xcds_of(228) == 6);  // MI300A
  STATIC_REQUIRE(platform::xcds_of(80) == 8);
  STATIC_REQUIRE(platform::xcds_of(4) == 4);
  STATIC_REQUIRE(platform::xcds_of(0) == 0);
  on_ranks(1, [](rank_of_test& r) {
    int xcds = 0, units = 0;
    check_hip(platform::xcd_count(&xcds, r.world.device()), "xcd_count");
    check_hip(hipDeviceGetAttribute(&units, hipDeviceAttributePhysicalMultiProcessorCount, r.world.device()),
              "hipDeviceGetAttribute");
    r.found.expect(units % 38 != 0 || platform::xcds_of(units) == xcds, units, " units in ", xcds, " XCDs");
  });
}

TEST_CASE("device: every XCD of a mask counts as the one with the fewest units") {
  constexpr std::uint32_t even[2] = {0xffffffff, 0xff}, uneven[2] = {0xff0f, 0x1}, one[2] = {0x10, 0}, none[2] = {};
  STATIC_REQUIRE(platform::fillable(even, 8) == 40);
  STATIC_REQUIRE(platform::fillable(even, 1) == 40);
  STATIC_REQUIRE(platform::fillable(uneven, 1) == 13);
  STATIC_REQUIRE(platform::fillable(uneven, 4) == 12);
  STATIC_REQUIRE(platform::fillable(uneven, 8) == 8);
  STATIC_REQUIRE(platform::fillable(one, 1) == 1);
  STATIC_REQUIRE(platform::fillable(one, 2) == 0);
  STATIC_REQUIRE(platform::fillable(none, 8) == 0);
}

TEST_CASE("device: a launch on a stream with a mask must fit what the mask leaves") {
  on_ranks(1, [](rank_of_test& r) {
    auto const counter = r.heap.allocate<flag>(1);
    auto const arrived = r.heap.allocate<unsigned>(1);
    int xcds = 0;
    check_hip(platform::xcd_count(&xcds, r.world.device()), "xcd_count");
    // Two units of each XCD, and three of the first.
    std::vector<std::uint32_t> all(10), mask(10);
    check_hip(hipExtStreamGetCUMask(nullptr, 10, all.data()), "hipExtStreamGetCUMask");
    std::vector<int> taken(static_cast<std::size_t>(xcds));
    for (int i = 0; i < 320; ++i)
      if ((all[std::size_t(i / 32)] >> i % 32 & 1) && taken[std::size_t(i % xcds)]++ < (i % xcds ? 2 : 3))
        mask[std::size_t(i / 32)] |= 1u << i % 32;
    int const fit = xcds == 1 ? 3 : 2 * xcds, units = r.world.compute_units();
    masked_stream const s(mask);
    r.found.expect(r.world.masked_units(s.stream) == units - fit, r.world.masked_units(s.stream), " units masked");
    r.found.expect(r.world.masked_units(r.stream) == 0 && r.world.masked_units(nullptr) == 0,
                   "units are masked where there is no mask");
    auto const start = [&](hipStream_t stream, int blocks) {
      r.fill(counter, 0);
      r.fill(arrived, 0);
      launch(r.world, stream, {blocks, 64, unit_bytes}, all_here, r.view(), counter, arrived, blocks);
      r.world.check(stream);
    };
    start(s.stream, fit);
    r.found.throws<bad_argument>(
        "one block too many",
        {text(fit + 1, " blocks of 64 threads"), text(fit, " fit concurrently on the ", fit, " of ", units), "mask",
         text(units - fit, " reserved units")},
        [&] { start(s.stream, fit + 1); });
    if (units > fit) start(r.stream, fit + 1);
    r.found.expect(resident_blocks(r.world, all_here, 64, unit_bytes, r.world.masked_units(s.stream)) == fit,
                   "masked units that are reserved");

    std::vector<std::uint32_t> const first_part_only(10, 0x01010101);
    masked_stream const lame(first_part_only);
    if (xcds == 8)
      r.found.throws<bad_argument>("a mask without a unit of some XCD", {"1 blocks", "0 fit concurrently on the 0 of"},
                                   [&] { start(lame.stream, 1); });
  });
}

TEST_CASE("device: a mask that HIP does not know of is refused") {
  needs_threads("sets an environment variable");
  ::setenv("HSA_CU_MASK", "0:0-7", 1);
  std::string said;
  try {
    run_local(2, [](world&) {});
  } catch (runtime_failure const& e) {
    said = e.what();
  }
  ::unsetenv("HSA_CU_MASK");
  CHECK(contains(said, "HSA_CU_MASK is set"));
  CHECK(contains(said, "ROC_GLOBAL_CU_MASK"));
  run_local(2, [](world&) {});
}

TEST_CASE("device: partitions of a GPU are devices of their own, as far as anybody can tell") {
  place a;
  std::snprintf(a.host, sizeof a.host, "here");
  std::snprintf(a.bus, sizeof a.bus, "0000:10:00.0");
  std::snprintf(a.uuid, sizeof a.uuid, "first");
  a.process[1] = 100;
  a.may_be_partition = 1;
  place sibling = a, twin = a, other_process = a, other_host = a;
  sibling.device = twin.device = 1;
  std::snprintf(sibling.uuid, sizeof sibling.uuid, "second");
  CHECK(same_device(a, a));
  CHECK_FALSE(same_device(a, sibling));
  CHECK_FALSE(same_device(a, twin));  // one process numbers its devices
  CHECK_FALSE(cannot_tell_apart(a, twin));

  other_process.process[1] = 101;
  CHECK(same_device(a, other_process));
  CHECK(cannot_tell_apart(a, other_process));
  CHECK_FALSE(same_device(sibling, other_process));
  CHECK_FALSE(cannot_tell_apart(sibling, other_process));
  a.may_be_partition = other_process.may_be_partition = 0;
  CHECK_FALSE(cannot_tell_apart(a, other_process));
  CHECK(same_device(a, other_process));

  std::snprintf(other_host.host, sizeof other_host.host, "there");
  CHECK_FALSE(same_device(a, other_host));
  CHECK_FALSE(cannot_tell_apart(a, other_host));
}
