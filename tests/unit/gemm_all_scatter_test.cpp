// GEMM + all-scatter against a reference on the host. Small integers: fp32 sums are exact, so == needs no tolerance.
#include <fusewire/ops/gemm_all_scatter.hpp>

#include <chrono>
#include <thread>

#include "batch_invariance.hpp"
#include "simulator.hpp"
#include "sums.hpp"

using namespace support;

namespace {

channel_options enough_for(int ranks, gemm_all_scatter_options const& o) {
  return {.max_bytes = gemm_all_scatter<bf16>::max_bytes(ranks, o),
          .flags_per_source = gemm_all_scatter<bf16>::flags_per_source(ranks, o)};
}

/// One rank's memory for problems up to a capacity; their n is one rank's.
template <class T>
struct scatter_rank {
  rank_of_test& r;
  sym<T> a, b, c;

  scatter_rank(rank_of_test& rank, gemm_all_scatter_options const& o)
      : r(rank), a(r.heap.allocate<T>(std::size_t(o.max_m * o.k))), b(r.heap.allocate<T>(std::size_t(o.max_n * o.k))),
        c(r.heap.allocate<T>(std::size_t(o.max_m * o.max_n * r.size()))) {}

  void upload(problem const& p) {
    std::vector<T> va(std::size_t(p.m * p.k)), vb(std::size_t(p.n * p.k));
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.k; ++j) va[std::size_t(i * p.k + j)] = T(p.a(r.rank(), i, j));
    for (int j = 0; j < p.k; ++j)
      for (int col = 0; col < p.n; ++col)
        vb[std::size_t(p.b_layout == layout::row_major ? j * p.n + col : col * p.k + j)] = T(p.b(r.rank(), j, col));
    r.upload(va, a);
    r.upload(vb, b);
    r.fill(c, 0xff);
  }
  gemm_all_scatter_call<T> call(problem const& p) const {
    int const n = p.n * r.size();
    return {.a = {r.here(a), p.m, p.k, p.k},
            .b = {r.here(b), p.k, p.n, p.b_layout == layout::row_major ? p.n : p.k},
            .c = {r.here(c), p.m, n, n},
            .m = p.m,
            .b_layout = p.b_layout};
  }
  /// Uploads, launches, overwrites A and B immediately, and compares. wanted(x, row, column of the source's).
  template <class Epilogue = identity, class Wanted = float (*)(float, int, int)>
  void run(
      gemm_all_scatter<T>& op, problem const& p, Epilogue const& epilogue = {},
      Wanted wanted = [](float x, int, int) { return x; }) {
    upload(p);
    op(r.stream, call(p), epilogue);
    check_hip(hipMemsetAsync(r.here(a), 0xff, a.count * sizeof(T), r.stream), "hipMemsetAsync");
    check_hip(hipMemsetAsync(r.here(b), 0xff, b.count * sizeof(T), r.stream), "hipMemsetAsync");
    r.world.check(r.stream);
    compare(p, wanted);
  }
  template <class Wanted>
  void compare(problem const& p, Wanted wanted) {
    auto const found = r.download(static_cast<T const*>(r.here(c)), std::size_t(p.m * p.n * r.size()));
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.n * r.size(); ++j) {
        int const source = j / p.n, col = j % p.n;
        float sum = 0;
        for (int l = 0; l < p.k; ++l) sum += p.a(source, i, l) * p.b(source, l, col);
        float const f = float(found[std::size_t(i * p.n * r.size() + j)]), w = float(T(wanted(sum, i, col)));
        if (!r.found.expect(f == w, "m ", p.m, " n ", p.n, " k ", p.k, ": c(", i, ", ", j, ") = ", f, ", wanted ", w))
          return;
      }
  }
};

template <class T>
void random_shapes(int ranks, int max_m, int max_n, gemm_tile tile = gemm_tile::automatic) {
  CAPTURE(ranks);
  on_ranks(ranks, [&](rank_of_test& r) {
    lcg random{unsigned(ranks)};
    gemm_all_scatter_options const o{.max_m = max_m, .max_n = max_n, .k = 8 * (1 + random.below(20)), .tile = tile};
    scatter_rank<T> g(r, o);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<T> op(ch, o);
    for (int i = 0; i < 5; ++i) {
      problem const p = random_problem(random, max_m, max_n, o.k);
      if (random.below(4) == 0 && random.below(ranks) == r.rank())
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      g.run(op, p);
    }
  });
}

}  // namespace

