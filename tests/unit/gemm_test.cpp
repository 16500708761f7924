// GEMM without communication, which is the mainloop alone, against a reference on the host.
#include <fusewire/ops/gemm.hpp>

#include <array>
#include <cmath>

#include "batch_invariance.hpp"
#include "sums.hpp"

using namespace support;

namespace {

template <class T>
using gemm_rank = sum_rank<gemm<T>, gemm_call, T, false>;

/// Whether so many blocks can share a tile with `rows` rows of A.
template <class Tile>
bool can_share(Tile const& tile, int rows, int split_k) {
  if constexpr (requires { tile.can_share(rows, split_k); })
    return tile.can_share(std::min(rows, tile.block_m), split_k);
  return true;
}

/// A user's kernel that changes the sums of a tile and stores them by row and column, as floats.
template <class T>
__global__ void sums_by_place(matrix<T const> a, b_operand<T> b, float* out) {
  extern __shared__ bytes16 shared[];
  using tile = block_gemm<T, small_tile::config>;
  typename tile::accumulator acc;
  tile work(shared, acc);
  work.run(a, b, 0, 0);
  work.finish();
  tile::for_each_sum(acc, [](int row, int column, float& sum) { sum = 2 * sum + float(row - column); });
  tile::for_each_sum(acc, [&](int row, int column, float& sum) {
    out[row * small_tile::config.block_n + column] += sum;  // each once
  });
}

/// out[row][column] = epilogue(column / 4), as an operator calls it
template <class Epilogue>
__global__ void results_of(Epilogue epilogue, float* out, int rows, int columns) {
  for (int i = block{}.rank(); i < rows * columns; i += block{}.size())
    out[i] = epilogue(float(i % columns) / 4, i / columns, i % columns);
}

}  // namespace

TEST_CASE("gemm: the library's epilogues", "[gemm]") {
  on_ranks(1, [](rank_of_test& r) {
    constexpr int rows = 2, columns = 40;
    auto const values = r.heap.allocate<bf16>(columns);
    auto const out = r.heap.allocate<float>(rows * columns);
    std::vector<bf16> added;
    for (int j = 0; j < columns; ++j) added.push_back(bf16(float(j % 7 - 3)));
    r.heap.upload(values, added);
    auto const check = [&](auto const& epilogue, double within, auto const& wanted) {
      r.launch({.blocks = 1, .threads = 64}, results_of<std::decay_t<decltype(epilogue)>>, epilogue, r.heap.here(out),
               rows, columns);
      auto const found = r.heap.download(out);
      for (int i = 0; i < rows * columns; ++i) {
        double const w = wanted(double(i % columns) / 4 + float(added[std::size_t(i % columns)])),
                     f = double(found[std::size_t(i)]);
        r.found.expect(std::abs(f - w) <= std::abs(w) * within, "element ", i, " is ", f, ", wanted ", w);
      }
    };
    check(bias<bf16>{r.heap.here(values)}, 0, [](double x) { return x; });
    check(bias_silu<bf16>{r.heap.here(values)}, 1e-6, [](double x) { return x / (1 + std::exp(-x)); });
  });
}
TEST_CASE("gemm: the sums of a tile by row and column", "[gemm]") {
  on_ranks(1, [](rank_of_test& r) {
    constexpr gemm_config c = small_tile::config;
    constexpr int m = c.block_m, n = c.block_n, k = 96;
    auto const check = [&]<class T>(T) {
      auto const a = r.heap.allocate<T>(m * k), b = r.heap.allocate<T>(n * k);
      auto const out = r.heap.allocate<float>(m * n);
      std::vector<T> av, bv;
      std::vector<float> wanted;
      for (int i = 0; i < m * k; ++i) av.push_back(T(float(i * 7 % 5 - 2)));
      for (int i = 0; i < n * k; ++i) bv.push_back(T(float(i * 3 % 7 - 3)));
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          float sum = 0;
          for (int x = 0; x < k; ++x) sum += float(av[std::size_t(i * k + x)]) * float(bv[std::size_t(j * k + x)]);
          wanted.push_back(2 * sum + float(i - j));
        }
      r.heap.upload(a, av);
      r.heap.upload(b, bv);
      r.heap.upload(out, std::vector<float>(m * n));
      r.launch({.blocks = 1, .threads = c.threads(), .shared_bytes = c.shared_bytes()}, sums_by_place<T>,
               matrix<T const>{r.heap.here(a), m, k, k}, b_operand<T>{r.heap.here(b), k, layout::column_major, n},
               r.heap.here(out));
      r.found.equal(r.heap.download(out), wanted, "sums");
    };
    check(bf16{});
    check(f16{});
  });
}

