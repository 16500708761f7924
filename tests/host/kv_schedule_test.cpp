// How Flash Decode divides the KV of a batch: plain arithmetic, for the policies of both architectures.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/attention/head_partition.hpp>
#include <fusewire/attention/kv_schedule.hpp>

#include <algorithm>
#include <climits>
#include <numeric>
#include <vector>

using namespace fusewire;

namespace {

constexpr decode_policy with(int blocks_per_cu, int spare_blocks) {
  decode_policy p{};
  p.blocks_per_cu = blocks_per_cu;
  p.spare_blocks = spare_blocks;
  return p;
}
constexpr decode_policy spare = with(2, 1), all = with(8, 0);

kv_schedule schedule(decode_shape const& s, decode_policy const& p, decode_occupancy const& o, int ranks = 8) {
  return kv_schedule::of(s, ranks, p, o);
}

}  // namespace

TEST_CASE("kv_schedule: no more blocks than run concurrently, than a CU may have, or than there is work for") {
  decode_shape const large{64, 4096, 8, {8, 128}}, small{1, 300, 2, {8, 128}};
  CHECK(schedule(large, all, {132, 264}).blocks == 264);
  CHECK(schedule(large, all, {132, 2000}).blocks == 1056);
  CHECK(schedule(large, spare, {132, 2000}).blocks == 264);
  CHECK(schedule(small, all, {132, 264}).blocks == 6);  // three units of each head
  CHECK(schedule(small, spare, {132, 264}).blocks == 7);
  decode_shape const long_one{1, 1 << 20, 1, {1, 64}};
  CHECK(schedule(long_one, all, {304, INT_MAX}).blocks == decode_lengths::max_blocks(1));
  CHECK(schedule(long_one, spare, {304, INT_MAX}).blocks == decode_lengths::max_blocks(1) + 1);
  CHECK(schedule({1, 0, 1, {1, 64}}, all, {132, 264}).blocks == 1);  // an empty head item has a unit, too
}

TEST_CASE("kv_schedule: a spare block has no tokens, unless there is one block alone") {
  decode_shape const s{4, 1000, 2, {4, 64}};
  CHECK(schedule(s, spare, {100, 1}).attending == 1);
  CHECK(schedule(s, spare, {100, 2}).attending == 1);
  CHECK(schedule(s, spare, {100, 3}).attending == 2);
  CHECK(schedule(s, all, {100, 3}).attending == 3);
}

TEST_CASE("kv_schedule: two shots for large results of many ranks") {
  decode_shape s{1, 1000, 8, {8, 128}};
  CHECK_FALSE(schedule(s, all, {132, 264}).two_shot);
  s.batch = 16;
  CHECK(schedule(s, all, {132, 264}).two_shot);
  CHECK_FALSE(schedule(s, all, {132, 264}, 2).two_shot);
  CHECK_FALSE(schedule(s, all, {132, 264}, 1).two_shot);
}

TEST_CASE("decode_lengths: lengths are clamped, and a part of a unit counts as one") {
  std::int32_t const tokens[] = {-5, 0, 1, 128, 129, 1000, 1001, INT_MAX};
  decode_lengths const l(tokens, 8, 1000, 1, 4);
  std::vector<int> of, units;
  for (int s = 0; s < l.batch; ++s) {
    of.push_back(l.of(s));
    units.push_back(l.units_of(of.back()));
  }
  CHECK(of == std::vector{0, 0, 1, 128, 129, 1000, 1000, 1000});
  CHECK(units == std::vector{1, 1, 1, 1, 2, 8, 8, 8});
}

