// GEMM + reduce-scatter against a reference on the host.
#include <fusewire/ops/gemm_rs.hpp>

#include <chrono>
#include <optional>
#include <thread>

#include "batch_invariance.hpp"
#include "simulator.hpp"
#include "sums.hpp"

using namespace support;

namespace {

template <class T, class Partial = T>
using rs_rank = sum_rank<gemm_rs<T, Partial>, gemm_rs_call, T, true, Partial>;

template <class Partial = bf16>
channel_options enough_for(int ranks, gemm_rs_options const& o) {
  using op = gemm_rs<bf16, Partial>;
  return {.max_bytes = op::max_bytes(ranks, o), .flags_per_source = op::flags_per_source(ranks, o)};
}

template <class T, class Partial = T>
void random_shapes(int ranks, int launches, int max_m, int max_n, gemm_tile tile = gemm_tile::automatic) {
  CAPTURE(ranks);
  on_ranks(ranks, [&](rank_of_test& r) {
    lcg random{unsigned(ranks)};
    gemm_rs_options const o{.max_m = max_m, .max_n = max_n, .k = 8 * (1 + random.below(20)), .tile = tile};
    rs_rank<T, Partial> g(r, max_m, max_n, o.k);
    channel ch(r.heap, sizeof(Partial) == 4 ? enough_for<float>(r.size(), o) : enough_for(r.size(), o));
    gemm_rs<T, Partial> op(ch, o);
    for (int i = 0; i < launches; ++i) {
      problem const p = random_problem(random, max_m, max_n, o.k);
      if (random.below(4) == 0 && random.below(ranks) == r.rank())
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      g.run(op, p);
    }
  });
}

}  // namespace

TEST_CASE("gemm_rs: blocks share tiles, each with its range of k", "[gemm_rs]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 300, .max_n = 136, .k = 1096};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    for (layout const b : {layout::column_major, layout::row_major})
      for (int const m : {3, 33, 70, 130, 300}) g.run(op, {m, 136, o.k, b, unsigned(m)});
  });
}

TEST_CASE("gemm_rs: random shapes, 1 to 8 ranks, bf16", "[gemm_rs][long]") {
  random_shapes<bf16>(GENERATE(1, 2, 3, 4, 5, 6, 7, 8), 5, 150, 200);
}
TEST_CASE("gemm_rs: random shapes, f16", "[gemm_rs][long]") { random_shapes<f16>(GENERATE(1, 3, 8), 5, 150, 200); }
TEST_CASE("gemm_rs: random shapes, partial sums in fp32", "[gemm_rs]") {
  random_shapes<bf16, float>(GENERATE(2, 3), 5, 150, 200);
}
TEST_CASE("gemm_rs: the small tile at any m", "[gemm_rs]") { random_shapes<bf16>(2, 5, 300, 100, gemm_tile::small); }
TEST_CASE("gemm_rs: the large tile at any m", "[gemm_rs]") { random_shapes<bf16>(2, 5, 300, 150, gemm_tile::large); }

TEST_CASE("gemm_rs: row_shards gives every row to one rank and one M tile, the ranks round robin", "[gemm_rs]") {
  for (int const ranks : {1, 2, 3, 8})
    for (int const tile_m : {32, 128})
      for (int const m : {1, 2, 7, 8, 9, 31, 32, 33, 127, 257, 1024}) {
        row_shards const s(m, ranks, tile_m);
        int rows = 0, owners = 0, m_tiles = 0;
        for (int r = 0; r < ranks; ++r) {
          CHECK(s.first_row(r) == rows);
          rows += s.rows(r), owners += s.rows(r) > 0;
        }
        CHECK(rows == m);
        CHECK(s.owners() == owners);
        for (int nth = 0; nth < s.m_tiles; ++nth)
          for (int r = 0; r < ranks; ++r) {
            if (nth >= s.m_tiles_of(r)) continue;
            CHECK(s.owner(m_tiles) == r);
            CHECK(s.nth_of_owner(m_tiles) == nth);
            CHECK(s.row_in_shard(m_tiles) == nth * tile_m);
            ++m_tiles;
          }
        CHECK(s.all_m_tiles() == m_tiles);
      }
}

