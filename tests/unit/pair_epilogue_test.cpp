// Epilogues that make one column of C of two of the product.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/gemm.hpp>
#include <fusewire/ops/interleave_columns.hpp>

#include <array>
#include <cmath>

#include "sums.hpp"

using namespace support;

namespace {

/// A pair epilogue whose result depends on where it is, and on which of the pair is the even one.
struct difference {
  __device__ float operator()(float even, float odd, int row, int column) const { return of(even, odd, row, column); }
  __host__ __device__ static float of(float even, float odd, int row, int column) {
    return even - 2 * odd + float(row % 4) - 2 * float(column % 3);
  }
};

/// gemm, on one rank.
template <class T>
struct gemm_of_pairs {
  rank_of_test& r;
  sym<T> a, b, c;

  gemm_of_pairs(rank_of_test& rank, int max_m, int max_n, int k)
      : r(rank), a(r.heap.allocate<T>(std::size_t(max_m * k))), b(r.heap.allocate<T>(std::size_t(max_n * k))),
        c(r.heap.allocate<T>(std::size_t(max_m * max_n))) {}

  gemm_call<T> call(problem const& p, int pad) const {
    return {.a = {r.here(a), p.m, p.k, p.k},
            .b = {r.here(b), p.k, p.n, p.b_layout == layout::row_major ? p.n : p.k},
            .c = {r.here(c), p.m, p.n / 2, p.n / 2 + pad},
            .b_layout = p.b_layout};
  }
  void upload(problem const& p) {
    std::vector<T> va, vb(std::size_t(p.n * p.k));
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.k; ++j) va.push_back(T(p.a(0, i, j)));
    for (int j = 0; j < p.k; ++j)
      for (int col = 0; col < p.n; ++col)
        vb[std::size_t(p.b_layout == layout::row_major ? j * p.n + col : col * p.k + j)] = T(p.b(0, j, col));
    r.upload(va, a);
    r.upload(vb, b);
    r.fill(c, 0xff);
  }
  /// Compares C and what lies behind its rows.
  template <class Epilogue, class Wanted>
  void run(gemm<T>& op, problem const& p, int pad, Epilogue const& e, float within, Wanted const& wanted) {
    upload(p);
    op(r.stream, call(p, pad), e);
    r.world.check(r.stream);
    compare(p, pad, within, wanted);
  }
  /// C is wanted(even, odd, row, column), and may differ by a part of `within`.
  template <class Wanted>
  void compare(problem const& p, int pad, float within, Wanted const& wanted) {
    int const cols = p.n / 2, ld = cols + pad;
    auto const found = r.download(static_cast<T const*>(r.here(c)), std::size_t(p.m * ld));
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < ld; ++j) {
        T const f = found[std::size_t(i * ld + j)];
        if (j >= cols) {
          if (!r.found.expect(f.bits == 0xffff, "m ", p.m, " n ", p.n, ": behind row ", i, " C was written")) return;
          continue;
        }
        float const w = wanted(product_of(p.seed, 0, p.k, i, 2 * j), product_of(p.seed, 0, p.k, i, 2 * j + 1), i, j),
                    error = std::abs(float(f) - float(T(w)));
        if (!r.found.expect(error <= within * std::abs(w), "m ", p.m, " n ", p.n, " k ", p.k,
                            p.b_layout == layout::row_major ? " row" : " column", ": c(", i, ", ", j, ") = ", float(f),
                            ", wanted ", w))
          return;
      }
  }
};

/// Whether so many blocks can share a tile with `rows` rows of A.
template <class Tile>
bool can_share(Tile const& tile, int rows, int split_k) {
  if constexpr (requires { tile.can_share(rows, split_k); })
    return tile.can_share(std::min(rows, tile.block_m), split_k);
  return true;
}

/// out[i] = epilogue((i - 40) / 8, i % 5 - 2)
template <class Epilogue>
__global__ void results_of(Epilogue epilogue, float* out, int count) {
  for (int i = block{}.rank(); i < count; i += block{}.size())
    out[i] = epilogue(float(i - 40) / 8, float(i % 5 - 2), 0, i);
}

}  // namespace

