// offset_allocator against a model that looks at every byte.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/memory/offset_allocator.hpp>

#include <optional>
#include <random>
#include <vector>

using namespace fusewire;

namespace {

/// The same promises, kept slowly: one byte map.
class model {
 public:
  model(std::size_t first, std::size_t capacity, std::size_t unit) : unit_(unit), used_(capacity / unit * unit, false) {
    std::fill_n(used_.begin(), round_up(first, unit), true);
  }

  std::optional<std::size_t> allocate(std::size_t bytes, std::size_t alignment) {
    std::size_t const wanted = round_up(bytes, unit_);
    for (bool const surely : {true, false}) {
      std::optional<std::size_t> best;
      std::size_t of = SIZE_MAX;
      for (auto const& [start, length] : free_runs()) {
        std::size_t const at = round_up(start, alignment);
        bool const fits =
            surely ? length >= wanted + std::max(alignment, unit_) - unit_ : at + wanted <= start + length;
        if (fits && length < of) of = length, best = at;
      }
      if (!best) continue;
      std::fill_n(used_.begin() + std::ptrdiff_t(*best), wanted, true);
      return best;
    }
    return std::nullopt;
  }
  void release(std::size_t at, std::size_t bytes) {
    std::fill_n(used_.begin() + std::ptrdiff_t(at), round_up(bytes, unit_), false);
  }
  std::size_t largest_free() const {
    std::size_t best = 0;
    for (auto const& run : free_runs()) best = std::max(best, run.second);
    return best;
  }

 private:
  std::vector<std::pair<std::size_t, std::size_t>> free_runs() const {
    std::vector<std::pair<std::size_t, std::size_t>> runs;
    for (std::size_t i = 0; i < used_.size(); ++i)
      if (used_[i]) continue;
      else if (i > 0 && !used_[i - 1]) ++runs.back().second;
      else runs.emplace_back(i, 1);
    return runs;
  }
  std::size_t unit_;
  std::vector<bool> used_;
};

}  // namespace

TEST_CASE("offset_allocator: as the model, over random calls") {
  unsigned const seed = GENERATE(1u, 2u, 3u, 4u);
  std::size_t const unit = GENERATE(1u, 16u), first = seed % 2 ? 0 : 100, capacity = 3000;
  std::mt19937 random(seed);
  auto const below = [&](std::size_t n) { return std::size_t(random() % n); };
  offset_allocator real(first, capacity, unit);
  model slow(first, capacity, unit);
  struct piece {
    std::size_t at, bytes;
  };
  std::vector<piece> live;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    if (live.empty() || below(5) < 3) {
      std::size_t const bytes = 1 + below(below(4) ? 100 : 900), alignment = std::size_t(1) << below(9);
      auto const got = real.allocate(bytes, alignment), wanted = slow.allocate(bytes, alignment);
      REQUIRE(got == wanted);
      if (got) live.push_back({*got, bytes});
      else ++refused;
    } else {
      std::size_t const k = below(live.size());
      REQUIRE(real.release(live[k].at));
      slow.release(live[k].at, live[k].bytes);
      REQUIRE_FALSE(real.release(live[k].at));
      live.erase(live.begin() + std::ptrdiff_t(k));
    }
    REQUIRE(real.allocations() == live.size());
    if (i % 16 == 0) REQUIRE(real.largest_free() == slow.largest_free());
  }
  CHECK(refused > 0);
  for (auto const& p : live) REQUIRE(real.release(p.at));
  CHECK(real.allocations() == 0);
  CHECK(real.largest_free() == capacity / unit * unit - round_up(first, unit));
}

TEST_CASE("offset_allocator: a range is used to its last byte") {
  offset_allocator a(0, 64);
  CHECK(a.allocate(65, 1) == std::nullopt);
  CHECK(a.allocate(64, 64) == 0);
  CHECK(a.allocate(1, 1) == std::nullopt);
  CHECK(a.largest_free() == 0);
  CHECK(a.release(0));
  CHECK(a.allocate(63, 1) == 0);
  CHECK(a.allocate(1, 1) == 63);
}

TEST_CASE("offset_allocator: bytes skipped for alignment stay usable") {
  offset_allocator a(0, 1024);
  CHECK(a.allocate(10, 1) == 0);
  CHECK(a.allocate(100, 256) == 256);
  CHECK(a.allocate(200, 1) == 10);
  CHECK(a.release(256));
  CHECK(a.allocate(500, 1) == 210);
}

TEST_CASE("offset_allocator: nothing is released twice, or in the middle") {
  offset_allocator a(0, 1024);
  auto const x = a.allocate(100, 1);
  CHECK_FALSE(a.release(*x + 1));
  CHECK(a.release(*x));
  CHECK_FALSE(a.release(*x));
  CHECK_FALSE(a.release(5000));
}

TEST_CASE("offset_allocator: the same calls give the same offsets") {
  offset_allocator a(256, 1 << 20), b(256, 1 << 20);
  std::mt19937 random(9);
  std::vector<std::size_t> live;
  for (int i = 0; i < 500; ++i) {
    if (live.empty() || random() % 3) {
      std::size_t const bytes = 1 + random() % 5000, alignment = std::size_t(1) << random() % 12;
      auto const x = a.allocate(bytes, alignment);
      REQUIRE(x == b.allocate(bytes, alignment));
      if (x) live.push_back(*x);
    } else {
      std::size_t const k = random() % live.size();
      REQUIRE(a.release(live[k]));
      REQUIRE(b.release(live[k]));
      live.erase(live.begin() + std::ptrdiff_t(k));
    }
  }
}

TEST_CASE("offset_allocator: sizes near the end of the address space do not wrap around") {
  offset_allocator a(100, 1000);
  CHECK(a.allocate(SIZE_MAX, 1) == std::nullopt);
  CHECK(a.allocate(SIZE_MAX - 50, 256) == std::nullopt);
  CHECK(a.allocate(1, std::size_t(1) << 63) == std::nullopt);
}

TEST_CASE("offset_allocator: odd sizes leave no holes") {
  offset_allocator a(0, std::size_t(1) << 30, 256);
  std::vector<std::size_t> live;
  for (std::size_t i = 0; i < 20000; ++i) live.push_back(*a.allocate(1 + i * 7919 % 4000, 256));
  CHECK(a.looks() == 20000);
  CHECK(a.size_at(live[1]) % 256 == 0);
}

TEST_CASE("offset_allocator: looks at few ranges, also where many are too small or begin in the wrong place") {
  constexpr std::size_t pairs = 20000;
  std::size_t const bytes = GENERATE(256u, 512u, 1000u), alignment = GENERATE(256u, 4096u);
  CAPTURE(bytes, alignment);
  offset_allocator a(256, std::size_t(1) << 30, 256);
  std::vector<std::size_t> holes;
  for (std::size_t i = 0; i < pairs; ++i) {
    holes.push_back(*a.allocate(256, 256));
    REQUIRE(a.allocate(256, 256));
  }
  for (std::size_t const at : holes) REQUIRE(a.release(at));
  std::size_t const before = a.looks();
  for (std::size_t i = 0; i < pairs; ++i) REQUIRE(a.allocate(bytes, alignment));
  CHECK(a.looks() - before == pairs);
}
