// The table of how gfx942 gathers A, and its rules, which are plain arithmetic.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/ops/detail/gather_regimes_gfx942.hpp>

using namespace fusewire;

TEST_CASE("gather_regimes_gfx942: sorted by rows, and a shape reaches each", "[ag_gemm_plan]") {
  for (gather const by : {gather::k, gather::m}) {
    int below = 0;  // the most rows of the regime before
    for (gather_regime const& r : gather_regimes_gfx942) {
      if (r.by != by) continue;
      CAPTURE(int(by), below, r.max_m);
      REQUIRE(below < r.max_m);
      CHECK(&gather_regime_gfx942(by, below + 1) == &r);
      CHECK(&gather_regime_gfx942(by, r.max_m) == &r);
      below = r.max_m;
    }
    CHECK(below == any_m);
  }
}

TEST_CASE("chunk_steps: a power of two or a whole shard, and one chunk for a sender that pushes as a whole",
          "[ag_gemm_plan]") {
  gather const by = GENERATE(gather::k, gather::m);
  int const m = GENERATE(1, 16, 17, 32, 33, 48, 64, 65, 96, 128, 1000, 8192), steps = GENERATE(1, 3, 4, 7, 27, 128),
            senders = GENERATE(1, 3, 8, 16);
  for (gather_regime const& r : {gather_regime_gfx942(by, m), pull_regime_gfx942}) {
    int const taken = chunk_steps(r, m, steps, senders);
    CAPTURE(int(by), m, steps, senders, r.chunk_bytes, taken);
    CHECK((taken == steps || std::has_single_bit(unsigned(taken))));
    CHECK(taken >= std::min(4, steps));
    CHECK(taken <= steps);
    if (!r.alternating) CHECK(ceil_div(steps, taken) <= senders);
  }
}

TEST_CASE("senders_beside_tiles: tiles take as many rounds as without senders, where some block is left",
          "[ag_gemm_plan]") {
  int const tiles = GENERATE(1, 224, 296, 300, 304, 305, 448, 600, 608), senders = GENERATE(1, 2, 16),
            inboxes = GENERATE(0, 1, 7, 8), fit = 304;
  int const left = senders_beside_tiles(senders, inboxes, tiles, fit) * inboxes;
  CAPTURE(tiles, senders, inboxes, left);
  CHECK(left <= senders * inboxes);
  CHECK((left >= inboxes && (inboxes == 0 || left > 0)));
  int const rounds = ceil_div(tiles, fit), free = fit - ceil_div(tiles, rounds);
  if (free >= inboxes) CHECK(left <= free);
  else CHECK(left == senders * inboxes);
}