TEST_CASE("gemm: random shapes, types, layouts and tiles; epilogues", "[gemm]") {
  auto const tile = GENERATE(gemm_tile::automatic, gemm_tile::small, gemm_tile::large);
  on_ranks(1, [&](rank_of_test& r) {
    auto const check = [&]<class T>(T) {
      lcg random{unsigned(tile.m)};
      int const max_m = 300, max_n = 200, k = 136;
      gemm_rank<T> g(r, max_m, max_n, k);
      auto const calls = r.heap.allocate<unsigned>(std::size_t(max_m * max_n));
      gemm<T> op(r.world, {.tile = tile});
      for (int i = 0; i < 8; ++i) {
        problem const p = random_problem(random, max_m, max_n, 8 * (1 + random.below(k / 8)));
        g.run(op, p);
        if constexpr (std::is_same_v<T, bf16>) {  // an epilogue has fp32 of either type
          r.fill(calls, 0);
          g.run(op, p, counted{r.here(calls), p.n}, counted::of);
          auto const found = r.download(calls);
          for (int e = 0; e < max_m * max_n; ++e)
            if (!r.found.expect(found[std::size_t(e)] == unsigned(e < p.m * p.n), "m ", p.m, " n ", p.n, ": element ",
                                e, " was computed ", found[std::size_t(e)], " times"))
              break;
        }
      }
    };
    check(bf16{});
    check(f16{});
  });
}

TEST_CASE("gemm: blocks share tiles of shape after shape", "[gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    auto const check = [&]<class T>(T) {
      gemm_rank<T> g(r, 260, 200, 2048);
      gemm<T> op(r.world);
      bool shared[2] = {};
      for (layout const b : {layout::column_major, layout::row_major})
        for (auto const [m, n, k] : {std::array{1, 104, 2048},
                                     {16, 40, 1600},
                                     {33, 72, 2048},
                                     {64, 104, 1096},
                                     {65, 136, 2048},
                                     {64, 64, 512},
                                     {130, 128, 1000},
                                     {257, 200, 1024},
                                     {7, 8, 8}}) {
          problem const p{m, n, k, b, unsigned(m)};
          g.run(op, p);
          if (op.describe(g.call(p)).find("split-k") != std::string::npos) shared[m > 64] = true;
        }
      r.found.expect(shared[0] && shared[1], "no blocks shared a tile of few rows, or of many");
    };
    check(bf16{});
    check(f16{});
  });
}

TEST_CASE("gemm: blocks go through more tiles of few rows than there are blocks", "[gemm]") {
  constexpr int n = 16 * 1300, k = 512;
  auto const multiply = [&](rank_of_test& r) {
    gemm_rank<bf16> g(r, 16, n, k);
    gemm<bf16> op(r.world);
    g.run(op, {16, n, k, layout::column_major, 1});
  };
  on_ranks(1, multiply, {.bulk = 64_MiB, .signal = 2_MiB, .share = sharing_of_tests()});
}

TEST_CASE("gemm: says which mainloop a call takes, and why it is not a tuned one", "[gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    gemm_rank<bf16> g(r, 64, 32, 64);
    gemm<bf16> automatic(r.world), small(r.world, {.tile = gemm_tile::small});
    auto call = g.call({21, 24, 64, layout::column_major, 1});
    auto const says = [&](gemm<bf16>& op, char const* what) {
      std::string const words = op.describe(call);
      r.found.expect(words.find(what) != std::string::npos, words, "; wanted ", what);
    };
    says(small, "block_mainloop, tiles of 32 x 64");
    says(automatic, wave::width == 64 ? "small_m_gfx942, tiles of 32 x 32" : "gemm_sm90, tiles of 64 x ");
    call.b_layout = layout::row_major;
    call.b.ld = 31;
    says(automatic, "(not a tuned mainloop: b's address is no multiple of 16, or its ld none of 8, or rows lie "
                    "too far from each other)");
  });
}