TEST_CASE("decode_lengths: the blocks' ranges hold all units, and are no longer than needed") {
  int const batch = GENERATE(1, 2, 5, 33), kv_heads = GENERATE(1, 3, 8), blocks = GENERATE(1, 7, 64, 263);
  bool const alike = GENERATE(false, true);
  std::vector<int> units;
  for (int s = 0; s < batch; ++s) units.push_back(alike ? 9 : 1 + s * s % 23);
  decode_lengths const l(nullptr, batch, 1 << 20, kv_heads, blocks);
  int const longest = *std::ranges::max_element(units),
            total = std::accumulate(units.begin(), units.end(), 0) + batch * l.switch_cost;
  kv_partition const p = l.partition(longest, total);
  CAPTURE(batch, kv_heads, blocks, alike, p.length, p.switch_cost);
  CHECK(p.length >= 1);
  CHECK(p.length <= ceil_div(total * kv_heads, blocks));
  if (p.aligned) {
    // Every head item has the same blocks, or every block whole head items; the last one's switch may be left over
    int const of_item = longest + p.switch_cost;
    CHECK((of_item % p.length == 0 || p.length % of_item == 0));
    CHECK(std::int64_t(p.length) * blocks >= std::int64_t(batch) * kv_heads * of_item - p.switch_cost);
  } else {
    CHECK(p.switch_cost == decode_lengths::switch_cost);
    CHECK(p.length * blocks >= total * kv_heads);
  }
  CHECK((!p.aligned || batch == 1 || alike));
}

TEST_CASE("decode_lengths: a window leaves out what lies before it, at most all") {
  std::int32_t const tokens[] = {300, 300, 300, 300, -2}, outside[] = {-1, 0, 45, INT_MAX, 7};
  decode_lengths l(tokens, 5, 1000, 1, 4);
  CHECK(l.units_at(2) == 3);
  l.outside = outside;
  std::vector<int> left_out, units;
  for (int s = 0; s < l.batch; ++s) {
    left_out.push_back(l.left_out(s, l.of(s)));
    units.push_back(l.units_at(s));
  }
  CHECK(left_out == std::vector{0, 0, 45, 300, 0});
  CHECK(units == std::vector{3, 3, 2, 1, 1});
}

TEST_CASE("decode_lengths: pieces are no shorter than a switch costs, and no more than are wanted") {
  decode_policy p = spare;
  p.most_cus = 304;
  CHECK(decode_lengths::pieces_that_pay({1, 1 << 20, 8, {8, 128}}, p) == 37);
  CHECK(decode_lengths::pieces_that_pay({1, 1 << 20, 1000, {1, 128}}, p) == 1);
  CHECK(decode_lengths::pieces_that_pay({1, 10 * 128, 1, {8, 128}}, p) == 3);
  int const most = GENERATE(1, 3, 37);
  decode_lengths l(nullptr, 1, 1 << 20, 1, 1);
  l.pieces = most;
  for (int units = 1; units < 300; ++units) {
    CAPTURE(most, units);
    int const of_piece = l.piece_of(units);
    CHECK(of_piece >= decode_lengths::switch_cost);
    CHECK(ceil_div(units, of_piece) <= most);
    CHECK(of_piece <= std::max(decode_lengths::switch_cost, ceil_div(units, most)));
  }
}

TEST_CASE("head_partition: every head has the owner whose range it lies in") {
  int const heads = GENERATE(1, 2, 7, 8, 9, 96, 128), ranks = GENERATE(1, 2, 3, 5, 8);
  CAPTURE(heads, ranks);
  head_partition const p(heads, ranks);
  int next = 0;
  for (int r = 0; r < ranks; ++r) {
    index_range const own = p.of(r);
    CHECK(own.begin == next);
    CHECK((own.size() == heads / ranks || (own.size() == heads / ranks + 1 && r < heads % ranks)));
    for (int head = own.begin; head < own.end; ++head) CHECK(p.owner(head) == r);
    next = own.end;
  }
  CHECK(next == heads);
}

TEST_CASE("decode_record: every word of a result has one place") {
  int const heads = GENERATE(1, 3, 16), d = GENERATE(64, 96, 128, 192, 256);
  decode_record const r{heads, d};
  std::vector<int> words(static_cast<std::size_t>(r.words()));
  for (int i = 0; i < r.vec4s(); ++i)
    for (int j = 0; j < (r.begins_head(i) ? 6 : 4); ++j) ++words[static_cast<std::size_t>(r.word(i, j))];
  CHECK(std::count(words.begin(), words.end(), 1) == r.used());
  CHECK(std::count(words.begin(), words.end(), 0) == r.words() - r.used());
}