TEST_CASE("the library's pair epilogues", "[gemm][pairs]") {
  on_ranks(1, [](rank_of_test& r) {
    constexpr int count = 80;
    auto const out = r.heap.allocate<float>(count);
    auto const check = [&](char const* name, auto const& epilogue, auto const& of_gate) {
      r.launch({.blocks = 1, .threads = 64}, results_of<std::decay_t<decltype(epilogue)>>, epilogue, r.heap.here(out),
               count);
      auto const found = r.heap.download(out);
      for (int i = 0; i < count; ++i) {
        double const w = of_gate(double(i - 40) / 8) * (i % 5 - 2), f = double(found[std::size_t(i)]);
        r.found.expect(std::abs(f - w) <= std::abs(w) * 2e-6 + 1e-9, name, " of element ", i, " is ", f, ", wanted ",
                       w);
      }
    };
    check("swiglu", swiglu{}, [](double x) { return x / (1 + std::exp(-x)); });
    check("geglu", geglu{}, [](double x) {
      return x / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
    });
  });
}

TEST_CASE("gemm: pairs of columns, of every tile, type and layout", "[gemm][pairs]") {
  on_ranks(1, [](rank_of_test& r) {
    auto const check = [&]<class T>(T) {
      gemm_of_pairs<T> g(r, 300, 264, 1024);
      for (auto const& tile : {gemm_tile::small, gemm_tile::large, gemm_tile::automatic}) {
        gemm<T> op(r.world, {.tile = tile});
        for (auto const [m, n, k] :
             {std::array{1, 2, 8}, {5, 34, 72}, {31, 200, 136}, {64, 104, 1024}, {130, 262, 200}, {257, 256, 512}})
          for (layout const b : {layout::row_major, layout::column_major})
            for (int const pad : {0, 3, 8})
              g.run(op, {m, n, k, b, unsigned(m + pad)}, pad, difference{}, 0.0f, difference::of);
      }
    };
    check(bf16{});
    check(f16{});
  });
}

TEST_CASE("gemm: pairs of columns, of every tuned tile, shared by one block and by two", "[gemm][pairs]") {
  on_ranks(1, [](rank_of_test& r) {
    gemm_of_pairs<bf16> g(r, 130, 232, 1024);
    for (auto const& tile : tuned_mainloops<bf16>::tiles)
      for (layout const b : {layout::row_major, layout::column_major})
        for (int const split_k : {1, 2})
          for (int const n : {104, b == layout::row_major ? 216 : 226}) {
            problem const p{tile.block_m > 64 ? 130 : tile.block_m - 1, n, 1024, b, unsigned(tile.block_n)};
            if (!tile.suits(b) || !can_share(tile, p.m, split_k)) continue;
            gemm<bf16> op(r.world, {.tile = {tile.block_m, tile.block_n, split_k}});
            for (int const pad : {0, 1}) g.run(op, p, pad, difference{}, 0.0f, difference::of);
          }
  });
}

TEST_CASE("interleave_columns: a gate and what it gates, from weights that lie apart", "[gemm][pairs]") {
  on_ranks(1, [](rank_of_test& r) {
    constexpr int m = 70, n = 50, k = 72, pad = 8;
    auto const order = layout::column_major;
    for (layout const b : {layout::row_major, order}) {
      problem const p{m, 2 * n, k, b, 3};
      gemm_of_pairs<bf16> g(r, m, 2 * n, k);
      g.upload(p);
      bool const by_row = b == layout::row_major;
      int const ld = by_row ? n : k + pad;  // of the two halves
      auto const even = r.heap.allocate<bf16>(std::size_t(ld * (by_row ? k : n))),
                 odd = r.heap.allocate<bf16>(std::size_t(ld * (by_row ? k : n)));
      std::vector<bf16> of_even(even.count), of_odd(odd.count);
      for (int j = 0; j < k; ++j)
        for (int c = 0; c < n; ++c) {
          std::size_t const at = std::size_t(by_row ? j * ld + c : c * ld + j);
          of_even[at] = bf16(p.b(0, j, 2 * c));
          of_odd[at] = bf16(p.b(0, j, 2 * c + 1));
        }
      r.upload(of_even, even);
      r.upload(of_odd, odd);
      auto const call = g.call(p, 0);
      r.fill(g.b, 0xff);
      matrix<bf16> const to{r.here(g.b), k, 2 * n, call.b.ld};
      matrix<bf16 const> const x{r.here(even), k, n, ld}, y{r.here(odd), k, n, ld};
      interleave_columns<bf16>(r.world, r.stream, x, y, to, b);
      r.world.check(r.stream);
      auto const found = r.download(g.b);
      for (int j = 0; j < k; ++j)
        for (int c = 0; c < 2 * n; ++c) {
          float const f = float(found[std::size_t(by_row ? j * 2 * n + c : c * k + j)]);
          if (!r.found.expect(f == p.b(0, j, c), "b(", j, ", ", c, ") = ", f)) return;
        }
      auto const refuses = [&](char const* piece, auto a, auto o, auto t) {
        r.found.throws<bad_argument>(piece, {"interleave_columns", piece},
                                     [&] { interleave_columns<bf16>(r.world, r.stream, a, o, t, b); });
      };
      refuses("odd is [72, 49]; expected [72, 50]", x, matrix<bf16 const>{y.data, k, n - 1, ld}, to);
      refuses("to is [72, 99]; expected [72, 100]", x, y, matrix<bf16>{to.data, k, 2 * n - 1, to.ld});
      refuses("even is [0, 50]", matrix<bf16 const>{x.data, 0, n, ld}, y, to);
      refuses("to.ld = ", x, y, matrix<bf16>{to.data, k, 2 * n, 5});
      refuses("overlaps", matrix<bf16 const>{to.data, k, n, ld}, y, to);
    }
  });
}

