// When the records of LL words have their turn to be refreshed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/device/ll.hpp>

#include <algorithm>
#include <vector>

using namespace fusewire;

TEST_CASE("ll_turn: every record has its turn, whichever launches of a channel use the words") {
  unsigned const records = GENERATE(1u, 5u, 4096u, 10'000u), turns = std::max(records, 4096u);
  unsigned const every = GENERATE(1, 2, 3, 5, 7, 8, 12, 64, 96, 100, 127, 128, 129, 987, 1000, 1024, 4096);
  for (epoch_t const first : {epoch_t(0), epoch_t(1), (epoch_t(1) << 32) - 1000}) {
    std::vector<int> of(turns);
    for (unsigned n = 0; n < 32 * turns; ++n) ++of.at(ll_turn(first + epoch_t(n) * every, records));
    CAPTURE(records, every, first);
    REQUIRE(*std::ranges::min_element(of) > 0);
    REQUIRE(*std::ranges::max_element(of) < 100);  // 32 on average
  }
}

TEST_CASE("ll_turn: repeats after 2^32 launches, and not the epoch's slot alone decides") {
  for (epoch_t e = 0; e < 1000; ++e) CHECK(ll_turn(e, 5000) == ll_turn(e + (epoch_t(1) << 32), 5000));
  std::vector<int> both[2] = {std::vector<int>(8), std::vector<int>(8)};
  for (epoch_t e = 0; e < 1 << 20; ++e)
    if (unsigned const turn = ll_turn(e, 8); turn < 8) ++both[e % 2][turn];
  for (auto const& slot : both) CHECK(std::ranges::min_element(slot)[0] > 50);  // 128 on average
}

TEST_CASE("ll_stamp: stamps of one slot are equal 2^32 launches apart, and not before") {
  for (int bit = 1; bit < 32; ++bit) CHECK(detail::ll_stamp(1) != detail::ll_stamp(1 + (epoch_t(1) << bit)));
  CHECK(detail::ll_stamp(1) == detail::ll_stamp(1 + (epoch_t(1) << 32)));
  for (epoch_t e = 0; e < 4; ++e) CHECK(detail::ll_stamp(e) != 0);
}
