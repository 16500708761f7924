// GEMM + all-reduce against a reference on the host: one-shot and two-shot.
#include <fusewire/ops/gemm_ar.hpp>

#include <chrono>
#include <thread>

#include "batch_invariance.hpp"
#include "simulator.hpp"
#include "sums.hpp"

using namespace support;

namespace {

template <class T, class Partial = T>
using ar_rank = sum_rank<gemm_ar<T, Partial>, gemm_ar_call, T, false, Partial>;

template <class Partial = bf16>
channel_options enough_for(int ranks, gemm_ar_options const& o) {
  using op = gemm_ar<bf16, Partial>;
  return {.max_bytes = op::max_bytes(ranks, o), .flags_per_source = op::flags_per_source(ranks, o)};
}

template <class T, class Partial = T>
void random_shapes(int ranks, int launches, int max_m, int max_n, gemm_tile tile = gemm_tile::automatic) {
  auto const how = GENERATE(reduce_algorithm::automatic, reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  CAPTURE(ranks, int(how));
  on_ranks(ranks, [&](rank_of_test& r) {
    lcg random{unsigned(ranks) * 3 + unsigned(how)};
    gemm_ar_options const o{
        .max_m = max_m, .max_n = max_n, .k = 8 * (1 + random.below(20)), .shots = how, .tile = tile};
    ar_rank<T, Partial> g(r, max_m, max_n, o.k);
    channel ch(r.heap, sizeof(Partial) == 4 ? enough_for<float>(r.size(), o) : enough_for(r.size(), o));
    gemm_ar<T, Partial> op(ch, o);
    for (int i = 0; i < launches; ++i) {
      problem const p = random_problem(random, max_m, max_n, o.k);
      if (random.below(4) == 0 && random.below(ranks) == r.rank())
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      g.run(op, p);
    }
  });
}

}  // namespace

TEST_CASE("gemm_ar: blocks share tiles, each with its range of k", "[gemm_ar]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 300, .max_n = 136, .k = 1096};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    for (layout const b : {layout::column_major, layout::row_major})
      for (int const m : {3, 33, 70, 130, 300}) g.run(op, {m, 136, o.k, b, unsigned(m)});
  });
}

TEST_CASE("gemm_ar: random shapes, 1 to 8 ranks, bf16", "[gemm_ar][long]") {
  random_shapes<bf16>(GENERATE(1, 2, 3, 4, 5, 6, 7, 8), 4, 150, 200);
}
TEST_CASE("gemm_ar: random shapes, f16", "[gemm_ar][long]") { random_shapes<f16>(GENERATE(1, 3, 8), 4, 150, 200); }
TEST_CASE("gemm_ar: random shapes, partial sums in fp32", "[gemm_ar]") { random_shapes<bf16, float>(2, 4, 150, 200); }
TEST_CASE("gemm_ar: both tiles at any m", "[gemm_ar]") {
  random_shapes<bf16>(2, 4, 300, 130, GENERATE(gemm_tile::small, gemm_tile::large));
}

TEST_CASE("gemm_ar: the edges of tiles and of shards, and of what takes one shot", "[gemm_ar]") {
  auto const how = GENERATE(reduce_algorithm::automatic, reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(2, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 257, .max_n = 129, .k = 72, .shots = how};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    for (int m : {1, 2, 16, 17, 64, 65, 128, 129, 130, 257})
      for (int n : {1, 63, 65, 129})
        g.run(op, {m, n, o.k, m % 2 ? layout::row_major : layout::column_major, unsigned(m * n)});
  });
}

TEST_CASE("gemm_ar: the epilogue sees each sum once where it is added up, with the rows of all", "[gemm_ar]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(3, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 200, .max_n = 70, .k = 40, .shots = how};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    auto const calls = r.heap.allocate<unsigned>(std::size_t(o.max_m * o.max_n));
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    op.prepare<counted>();
    for (int m : {200, 67, 2}) {
      problem const p{m, 70, o.k, layout::column_major, unsigned(m)};
      row_shards const shards(m, r.size(), 1);
      int const first = how == reduce_algorithm::one_shot ? 0 : shards.first_row(r.rank()),
                rows = how == reduce_algorithm::one_shot ? m : shards.rows(r.rank());
      r.fill(calls, 0);
      g.run(op, p, counted{r.here(calls), p.n}, counted::of);
      auto const found = r.download(calls);
      for (int i = 0; i < o.max_m * p.n; ++i) {
        unsigned const wanted = i / p.n >= first && i / p.n < first + rows;
        r.found.expect(found[std::size_t(i)] == wanted, "m = ", m, ": element ", i, " was computed ",
                       found[std::size_t(i)], " times, wanted ", wanted);
      }
    }
  });
}

