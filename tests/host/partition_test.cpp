// Slices follow each other without gaps and cover the extent, whatever the granule.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/partition.hpp>

#include <algorithm>
#include <vector>

using namespace fusewire;

static_assert(even_slice(10, 3, 0).size() == 4 && even_slice(10, 3, 2).begin == 7);
static_assert(ceil_slice(10, 3, 0).size() == 4 && ceil_slice(10, 3, 2).size() == 2);
static_assert(fixed_slice(10, 4, 2).size() == 2 && fixed_slice(10, 4, 3).size() == 0);

namespace {

int granules_of(index_range x, int granule) { return (x.size() + granule - 1) / granule; }

/// Requires what holds for slices of any kind.
void check_cover(std::vector<index_range> const& slices, int extent, int granule) {
  int end = 0;
  for (index_range const x : slices) {
    REQUIRE(x.begin == end);
    REQUIRE(x.size() >= 0);
    if (x.size() > 0) REQUIRE(x.begin % granule == 0);
    end = x.end;
  }
  REQUIRE(end == extent);
}

}  // namespace

TEST_CASE("even_slice: slices differ by at most one granule, the first ones being larger", "[partition]") {
  int const granule = GENERATE(1, 2, 3, 16);
  for (int extent = 0; extent <= 130; ++extent)
    for (int slices = 1; slices <= 20; ++slices) {
      std::vector<index_range> all;
      for (int i = 0; i < slices; ++i) {
        all.push_back(even_slice(extent, slices, i, granule));
        index_range const by_divisor = even_slice(extent, divisor(slices), i, granule);
        REQUIRE((by_divisor.begin == all.back().begin && by_divisor.end == all.back().end));
      }
      check_cover(all, extent, granule);
      int const most = granules_of(all.front(), granule), least = granules_of(all.back(), granule);
      REQUIRE(most - least <= 1);
      for (std::size_t i = 1; i < all.size(); ++i)
        REQUIRE(granules_of(all[i], granule) <= granules_of(all[i - 1], granule));
    }
}

TEST_CASE("ceil_slice: slices have the smallest size that suffices, until nothing is left", "[partition]") {
  int const granule = GENERATE(1, 2, 3, 16);
  for (int extent = 0; extent <= 130; ++extent)
    for (int slices = 1; slices <= 20; ++slices) {
      std::vector<index_range> all;
      for (int i = 0; i < slices; ++i) all.push_back(ceil_slice(extent, slices, i, granule));
      check_cover(all, extent, granule);
      int each = 0;
      while (each * slices < extent) each += granule;
      for (int i = 0; i < slices; ++i) {
        int const left = std::max(extent - i * each, 0);
        REQUIRE(all[std::size_t(i)].size() == std::min(each, left));
      }
    }
}

TEST_CASE("fixed_slice: slices of one size, and none behind the extent", "[partition]") {
  for (int extent = 0; extent <= 70; ++extent)
    for (int size = 1; size <= 70; ++size) {
      std::vector<index_range> all;
      for (int i = 0; i < 72; ++i) all.push_back(fixed_slice(extent, size, i));
      check_cover(all, extent, 1);
      for (int i = 0; i < extent / size; ++i) REQUIRE(all[std::size_t(i)].size() == size);
    }
}

TEST_CASE("slices of the largest extents", "[partition]") {
  constexpr int most = 2147483647;
  int const slices = GENERATE(1, 2, 3, 7, 8);
  std::vector<index_range> even, equal;
  for (int i = 0; i < slices; ++i) {
    even.push_back(even_slice(most, slices, i));
    equal.push_back(fixed_slice(most, most / slices + 1, i));
  }
  check_cover(even, most, 1);
  if (slices > 1) check_cover(equal, most, 1);
}