TEST_CASE("ag_gemm: pairs of columns", "[ag_gemm][pairs]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 8);
  auto const by = GENERATE(gather::k, gather::m);
  CAPTURE(ranks, int(by));
  on_ranks(ranks, [&](rank_of_test& r) {
    constexpr int max_m = 140, max_n = 136;
    int const k = 8 * r.size() * (r.size() < 8 ? 20 : 5);  // 8 ranks take long on the simulator
    channel ch(r.heap, {.max_bytes = 1_MiB, .flags_per_source = 256});
    gemm_of_pairs<bf16> g(r, max_m, max_n, k);
    ag_gemm<bf16> op(ch, {.max_m = max_m, .k = k, .gather = by});
    op.prepare<difference>();  // else a rank may load the kernels while another one's kernel waits for it
    r.world.barrier();
    for (auto const [m, n] : {std::array{1, 2}, {16, 66}, {33, 104}, {140, 136}, {97, 30}})
      for (layout const b : {layout::row_major, layout::column_major}) {
        problem const p{m, n, k, b, unsigned(m + n)};
        gather_map const map{by, m, k, r.size(), 128, 512};
        int const rows = map.rows(r.rank()), cols = map.cols();
        g.upload(p);
        std::vector<bf16> shard;
        for (int i = 0; i < rows; ++i)
          for (int j = 0; j < cols; ++j)
            shard.push_back(bf16(p.a(0, map.first_row(r.rank()) + i, map.first_col(r.rank()) + j)));
        r.upload(shard, g.a);
        gemm_call<bf16> const c = g.call(p, 0);
        ag_gemm_call<bf16> const call{.a = {r.here(g.a), rows, cols, cols}, .b = c.b, .c = c.c, .m = m, .b_layout = b};
        op(r.stream, call, difference{});
        r.world.check(r.stream);
        g.compare(p, 0, 0.0f, difference::of);
        if (m != 16) continue;
        auto const refuses = [&](char const* piece, auto change) {
          auto wrong = call;
          change(wrong);
          r.found.throws<bad_argument>(piece, {"ag_gemm: ", piece}, [&] { op(r.stream, wrong, difference{}); });
        };
        refuses("b is [", [](auto& x) { x.c.cols += 1, x.c.ld += 1; });
        refuses("c is [16, 0]; expected [16, 1 to 536870912]", [](auto& x) { x.c.cols = 0; });
      }
  });
}

TEST_CASE("gemm: refuses a C that pairs do not fill", "[gemm][pairs][errors]") {
  on_ranks(1, [](rank_of_test& r) {
    gemm_of_pairs<bf16> g(r, 40, 24, 64);
    gemm<bf16> op(r.world);
    auto const refuses = [&](char const* piece, auto change) {
      auto call = g.call({21, 24, 64, layout::column_major, 1}, 0);
      change(call);
      r.found.throws<bad_argument>(piece, {piece}, [&] { op(r.stream, call, difference{}); });
    };
    refuses("gemm: b is [64, 24]; expected [64, 26]", [](auto& c) { c.c.cols = 13, c.c.ld = 13; });
    refuses("gemm: b is [64, 23]; expected [64, 24]", [](auto& c) { c.b.cols = 23; });
    refuses("gemm: c is [21, 0]; expected [1 to 1073741824, 1 to 536870912]", [](auto& c) { c.c.cols = 0; });
  });
}