TEST_CASE("gemm_ar: errors stay below their bounds, with partial sums in 16 bits and in fp32", "[gemm_ar]") {
  on_ranks(3, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 50, .max_n = 24, .k = 64};
    problem const p{50, 24, 64, layout::column_major, 1};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for<float>(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    compare_with_fp64(g, op, p, 0x1p-8, 0x1p-8);
    gemm_ar<bf16, float> exact(ch, o);
    compare_with_fp64(g, exact, p, 0, 0x1p-8);
  });
}

TEST_CASE("gemm_ar: sums are added in the order of ranks", "[gemm_ar]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(3, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 30, .max_n = 9, .k = 8, .shots = how};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    std::vector<bf16> a(30 * 8, bf16(0.0f)), b(8 * 9, bf16(1.0f));
    // 2^24 + 1 is 2^24 in fp32: in any other order a 1 is left
    float const large = float(1 << 24), of_rank[] = {large, 1, -large};
    for (int i = 0; i < 30; ++i) a[std::size_t(i * 8)] = bf16(of_rank[r.rank()]);
    for (int launch = 0; launch < 5; ++launch) {
      r.upload(a, g.a);
      r.upload(b, g.b);
      r.fill(g.c, 0xff);
      if (launch % 3 == r.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      op(r.stream, g.call({30, 9, 8, layout::row_major, 0}));
      r.world.check(r.stream);
      g.compare({30, 9, 0, layout::row_major, 0}, [](float, int, int) { return 0.0f; });
    }
  });
}

TEST_CASE("gemm_ar: memory around c stays as it is", "[gemm_ar]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{70, 50, 32, layout::row_major, 3};
    int const c_ld = 61;
    gemm_ar_options const o{.max_m = 80, .max_n = 80, .k = p.k, .shots = how};
    ar_rank<bf16> g(r, 80, 80, 64);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    g.upload(p);
    r.fill(g.c, 0x7f);
    auto call = g.call(p);
    call.c.ld = c_ld;
    op(r.stream, call);
    r.world.check(r.stream);
    auto const c = r.download(g.c);
    for (int i = 0; i < int(g.c.count); ++i) {
      int const row = i / c_ld, col = i % c_ld;
      if (row < p.m && col < p.n)
        r.found.expect(float(c[std::size_t(i)]) == float(bf16(p.c<bf16>(2, row, col))), "c(", row, ", ", col,
                       ") = ", float(c[std::size_t(i)]));
      else r.found.expect(c[std::size_t(i)].bits == 0x7f7f, "element ", i, " outside c was written");
    }
  });
}

TEST_CASE("gemm_ar: what crosses a link", "[gemm_ar]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 2) SKIP("two simulated GPUs are needed");
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{192, 24, 64, layout::row_major, 1};
    gemm_ar_options const o{.max_m = p.m, .max_n = p.n, .k = p.k, .shots = how};
    ar_rank<bf16> g(r, p.m, p.n, p.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    auto const bytes = [&] {
      r.meet();
      auto const link = simulator_stats()->links[r.rank()][r.partner()].store_bytes;
      r.meet();
      return link;
    };
    auto const before = bytes();
    g.run(op, p);
    auto const crossed = bytes() - before, elements = std::uint64_t(p.m * p.n),
               wanted = elements * sizeof(bf16);  // with two shots a half as partial sums, a half as results
    r.found.expect(crossed >= wanted && crossed < wanted + 512, crossed,
                   " bytes crossed the link; sums and results have ", wanted, ", flags and a header less than 512");
  });
}

TEST_CASE("gemm_ar: launches on both sides of 2^32", "[gemm_ar][channel]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(3, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 70, .max_n = 30, .k = 16, .shots = how};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    on_both_sides_of_2_to_32(r, ch,
                             [&](int i) { g.run(op, {1 + i * 29 % 70, 30, o.k, layout::row_major, unsigned(i)}); });
  });
}

