// find_shard(): the place of its shard that a peer announces, and announcements that must be refused.
#include <fusewire/comm/all_gather/find_shard.hpp>

#include "support.hpp"

using namespace fusewire;
using namespace support;

namespace {

/// Whether the next rank's shard may be read, and if so whether its first and last element are in the rank's memory.
template <class = void>
__global__ void look_for_shard(channel_view ch, gather_map map, int* found, int* inside) {
  block const b;
  channel_epoch const e = ch.begin(b);
  matrix<bf16 const> shard;
  int const source = ch.world.next(1);
  bool const there = find_shard(b, e, ch.world, map, source, shard);
  if (b.leader()) *found = there;
  auto const* const begin = reinterpret_cast<bf16 const*>(ch.world.bulk[source]);
  if (b.leader())
    *inside = !there || (&shard(0, 0) >= begin &&
                         &shard(shard.rows - 1, shard.cols - 1) < begin + ch.world.bulk_bytes / sizeof(bf16));
  e.pull().acknowledge(b, source, 1);
  e.pull().acknowledge_nothing(b, ch.world.rank());
  e.pull().wait_acknowledged(b);
  e.end(b);
}

}  // namespace

TEST_CASE("find_shard: words that lead outside of the peer's memory are not followed", "[ag_gemm][errors]") {
  on_ranks(2, [](rank_of_test& r) {
    int const m = 5, k = 32;
    gather_map const map{gather::k, m, k, 2, 128, 64};
    channel ch(r.heap, {.max_bytes = 1, .flags_per_source = 1});
    std::uint64_t const end = r.heap.view().bulk_bytes, cols = 16, shard = ((m - 1) * cols + cols) * 2;
    struct words {
      std::uint64_t offset, ld;
      bool good;
    };
    auto const found = r.heap.allocate<int>(1);
    auto const inside = r.heap.allocate<int>(1);
    for (words const w : {words{0, cols, true},
                          {end - shard, cols, true},
                          {end - shard + 16, cols, false},
                          {end, cols, false},
                          {end + 16, cols, false},
                          {std::uint64_t(0) - 16, cols, false},
                          {8, cols, false},
                          {0, cols - 8, false},
                          {0, cols + 4, false},
                          {0, 0, false},
                          {0, end / 8, false},
                          {0, std::uint64_t(1) << 63, false},
                          {0, std::uint64_t(0) - 8, false}}) {
      launch_header h = make_header("look", 0);
      h.mine[0] = w.offset;
      h.mine[1] = w.ld;
      r.launch({1, 2 * wave::width}, look_for_shard<>, ch.view(h), map, r.here(found), r.here(inside));
      r.world.check(r.stream);
      r.found.expect(r.download(found)[0] == int(w.good), "offset ", w.offset, ", ld ", w.ld, ": ",
                     w.good ? "refused" : "accepted");
      r.found.expect(r.download(inside)[0] == 1, "offset ", w.offset, ", ld ", w.ld, ": outside of the rank's memory");
    }
  });
}