TEST_CASE("gemm_rs: the edges of tiles and of shards", "[gemm_rs]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 258, .max_n = 129, .k = 72};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    for (int m : {1, 2, 63, 64, 65, 127, 128, 129, 130, 255, 256, 257, 258})
      for (int n : {1, 63, 64, 65, 129})
        g.run(op, {m, n, o.k, m % 2 ? layout::row_major : layout::column_major, unsigned(m * n)});
  });
}

TEST_CASE("gemm_rs: the epilogue sees each sum once, with the rows of its rank", "[gemm_rs]") {
  on_ranks(3, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 200, .max_n = 70, .k = 40};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    auto const calls = r.heap.allocate<unsigned>(std::size_t(o.max_m * o.max_n));
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    op.prepare<counted>();
    for (int m : {200, 67, 2}) {
      problem const p{m, 70, o.k, layout::column_major, unsigned(m)};
      r.fill(calls, 0);
      g.run(op, p, counted{r.here(calls), p.n}, counted::of);
      auto const found = r.download(calls);
      for (int i = 0; i < o.max_m * p.n; ++i)
        r.found.expect(found[std::size_t(i)] == unsigned(i < g.rows(p) * p.n), "m = ", m, ": element ", i,
                       " was computed ", found[std::size_t(i)], " times");
    }
  });
}

TEST_CASE("gemm_rs: errors stay below their bounds, with partial sums in 16 bits and in fp32", "[gemm_rs]") {
  on_ranks(3, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 50, .max_n = 24, .k = 64};
    problem const p{50, 24, 64, layout::column_major, 1};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for<float>(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    compare_with_fp64(g, op, p, 0x1p-8, 0x1p-8);
    gemm_rs<bf16, float> exact(ch, o);
    compare_with_fp64(g, exact, p, 0, 0x1p-8);
  });
}

TEST_CASE("gemm_rs: with options that agree, a rank makes its operator when it likes", "[gemm_rs]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 40, .max_n = 24, .k = 64, .agreed = true};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    std::optional<gemm_rs<bf16>> op;
    if (r.rank() == 0) op.emplace(ch, o);
    r.meet();  // would not return if the constructor waited for the other rank
    if (r.rank() == 1) op.emplace(ch, o);
    r.meet();
    g.run(*op, {40, 24, 64, layout::column_major, 1});
  });
}

TEST_CASE("gemm_rs: sums are added in the order of ranks", "[gemm_rs]") {
  on_ranks(3, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 30, .max_n = 9, .k = 8};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    problem const p{30, 9, 8, layout::row_major, 0};
    std::vector<bf16> a(30 * 8, bf16(0.0f)), b(8 * 9, bf16(1.0f));
    // 2^24 + 1 is 2^24 in fp32: in any other order a 1 is left
    float const large = float(1 << 24), of_rank[] = {large, 1, -large};
    for (int i = 0; i < 30; ++i) a[std::size_t(i * 8)] = bf16(of_rank[r.rank()]);
    for (int launch = 0; launch < 5; ++launch) {
      r.upload(a, g.a);
      r.upload(b, g.b);
      r.fill(g.c, 0xff);
      if (launch % 3 == r.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      op(r.stream, g.call(p));
      r.world.check(r.stream);
      g.compare({30, 9, 0, layout::row_major, 0}, [](float, int, int) { return 0.0f; });
    }
  });
}