TEST_CASE("gemm: tiles and split_k that the options name", "[gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    gemm_rank<bf16> g(r, 130, 104, 1024);
    for (auto const& tile : tuned_mainloops<bf16>::tiles)
      for (layout const b : {layout::row_major, layout::column_major})
        for (int const split_k : {1, 2}) {
          problem const p{tile.block_m > 64 ? 130 : tile.block_m - 1, 104, 1024, b, unsigned(tile.block_n)};
          if (!tile.suits(b)) continue;
          if (!can_share(tile, p.m, split_k)) continue;
          gemm<bf16> op(r.world, {.tile = {tile.block_m, tile.block_n, split_k}});
          std::string const said = op.describe(g.call(p));
          r.found.expect(said.find(text("tiles of ", tile.block_m, " x ", tile.block_n)) != std::string::npos &&
                             (said.find("split-k 2") != std::string::npos) == (split_k == 2),
                         said, "; wanted ", tile.block_m, " x ", tile.block_n, ", split-k ", split_k);
          g.run(op, p);
        }
    problem const p{40, 24, 64, layout::column_major, 1};
    gemm<bf16> some_split_k(r.world, {.tile = {.split_k = 1}});
    g.run(some_split_k, p);
    auto const refuses = [&](char const* what, std::vector<std::string> const& pieces, gemm_tile const& tile,
                             auto change) {
      r.found.throws<bad_argument>(what, pieces, [&] {
        gemm<bf16> op(r.world, {.tile = tile});
        auto call = g.call(p);
        change(call);
        (void)op.describe(call);
      });
    };
    auto const as_it_is = [](auto&) {};
    refuses("a tile that is not there", {"gemm: tile = 100 x any, split-k any", "tiles for this B are "}, {.m = 100},
            as_it_is);
    refuses("more slices than k has", {"gemm: tile = any x any, split-k 16"}, {.split_k = 16}, as_it_is);
    refuses("a B that no tuned mainloop reads", {"gemm: tile = any x any, split-k 2", "b's address"}, {.split_k = 2},
            [](auto& call) {
              call.b_layout = layout::row_major;
              call.b.ld = 31;
            });
    refuses("another generic tile", {"gemm: tile = 32 x 32, split-k 1, generic", "gemm_tile::small"}, {32, 32, 1, true},
            as_it_is);
  });
}

