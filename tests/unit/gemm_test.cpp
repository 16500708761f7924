// The GEMM without communication, which is the mainloop alone, against a reference on the host.
#include <fusewire/kernels/gemm.hpp>

#include <array>

#include "sums.hpp"

using namespace support;

namespace {

template <class T>
using gemm_rank = sum_rank<gemm, gemm_call, T, false>;

}  // namespace

TEST_CASE("gemm: random shapes, types, layouts and tiles; epilogues", "[gemm]") {
  auto const tile = GENERATE(gemm_tile::automatic, gemm_tile::small, gemm_tile::large);
  on_ranks(1, [&](rank_of_test& r) {
    auto const check = [&]<class T>(T) {
      lcg random{unsigned(tile)};
      int const max_m = 300, max_n = 200, k = 136;
      gemm_rank<T> g(r, max_m, max_n, k);
      gemm<T> op(r.world, {.tile = tile});
      for (int i = 0; i < 8; ++i) {
        problem const p = random_problem(random, max_m, max_n, 8 * (1 + random.below(k / 8)));
        g.run(op, p);
        g.run(op, p, plus_row_and_column{},
              [](float x, int row, int col) { return x + float(row % 4) - 2 * float(col % 3); });
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
          if (op.describe(g.call(p)).find("blocks share one") != std::string::npos) shared[m > 64] = true;
        }
      r.found.expect(shared[0] && shared[1], "no blocks shared a tile of few rows, or of many");
    };
    check(bf16{});
    check(f16{});
  });
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
    says(automatic, wave::width == 64 ? "few_rows_gfx942, tiles of 32 x 32" : "gemm_sm90, tiles of 64 x ");
    call.b_layout = layout::row_major;
    call.b.ld = 31;
    says(automatic, "(not a tuned mainloop: b's address is no multiple of 16, or its ld none of 8, or rows lie "
                    "too far from each other)");
  });
}

TEST_CASE("gemm: a captured call is one kernel node", "[gemm][graph]") {
  on_ranks(1, [&](rank_of_test& r) {
    problem p{40, 24, 64, layout::row_major, 0};
    gemm_rank<bf16> g(r, 64, 32, p.k);
    gemm<bf16> op(r.world);
    graph const captured(r.stream, [&] { op(r.stream, g.call(p)); });
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