TEST_CASE("gemm_rs: leading dimensions, and memory around c stays as it is", "[gemm_rs]") {
  auto const order = GENERATE(layout::row_major, layout::column_major);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{70, 50, 32, order, 3};
    int const c_ld = 61;
    gemm_rs_options const o{.max_m = 80, .max_n = 80, .k = p.k};
    rs_rank<bf16> g(r, 80, 80, 64);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    g.upload(p);
    r.fill(g.c, 0x7f);
    auto call = g.call(p);
    call.c.ld = c_ld;
    op(r.stream, call);
    r.world.check(r.stream);
    auto const c = r.download(g.c);
    for (int i = 0; i < int(g.c.count); ++i) {
      int const row = i / c_ld, col = i % c_ld;
      if (row < 35 && col < p.n)
        r.found.expect(float(c[std::size_t(i)]) == float(bf16(p.c<bf16>(2, 35 * r.rank() + row, col))), "c(", row, ", ",
                       col, ") = ", float(c[std::size_t(i)]));
      else r.found.expect(c[std::size_t(i)].bits == 0x7f7f, "element ", i, " outside c was written");
    }
  });
}

TEST_CASE("gemm_rs: a sum crosses each link once", "[gemm_rs]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 2) SKIP("two simulated GPUs are needed");
  int const m = GENERATE(48, 192);  // tiles with rows of both ranks, and of one
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{m, 24, 64, layout::row_major, 1};
    gemm_rs_options const o{.max_m = p.m, .max_n = p.n, .k = p.k};
    rs_rank<bf16> g(r, p.m, p.n, p.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    auto const bytes = [&] {
      r.meet();
      auto const link = simulator_stats()->links[r.rank()][r.partner()].store_bytes;
      r.meet();
      return link;
    };
    auto const before = bytes();
    g.run(op, p);
    auto const crossed = bytes() - before, sums = std::uint64_t(p.m / 2 * p.n) * sizeof(bf16);
    r.found.expect(crossed >= sums && crossed < sums + 512, crossed, " bytes crossed the link; the sums have ", sums,
                   ", flags and a header less than 512");
  });
}

TEST_CASE("gemm_rs: launches on both sides of 2^32", "[gemm_rs][channel]") {
  on_ranks(3, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 70, .max_n = 30, .k = 16};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    on_both_sides_of_2_to_32(r, ch,
                             [&](int i) { g.run(op, {1 + i * 29 % 70, 30, o.k, layout::row_major, unsigned(i)}); });
  });
}

