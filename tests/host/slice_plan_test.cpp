// The plan of a collective of slices: every byte is in one chunk, blocks cover all chunks, and what the operator says
// that it needs holds every call within its options.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_to_all.hpp>
#include <fusewire/ops/all_to_all_v.hpp>
#include <fusewire/ops/reduce_scatter.hpp>

#include <random>

using namespace fusewire;

namespace {

void check_plan(row_plan const& p, std::int64_t bytes) {
  CAPTURE(p.rows, p.rows_per_chunk, p.sections.rows, p.sections.chunks, p.words);
  std::int64_t const row = p.row_bytes();
  CHECK(p.rows * row >= bytes);
  CHECK((p.rows - 1) * row < bytes);
  CHECK(p.sections.rows == p.rows);
  CHECK(p.sections.vectors * 16 == row);
  CHECK(std::int64_t(p.sections.chunks) * p.rows_per_chunk >= p.rows);
  CHECK((p.sections.chunks - 1) * std::int64_t(p.rows_per_chunk) < p.rows);
  CHECK(p.vectors == (p.words ? 1 : row_plan::max_vectors));  // the kernels that the operators have
  for (int const fit : {1, 2, 3, 7, 132, 1216})
    for (int const share : {2, 4}) {
      auto const r = p.roles_of(fit, share);
      CHECK(r.first == (fit > 1));
      CHECK(r.blocks > r.first);
      CHECK(r.blocks <= fit);
      CHECK((r.senders > 0) == (r.reducers > 0));
      CHECK(r.takers == 0);
      if (r.senders > 0) CHECK(r.first + r.senders + r.reducers == r.blocks);
    }
}

}  // namespace

TEST_CASE("slice_plan: chunks have all bytes, and the operator's room holds every call") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    int const ranks = 1 + int(random() % 8);
    auto const up_to = [&](std::int64_t most) {
      return 1 + std::int64_t(random() % std::uint64_t(most >> random() % 20 | 1));
    };
    detail::slice_options const o{std::min<std::int64_t>(up_to(std::int64_t(1) << 33), std::int64_t(1) << 33),
                                  row_transport(random() % 3), 0};
    std::size_t const room = detail::slice_collective::max_bytes(ranks, o);
    int const flags = detail::slice_collective::flags_per_source(ranks, o),
              records = detail::slice_collective::word_options(ranks, o).records;
    CHECK(flags >= 1);
    CHECK(flags <= row_plan::max_chunks);
    for (int call = 0; call < 10; ++call) {
      std::int64_t const bytes = call == 0 ? o.max_bytes : std::min(o.max_bytes, up_to(o.max_bytes));
      CAPTURE(ranks, o.max_bytes, int(o.transport), bytes);
      auto const p = row_plan::of_slices(bytes, ranks, o.transport);
      check_plan(p, bytes);
      if (p.words && ranks > 1) CHECK(ll_rows<std::byte>::records(1, p.sections) <= records);
      if (!p.words) CHECK(flag_rows<std::byte>::bytes(ranks, 1, p.sections) <= room);
      if (!p.words) CHECK(p.sections.chunks <= flags);
    }
  }
}

TEST_CASE("slice_plan: requirements of operators grow with their slices") {
  auto const bytes = [](auto const& r) { return r.max_bytes(); };
  std::int64_t const n = 1 << 20;
  CHECK(bytes(all_gather<bf16>::requirements(8, {.max_count = n})) == 7 * 2 * std::size_t(n));
  CHECK(bytes(all_to_all<float>::requirements(8, {.max_count = n})) == 7 * 4 * std::size_t(n));
  CHECK(bytes(reduce_scatter<float>::requirements(2, {.max_count = n})) == 4 * std::size_t(n));
  CHECK(bytes(all_to_all_v<bf16>::requirements(4, {.max_count = n})) == 3 * 2 * std::size_t(n));
  CHECK(bytes(all_gather<bf16>::requirements(1, {.max_count = n})) == 1);
}