TEST_CASE("gemm_all_scatter: random shapes, 1 to 8 ranks, bf16", "[gemm_all_scatter][long]") {
  random_shapes<bf16>(GENERATE(1, 2, 3, 4, 5, 6, 7, 8), 150, 100);
}
TEST_CASE("gemm_all_scatter: random shapes, f16", "[gemm_all_scatter][long]") {
  random_shapes<f16>(GENERATE(1, 3, 8), 150, 100);
}
TEST_CASE("gemm_all_scatter: the small tile at any m", "[gemm_all_scatter]") {
  random_shapes<bf16>(2, 200, 100, gemm_tile::small);
}
TEST_CASE("gemm_all_scatter: the large tile at any m", "[gemm_all_scatter]") {
  random_shapes<bf16>(2, 300, 150, gemm_tile::large);
}

TEST_CASE("gemm_all_scatter: the epilogue sees each element once, on the rank that computes it", "[gemm_all_scatter]") {
  on_ranks(3, [&](rank_of_test& r) {
    gemm_all_scatter_options const o{.max_m = 100, .max_n = 70, .k = 40};
    scatter_rank<bf16> g(r, o);
    auto const calls = r.heap.allocate<unsigned>(std::size_t(o.max_m * o.max_n));
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<bf16> op(ch, o);
    for (int m : {100, 67, 2}) {
      problem const p{m, 70, o.k, layout::column_major, unsigned(m)};
      r.fill(calls, 0);
      g.run(op, p, counted{r.here(calls), p.n}, counted::of);
      auto const found = r.download(calls);
      for (int i = 0; i < o.max_m * p.n; ++i)
        r.found.expect(found[std::size_t(i)] == unsigned(i < m * p.n), "m = ", m, ": element ", i, " was computed ",
                       found[std::size_t(i)], " times");
    }
  });
}

TEST_CASE("gemm_all_scatter: leading dimensions, and memory around c stays as it is", "[gemm_all_scatter]") {
  auto const order = GENERATE(layout::row_major, layout::column_major);
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{70, 25, 32, order, 3};
    int const c_ld = 61;
    gemm_all_scatter_options const o{.max_m = 90, .max_n = 40, .k = p.k};
    scatter_rank<bf16> g(r, o);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<bf16> op(ch, o);
    g.upload(p);
    r.fill(g.c, 0x7f);
    auto call = g.call(p);
    call.c.ld = c_ld;
    op(r.stream, call);
    r.world.check(r.stream);
    auto const c = r.download(g.c);
    for (int i = 0; i < int(g.c.count); ++i) {
      int const row = i / c_ld, col = i % c_ld, source = col / p.n;
      if (row >= p.m || col >= 2 * p.n) {
        r.found.expect(c[std::size_t(i)].bits == 0x7f7f, "element ", i, " outside c was written");
        continue;
      }
      float sum = 0;
      for (int l = 0; l < p.k; ++l) sum += p.a(source, row, l) * p.b(source, l, col % p.n);
      r.found.expect(float(c[std::size_t(i)]) == float(bf16(sum)), "c(", row, ", ", col,
                     ") = ", float(c[std::size_t(i)]));
    }
  });
}

TEST_CASE("gemm_all_scatter: a product crosses each link once", "[gemm_all_scatter]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 2) SKIP("two simulated GPUs are needed");
  on_ranks(2, [&](rank_of_test& r) {
    problem const p{192, 24, 64, layout::row_major, 1};
    gemm_all_scatter_options const o{.max_m = p.m, .max_n = p.n, .k = p.k};
    scatter_rank<bf16> g(r, o);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<bf16> op(ch, o);
    auto const bytes = [&] {
      r.meet();
      auto const link = simulator_stats()->links[r.rank()][r.partner()].store_bytes;
      r.meet();
      return link;
    };
    auto const before = bytes();
    g.run(op, p);
    auto const crossed = bytes() - before, product = std::uint64_t(p.m * p.n) * sizeof(bf16);
    r.found.expect(crossed >= product && crossed < product + 512, crossed, " bytes crossed the link; the product has ",
                   product, ", flags and a header less than 512");
  });
}