TEST_CASE("gemm_rs: a captured call is one kernel node, and its replays see changed data", "[gemm_rs][graph]") {
  on_ranks(2, [&](rank_of_test& r) {
    problem p{40, 24, 64, layout::row_major, 0};
    gemm_rs_options const o{.max_m = 64, .max_n = 32, .k = p.k};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    graph const captured(r, [&] { op(r.stream, g.call(p)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    for (p.seed = 0; p.seed < 50; ++p.seed) {
      g.upload(p);
      captured.launch(r.stream);
      r.world.check(r.stream);
      g.compare(p, [](float x, int, int) { return x; });
    }
  });
}

TEST_CASE("gemm_rs: many launches on one channel without a host wait in between", "[gemm_rs][channel]") {
  on_ranks(3, [&](rank_of_test& r) {
    constexpr int launches = 60, m = 7, n = 12, k = 16;
    gemm_rs_options const o{.max_m = m, .max_n = n, .k = k};
    rs_rank<bf16> g(r, m, n * launches, k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    problem const whole{m, n * launches, k, layout::column_major, 4};
    g.upload(whole);
    auto const one = g.call(whole);
    for (int i = 0; i < launches; ++i)  // columns [i n, (i + 1) n)
      op(r.stream, {.a = one.a,
                    .b = {one.b.data + i * n * k, k, n, k},
                    .c = {one.c.data + i * n, one.c.rows, n, one.c.ld},
                    .m = m,
                    .b_layout = layout::column_major});
    r.world.check(r.stream);
    g.compare(whole, [](float x, int, int) { return x; });
  });
}

TEST_CASE("gemm_rs: ranks that call with different shapes get an error that says in what", "[gemm_rs][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rs_options const o{.max_m = 64, .max_n = 32, .k = 64};
    rs_rank<bf16> g(r, o.max_m, o.max_n, o.k);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_rs<bf16> op(ch, o);
    problem const p{r.rank() == 0 ? 20 : 22, 24, 64, layout::row_major, 1};
    g.upload(p);
    op(r.stream, g.call(p));
    r.found.throws<rank_mismatch>("different m", {"gemm_rs bf16, m = 20, n = 24, k = 64, tile ", "m = 22"},
                                  [&] { r.world.check(r.stream); });
    ch.reset();
    g.run(op, {20, 24, 64, layout::row_major, 1});
  });
}

TEST_CASE("gemm_rs refuses what it cannot do, and says what it can", "[gemm_rs][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_rs_options const good{.max_m = 64, .max_n = 32, .k = 64};
    rs_rank<bf16> g(r, 64, 32, 64);
    channel ch(r.heap, enough_for(r.size(), good));
    auto refuses = [&](char const* what, std::vector<std::string> const& pieces, gemm_rs_options const& o) {
      r.found.throws<error>(what, pieces, [&] { gemm_rs<bf16> op(ch, o); });
    };
    refuses("max_m", {"max_m = 0"}, {.max_m = 0, .max_n = 32, .k = 64});
    refuses("max_n", {"max_n = 0"}, {.max_m = 64, .max_n = 0, .k = 64});
    refuses("k", {"k = 12", "8"}, {.max_m = 64, .max_n = 32, .k = 12});
    refuses("channel bytes", {"max_m = 65", "8384", "8192"}, {.max_m = 65, .max_n = 32, .k = 64});
    channel few(r.heap, {.max_bytes = 8_KiB, .flags_per_source = 1});
    r.found.throws<out_of_space>("channel flags", {" flags per source", "has 1"},
                                 [&] { gemm_rs<bf16> op(few, {.max_m = 2, .max_n = 66, .k = 64}); });
    refuses("reserved_cus", {"reserved_cus = 100000"}, {.max_m = 64, .max_n = 32, .k = 64, .reserved_cus = 100000});

    gemm_rs<bf16> op(ch, good);
    problem const p{21, 24, 64, layout::row_major, 1};
    auto refuses_call = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = g.call(p);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { op(r.stream, c); });
    };
    using call = gemm_rs_call<bf16>;
    refuses_call("m too large", {"m = 65", "64"}, [](call& c) { c.m = 65; });
    refuses_call("a's shape", {"a is [20, 64]", "[21, 64]"}, [](call& c) { c.a.rows = 20; });
    refuses_call("b's shape", {"b is [32, 24]", "[64, 24]"}, [](call& c) { c.b.rows = 32; });
    refuses_call("c's rows", {"c is [21, 24]", "on rank "}, [](call& c) { c.c.rows = 21; });
    refuses_call("c's columns", {"c is [", ", 33]"}, [](call& c) { c.c.cols = 33; });
    refuses_call("n too large", {"b is [64, 33]", "max_n = 32"}, [](call& c) { c.b.cols = c.c.cols = 33; });
    refuses_call("a's ld", {"a.ld = 60", "64"}, [](call& c) { c.a.ld = 60; });
    refuses_call("a misaligned", {"a.data", "16"}, [](call& c) { c.a.data += 1; });
    refuses_call("c null", {"c.data is null"}, [](call& c) { c.c.data = nullptr; });
    g.run(op, p);
  });
}

TEST_CASE("batch_invariant: gemm_rs, every number of rows from 1 to 256", "[gemm_rs][batch_invariant]") {
  using namespace batch_invariance;
  compare_on_ranks<gemm_rs<bf16>, gemm_rs_options>("gemm_rs", false, [](gemm_rs<bf16>& op, batches const& x, int m) {
    op(x.r.stream, call_of<gemm_rs_call>(x, m, op.rows(m), max_n));
    return std::pair(row_shards(m, x.r.size(), 1).first_row(x.r.rank()), op.rows(m));
  });
}
