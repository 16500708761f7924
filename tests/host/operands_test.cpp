// Whether operands of a call overlap, against a model that looks at every byte.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/launch/operands.hpp>

#include <random>
#include <vector>

using namespace fusewire;
using detail::operand, detail::overlap;

namespace {

/// Bytes of both lie in one buffer.
bool overlap_bytewise(operand const& x, operand const& y, std::byte const* buffer) {
  std::vector<bool> used(4096, false);
  for (std::uint64_t r = 0; r < x.rows; ++r)
    for (std::uint64_t i = 0; i < x.row; ++i)
      used[std::size_t(static_cast<std::byte const*>(x.data) - buffer) + r * x.pitch + i] = true;
  for (std::uint64_t r = 0; r < y.rows; ++r)
    for (std::uint64_t i = 0; i < y.row; ++i)
      if (used[std::size_t(static_cast<std::byte const*>(y.data) - buffer) + r * y.pitch + i]) return true;
  return false;
}

}  // namespace

TEST_CASE("operands: what overlaps is found, and parts of one matrix side by side do not") {
  static std::byte buffer[4096];
  std::mt19937 random(4);
  auto const below = [&](std::uint64_t n) { return random() % n; };
  int apart = 0, together = 0, beside = 0;
  for (int i = 0; i < 20000; ++i) {
    std::uint64_t const pitch = 8 + below(40);
    auto const make = [&](std::uint64_t p) {
      return operand{"x", buffer + below(1000), 1 + below(8), 1 + below(p), p};
    };
    operand const x = make(pitch), y = make(pitch);
    bool const found = overlap(x, y);
    REQUIRE(found == overlap(y, x));
    if (overlap_bytewise(x, y, buffer)) REQUIRE(found);
    // One pitch: rows that would overlap if there were more of them are refused, too.
    operand longer_x = x, longer_y = y;
    longer_x.rows = longer_y.rows = 60;
    bool const intersect = x.begin() < y.end() && y.begin() < x.end();
    REQUIRE(found == (intersect && overlap_bytewise(longer_x, longer_y, buffer)));
    ++(found ? together : intersect ? beside : apart);
    operand const other = make(pitch + 1);
    REQUIRE(overlap(x, other) == (x.begin() < other.end() && other.begin() < x.end()));
  }
  CHECK(apart > 1000);
  CHECK(together > 1000);
  CHECK(beside > 100);
  CHECK_FALSE(overlap({"none", nullptr, 5, 5, 5}, {"all", buffer, 5, 5, 5}));
  CHECK_FALSE(overlap({"no rows", buffer, 0, 5, 5}, {"all", buffer, 5, 5, 5}));
}

TEST_CASE("operands: extents of more than 32 bits") {
  std::uint64_t const gib = 1 << 30;
  auto const at = [](std::uint64_t a) { return reinterpret_cast<void const*>(a); };
  operand const x{"x", at(gib), gib, 64, 64};
  CHECK(overlap(x, {"y", at(gib + 64 * gib - 1), 1, 1, 1}));
  CHECK_FALSE(overlap(x, {"y", at(gib + 64 * gib), 1, 1, 1}));
}