TEST_CASE("gemm_all_scatter: a captured call is one kernel node, and its replays see changed data",
          "[gemm_all_scatter][graph]") {
  on_ranks(2, [&](rank_of_test& r) {
    problem p{40, 24, 64, layout::row_major, 0};
    gemm_all_scatter_options const o{.max_m = 64, .max_n = 32, .k = p.k};
    scatter_rank<bf16> g(r, o);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<bf16> op(ch, o);
    graph const captured(r, [&] { op(r.stream, g.call(p)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    for (p.seed = 0; p.seed < 20; ++p.seed) {
      g.upload(p);
      captured.launch(r.stream);
      r.world.check(r.stream);
      g.compare(p, [](float x, int, int) { return x; });
    }
  });
}

TEST_CASE("gemm_all_scatter: many launches on one channel without a host wait in between",
          "[gemm_all_scatter][channel]") {
  on_ranks(3, [&](rank_of_test& r) {
    constexpr int launches = 40;
    gemm_all_scatter_options const o{.max_m = 7, .max_n = 12, .k = 16};
    scatter_rank<bf16> g(r, o);
    auto const all = r.heap.allocate<bf16>(std::size_t(launches * 7 * 12 * 3));
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<bf16> op(ch, o);
    problem const p{7, 12, 16, layout::column_major, 4};
    g.upload(p);
    for (int i = 0; i < launches; ++i) {
      auto call = g.call(p);
      call.c.data = r.here(all) + i * 7 * 12 * 3;
      op(r.stream, call);
    }
    r.world.check(r.stream);
    for (int i = 0; i < launches; ++i) {
      check_hip(
          hipMemcpy(r.here(g.c), r.here(all) + i * 7 * 12 * 3, 7 * 12 * 3 * sizeof(bf16), hipMemcpyDeviceToDevice),
          "hipMemcpy");
      g.compare(p, [](float x, int, int) { return x; });
    }
  });
}

TEST_CASE("gemm_all_scatter: ranks that call with different shapes get an error that says in what",
          "[gemm_all_scatter][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_all_scatter_options const o{.max_m = 64, .max_n = 32, .k = 64};
    scatter_rank<bf16> g(r, o);
    channel ch(r.heap, enough_for(r.size(), o));
    gemm_all_scatter<bf16> op(ch, o);
    problem const p{r.rank() == 0 ? 20 : 22, 24, 64, layout::row_major, 1};
    g.upload(p);
    op(r.stream, g.call(p));
    r.found.throws<rank_mismatch>("different m", {"gemm_all_scatter bf16, m = 20, n = 24, k = 64, tile ", "m = 22"},
                                  [&] { r.world.check(r.stream); });
    ch.reset();
    g.run(op, {20, 24, 64, layout::row_major, 1});
  });
}

TEST_CASE("gemm_all_scatter refuses what it cannot do, and says what it can", "[gemm_all_scatter][errors]") {
  on_ranks(2, [&](rank_of_test& r) {
    gemm_all_scatter_options const good{.max_m = 64, .max_n = 32, .k = 64};
    scatter_rank<bf16> g(r, good);
    channel ch(r.heap, enough_for(r.size(), good));
    auto refuses = [&](char const* what, std::vector<std::string> const& pieces, gemm_all_scatter_options const& o) {
      r.found.throws<error>(what, pieces, [&] { gemm_all_scatter<bf16> op(ch, o); });
    };
    refuses("max_m", {"max_m = 0"}, {.max_m = 0, .max_n = 32, .k = 64});
    refuses("k", {"k = 12", "8"}, {.max_m = 64, .max_n = 32, .k = 12});
    refuses("channel bytes", {"max_m = 65", "8320", "8192"}, {.max_m = 65, .max_n = 32, .k = 64});

    gemm_all_scatter<bf16> op(ch, good);
    problem const p{21, 24, 64, layout::row_major, 1};
    auto refuses_call = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = g.call(p);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { op(r.stream, c); });
    };
    using call = gemm_all_scatter_call<bf16>;
    refuses_call("m too large", {"m = 65", "64"}, [](call& c) { c.m = 65; });
    refuses_call("b's shape", {"b is [32, 24]", "[64, 24]"}, [](call& c) { c.b.rows = 32; });
    refuses_call("c's columns", {"c is [21, 24]", "[21, 48]"}, [](call& c) { c.c.cols = 24; });
    refuses_call("n too large", {"b is [64, 33]", "max_n = 32"}, [](call& c) { c.b.cols = 33; });
    g.run(op, p);
  });
}

TEST_CASE("batch_invariant: gemm_all_scatter, every number of rows from 1 to 256",
          "[gemm_all_scatter][batch_invariant]") {
  using namespace batch_invariance;
  compare_on_ranks<gemm_all_scatter<bf16>, gemm_all_scatter_options>(
      "gemm_all_scatter", true, [](gemm_all_scatter<bf16>& op, batches const& x, int m) {
        op(x.r.stream, call_of<gemm_all_scatter_call>(x, m, m, x.r.size() * max_n));
        return std::pair(0, m);
      });
}
