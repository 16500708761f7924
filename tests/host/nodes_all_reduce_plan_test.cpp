// The plan of an all-reduce over nodes: chunks cover the array, and what the operator says that it needs holds every
// call within its options.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/ops/nodes_all_reduce.hpp>

#include <random>

using namespace fusewire;

TEST_CASE("nodes_all_reduce: plans") {
  CHECK(nodes_all_reduce_plan::of(0, 4).chunks == 0);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    int const near = 1 + int(random() % 8), nodes = 1 + int(random() % 8);
    std::int64_t const most = 1 + std::int64_t(random() >> random() % 32), count = 1 + std::int64_t(random()) % most;
    CAPTURE(near, nodes, most, count);
    auto const p = nodes_all_reduce_plan::of(count * 2, near);
    bool ok = p.chunks >= 1 && p.chunks <= nodes_all_reduce_plan::max_chunks &&
              p.chunk % nodes_all_reduce_plan::granule == 0 && std::int64_t(p.segment()) * near * 16 >= count * 2;
    // No chunk of a rank's segment lies behind a whole segment
    ok &= std::int64_t(p.chunks - 1) * p.chunk * near * 16 < count * 2;
    auto const o = nodes_all_reduce<bf16>::channel_for(nodes, near, {.max_count = most});
    ok &= std::uint64_t(p.slot_bytes(near, nodes, 2)) <= o.max_bytes && 2 * p.chunks <= o.flags_per_source;
    if (!ok) FAIL_CHECK("a wrong plan");
  }
}