TEST_CASE("gemm: a captured call is one kernel node", "[gemm][graph]") {
  on_ranks(1, [&](rank_of_test& r) {
    problem p{40, 24, 64, layout::row_major, 0};
    gemm_rank<bf16> g(r, 64, 32, p.k);
    gemm<bf16> op(r.world);
    graph const captured(r, [&] { op(r.stream, g.call(p)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    for (p.seed = 0; p.seed < 5; ++p.seed) {
      g.upload(p);
      captured.launch(r.stream);
      r.world.check(r.stream);
      g.compare(p, [](float x, int, int) { return x; });
    }
  });
}

TEST_CASE("gemm refuses what it cannot do, and says what it can", "[gemm][errors]") {
  on_ranks(1, [&](rank_of_test& r) {
    r.found.throws<bad_argument>("reserved_cus", {"reserved_cus = -1"},
                                 [&] { gemm<bf16> op(r.world, {.reserved_cus = -1}); });
    gemm_rank<bf16> g(r, 64, 32, 64);
    gemm<bf16> op(r.world);
    problem const p{21, 24, 64, layout::row_major, 1};
    auto refuses_call = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = g.call(p);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { op(r.stream, c); });
    };
    using call = gemm_call<bf16>;
    refuses_call("k", {"a is [21, 12]", "multiple of 8"}, [](call& c) { c.a.cols = 12; });
    refuses_call("a's rows", {"a is [20, 64]", "[21, "}, [](call& c) { c.a.rows = 20; });
    refuses_call("b's shape", {"b is [32, 24]", "[64, 24]"}, [](call& c) { c.b.rows = 32; });
    refuses_call("c empty", {"c is [0, 24]"}, [](call& c) { c.c.rows = 0; });
    refuses_call("c overlaps a", {"c", "a"}, [](call& c) { c.c.data = const_cast<bf16*>(c.a.data); });
    g.run(op, p);
  });
}

TEST_CASE("gemm_launcher: plans are kept, headers tell them apart, and what does not fit is refused",
          "[gemm][errors]") {
  on_ranks(1, [](rank_of_test& r) {
    constexpr int m = 40, n = 48, k = 64;
    auto const a = r.heap.allocate<bf16>(m * k), b = r.heap.allocate<bf16>(n * k), c = r.heap.allocate<bf16>(m * n);
    r.found.throws<bad_argument>("reserved_cus", {"mine: reserved_cus = -1"},
                                 [&] { gemm_launcher<bf16> l(r.world, "mine", gemm_tile::automatic, -1); });
    r.found.throws<bad_argument>("tile", {"mine: tile = -9 x any, split-k any"},
                                 [&] { gemm_launcher<bf16> l(r.world, "mine", gemm_tile{.m = -9}); });

    detail::gemm_kernels<bf16, identity> const kernel_of;
    gemm_launcher<bf16> launcher(r.world, "mine");
    gemm_problem<bf16> const p{.rows = m, .b = {r.here(b), k, n, k}, .b_layout = layout::column_major, .a_ld = k};
    gemm_plan const& plan = launcher.plan(kernel_of, p);
    r.found.expect(&launcher.plan(kernel_of, p) == &plan, "a plan is made once");
    gemm_problem<bf16> one_row = p;
    one_row.rows = 1;
    gemm_plan const& other = launcher.plan(kernel_of, one_row);
    r.found.expect(&other != &plan, "another shape has another plan");
    int const slices = ceil_div(m, plan.tile_m) * ceil_div(n, plan.tile_n) * plan.split_k;
    r.found.expect(slices <= gemm_launcher<bf16>::max_tile_slices(m, n), "as many slices as are told");

    launch_header const header = gemm_header<bf16>("mine", plan, 7, m, n, k);
    r.found.expect(variant_of(header.what) == 7, "what was told");
    std::string const said = describe_gemm("mine", header.what);
    r.found.expect(said.starts_with(text("mine bf16, m = 40, n = 48, k = 64, tile ", plan.tile_m, " x ", plan.tile_n)),
                   said);

    auto const refuses = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      gemm_problem<bf16> wrong = p;
      change(wrong);
      r.found.throws<bad_argument>(what, pieces, [&] { (void)launcher.plan(kernel_of, wrong); });
    };
    refuses("no rows", {"mine: a product of 1 x [0, 64]"}, [](auto& x) { x.rows = 0; });
    refuses("k", {"mine: a product of 1 x [40, 12]", "multiple of 8"}, [](auto& x) { x.b.rows = 12; });
    refuses("b's ld", {"mine: b (column-major).ld = 60", "multiple of 8"}, [](auto& x) { x.b.ld = 60; });
    refuses("no b", {"mine: b (column-major).data is null"}, [](auto& x) { x.b.data = nullptr; });
    refuses("tiles", {"mine: c is [1000000000, 1000000000], in too many tiles"},
            [](auto& x) { x.rows = x.b.cols = 1000000000; });

    gemm_arguments<bf16> const g{
        {r.here(c), m, n, n}, {ceil_div(m, plan.tile_m), ceil_div(n, plan.tile_n), 0, plan.group_m}, k, nullptr};
    auto const launch = [&](matrix<bf16 const> of_a) {
      launcher.launch(r.stream, kernel_of, p, plan, {of_a}, {.tiles = g.tiles.count()}, identity{}, g);
    };
    r.found.throws<bad_argument>("a's address", {"mine: a.data", "multiple of 16"},
                                 [&] { launch({r.here(a) + 1, m, k, k}); });
    r.found.throws<bad_argument>("a's ld", {"mine: a.ld = 72", "a_ld = 64"}, [&] { launch({r.here(a), m, k, 72}); });
    launch({r.here(a), m, k, k});
    r.world.check(r.stream);
  });
}

TEST_CASE("batch_invariant: gemm, every number of rows from 1 to 256", "[gemm][batch_invariant]") {
  using namespace batch_invariance;
  layout const b_layout = any_layout();
  on_ranks(
      1,
      [&](rank_of_test& r) {
        batches x(r, max_k, max_n, b_layout, 1);
        gemm<bf16> op(r.world, {.tile = gemm_tile::batch_invariant});
        x.compare_c("gemm", max_n, 1, [&](int m) {
          op(r.stream,
             {.a = x.rows_of_a(m), .b = x.whole_b(), .c = {r.here(x.c), m, max_n, max_n}, .b_layout = b_layout});
          return std::pair(0, m);
        });
      },
      large_heap());
}

TEST_CASE("batch_invariant: a B that no tuned mainloop reads", "[gemm][batch_invariant]") {
  using namespace batch_invariance;
  on_ranks(1, [&](rank_of_test& r) {
    constexpr int n = 13;  // rows of B begin at no multiple of 16 bytes
    batches x(r, 136, n, layout::row_major, 1);
    gemm<bf16> op(r.world, {.tile = gemm_tile::batch_invariant});
    x.compare_c("gemm", n, 5, [&](int m) {
      op(r.stream, {.a = x.rows_of_a(m), .b = x.whole_b(), .c = {r.here(x.c), m, n, n}});
      return std::pair(0, m);
    });
  });
}