TEST_CASE("gemm_ar: a captured call is one kernel node, and its replays see changed data", "[gemm_ar][graph]") {
  auto const how = GENERATE(reduce_algorithm::one_shot, reduce_algorithm::two_shot);
  on_ranks(2, [&](rank_of_test& r) {
    problem p{40, 24, 64, layout::row_major, 0};
    gemm_ar_options const o{.max_m = 64, .max_n = 32, .k = p.k, .shots = how};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    graph const captured(r, [&] { op(r.stream, g.call(p)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    for (p.seed = 0; p.seed < 30; ++p.seed) {
      g.upload(p);
      captured.launch(r.stream);
      r.world.check(r.stream);
      g.compare(p, [](float x, int, int) { return x; });
    }
  });
}

TEST_CASE("gemm_ar: one shot and two by turns, many launches without a host wait in between", "[gemm_ar][channel]") {
  on_ranks(3, [&](rank_of_test& r) {
    constexpr int launches = 40, m = 40, n = 12, k = 16;  // one shot up to 32 rows
    gemm_ar_options const o{.max_m = m, .max_n = n, .k = k};
    ar_rank<bf16> g(r, m, n * launches, k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    problem const whole{m, n * launches, k, layout::column_major, 4};
    g.upload(whole);
    auto const all = g.call(whole);
    auto const rows = [](int i) { return i % 2 ? m : 7; };  // the others of C stay NaN
    for (int i = 0; i < launches; ++i) {                    // columns [i n, (i + 1) n)
      matrix<bf16 const> a = all.a;
      a.rows = rows(i);
      op(r.stream, {.a = a,
                    .b = {all.b.data + i * n * k, k, n, k},
                    .c = {all.c.data + i * n, rows(i), n, all.c.ld},
                    .m = rows(i),
                    .b_layout = layout::column_major});
    }
    r.world.check(r.stream);
    auto const c = r.download(static_cast<bf16 const*>(r.here(g.c)), std::size_t(m * whole.n));
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < whole.n; ++j) {
        bf16 const x = c[std::size_t(i * whole.n + j)];
        if (i < rows(j / n))
          r.found.expect(float(x) == float(bf16(whole.c<bf16>(3, i, j))), "c(", i, ", ", j, ") = ", float(x));
        else r.found.expect(x.bits == 0xffff, "c(", i, ", ", j, ") was written");
      }
  });
}

TEST_CASE("gemm_ar: ranks that call with different shapes get an error that says in what", "[gemm_ar][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_ar_options const o{.max_m = 140, .max_n = 32, .k = 64};
    ar_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_ar<bf16> op(ch, o);
    problem const p{r.rank() == 0 ? 140 : 10, 24, 64, layout::row_major, 1};
    g.upload(p);
    op(r.stream, g.call(p));
    r.found.throws<rank_mismatch>(
        "different m", {"gemm_ar two-shot bf16, m = 140, n = 24, k = 64, tile ", "gemm_ar one-shot bf16, m = 10"},
        [&] { r.world.check(r.stream); });
    ch.reset();
    g.run(op, {20, 24, 64, layout::row_major, 1});
  });
}

TEST_CASE("gemm_ar refuses what it cannot do, and says what it can", "[gemm_ar][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_ar_options const good{.max_m = 64, .max_n = 32, .k = 64};
    ar_rank<bf16> g(r, 64, 32, 64);
    channel ch(r.heap, enough_for(r.size(), good));
    auto refuses = [&](char const* what, std::vector<std::string> const& pieces, gemm_ar_options const& o) {
      r.found.throws<error>(what, pieces, [&] { gemm_ar<bf16> op(ch, o); });
    };
    refuses("shots", {"shots = 7"}, {.max_m = 64, .max_n = 32, .k = 64, .shots = reduce_algorithm(7)});
    refuses("k", {"gemm_ar: k = 12"}, {.max_m = 64, .max_n = 32, .k = 12});
    refuses("channel bytes", {"gemm_ar: what 2 ranks send", "12800", "12288"},
            {.max_m = 100, .max_n = 32, .k = 64, .shots = reduce_algorithm::one_shot});
    channel few(r.heap, {.max_bytes = 16_KiB, .flags_per_source = 2});
    r.found.throws<out_of_space>("channel flags", {"flags", "has 2"}, [&] {
      gemm_ar<bf16> op(few, {.max_m = 2, .max_n = 130, .k = 64, .shots = reduce_algorithm::one_shot});
    });
    gemm_ar<bf16> op(ch, good);
    problem const p{21, 24, 64, layout::row_major, 1};
    auto call = g.call(p);
    call.c.rows = 20;
    r.found.throws<bad_argument>("c's rows", {"c is [20, 24]", "[21, "}, [&] { op(r.stream, call); });
    g.run(op, p);
  });
}

TEST_CASE("batch_invariant: gemm_ar, every number of rows from 1 to 256", "[gemm_ar][batch_invariant]") {
  using namespace batch_invariance;
  compare_on_ranks<gemm_ar<bf16>, gemm_ar_options>("gemm_ar", false, [](gemm_ar<bf16>& op, batches const& x, int m) {
    op(x.r.stream, call_of<gemm_ar_call>(x, m, m, max_n));  // one-shot, then two-shot
    return std::pair(0, m);
  });
}
