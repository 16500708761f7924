// The plan of an all-reduce: every row is in one chunk, blocks cover all chunks, and what the operator says that it
// needs holds every call within its options.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/ops/all_reduce.hpp>

#include <random>

using namespace fusewire;

namespace {

/// Small numbers as often as large ones.
int up_to(std::mt19937& random, int most) {
  int const scale = most >> random() % 12;
  return 1 + int(random() % unsigned(std::max(1, scale)));
}

template <class T>
void check_plan(all_reduce_plan const& p, int ranks, std::int64_t count) {
  CAPTURE(p.rows, p.cols, p.rows_per_chunk, p.sections.rows, p.sections.chunks, p.two_shot, p.words);
  CHECK(std::int64_t(p.rows) * p.cols >= count);
  CHECK(std::int64_t(p.rows - 1) * p.cols < count);
  CHECK(p.sections.rows == p.sections.chunks * p.rows_per_chunk);
  CHECK(p.sections.rows * (p.two_shot ? ranks : 1) >= p.rows);
  CHECK(p.sections.vectors * per_16_bytes<T> >= p.cols);
  CHECK(p.sections.vectors <= p.threads * p.vectors);  // a block holds a row
  CHECK(p.threads % 64 == 0);
  CHECK(p.threads <= all_reduce_plan::max_threads);
  for (int const fit : {1, 2, 3, 7, 132, 1216}) {
    auto const r = p.roles_of(fit);
    CHECK(r.first == (fit > 1));
    CHECK(r.blocks > r.first);
    CHECK(r.blocks <= fit);
    bool const all = r.senders == 0;
    CHECK((r.senders > 0) == (r.reducers > 0));
    CHECK((r.takers > 0) == (!all && p.two_shot));
    if (!all) CHECK(r.first + r.senders + r.reducers + r.takers == r.blocks);
  }
}

template <class T>
void check_room(unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 400; ++i) {
    int const ranks = 1 + int(random() % 8);
    all_reduce_options o{.max_rows = up_to(random, 3000), .max_cols = up_to(random, 20000)};
    o.shots = reduce_algorithm(random() % 3);
    o.transport = row_transport(random() % 3);
    std::size_t const bytes = all_reduce<T>::max_bytes(ranks, o);
    int const flags = all_reduce<T>::flags_per_source(ranks, o),
              records = all_reduce<T>::word_options(ranks, o).records;
    for (int call = 0; call < 20; ++call) {
      int const rows = up_to(random, o.max_rows),
                cols = up_to(random, std::min(o.max_cols, all_reduce_plan::max_cols<T>));
      bool const whole = call % 5 == 0;
      std::int64_t const count = whole ? std::int64_t(o.max_rows) * o.max_cols : std::int64_t(rows) * cols;
      for (bool const array : {true, false}) {
        auto const p = array ? all_reduce_plan::of_array<T>(count, ranks, o.shots, o.transport)
                             : all_reduce_plan::of_rows<T>(rows, cols, ranks, o.shots, o.transport);
        CAPTURE(ranks, o.max_rows, o.max_cols, int(o.shots), int(o.transport), rows, cols, count, array);
        check_plan<T>(p, ranks, array ? count : std::int64_t(rows) * cols);
        if (p.words && ranks > 1) CHECK(ll_rows<T>::records(1 + p.two_shot, p.sections) <= records);
        if (!p.words) CHECK(flag_rows<T>::bytes(ranks, 1 + p.two_shot, p.sections) <= bytes);
        if (!p.words) CHECK((1 + p.two_shot) * p.sections.chunks <= flags);
      }
    }
  }
}

}  // namespace

TEST_CASE("all_reduce_plan: chunks have all rows, and the operator's room holds every call") {
  check_room<bf16>(1);
  check_room<float>(2);
}

TEST_CASE("all_reduce_plan: two ranks take one shot, and long arrays of more ranks two") {
  auto const plan = [](std::int64_t count, int ranks) {
    return all_reduce_plan::of_array<bf16>(count, ranks, reduce_algorithm::automatic, row_transport::automatic);
  };
  for (std::int64_t const count : {1, 1000, 1 << 20, 1 << 25}) CHECK(!plan(count, 2).two_shot);
  for (int const ranks : {3, 4, 8}) {
    CHECK(!plan(1000, ranks).two_shot);
    CHECK(plan(1 << 25, ranks).two_shot);
    CHECK(!plan(1 << 25, ranks).words);
  }
}
