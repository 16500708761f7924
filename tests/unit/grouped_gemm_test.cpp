// One GEMM for each group of rows, whose sizes the device alone knows, against a reference on the host.
#include <fusewire/ops/grouped_gemm.hpp>

#include <array>
#include <numeric>

#include "batch_invariance.hpp"
#include "reference/products.hpp"
#include "streams.hpp"
#include "support.hpp"

using namespace support;

namespace {

/// Which rows each group has.
struct grouping {
  std::vector<int> begins, ends;

  int groups() const { return int(begins.size()); }
  int rows(int g) const { return ends[std::size_t(g)] - begins[std::size_t(g)]; }
  /// The group of a row; -1: none.
  int of(int row) const {
    for (int g = 0; g < groups(); ++g)
      if (row >= begins[std::size_t(g)] && row < ends[std::size_t(g)]) return g;
    return -1;
  }
  /// Groups of these sizes, each beginning at a multiple of `aligned` rows.
  static grouping of_sizes(std::vector<int> const& sizes, int aligned = 1) {
    grouping x;
    for (int at = 0; int const n : sizes) {
      x.begins.push_back(at);
      x.ends.push_back(at + n);
      at = ceil_div(at + n, aligned) * aligned;
    }
    return x;
  }
  /// [groups + 1], of groups that are not aligned.
  std::vector<int> offsets() const {
    std::vector<int> x = begins;
    x.push_back(ends.back());
    return x;
  }
};

grouping random_groups(lcg& random, int groups, int max_rows, int aligned) {
  std::vector<int> sizes;
  int left = max_rows;
  for (int g = 0; g < groups; ++g) {
    int const what = random.below(4), most = std::max(1, left / (1 + random.below(4)));
    int const n = left <= 0 || what == 0 ? 0 : std::min(left, 1 + random.below(what == 1 ? std::min(most, 8) : most));
    sizes.push_back(n);
    left -= ceil_div(n, aligned) * aligned;
  }
  return grouping::of_sizes(sizes, aligned);
}

/// tiles[i] = the i-th tile as (group, m, n), counts[i] how often it was handed out.
__global__ void hand_out(row_groups g, int tile_m, int n_tiles, int group_m, int* tiles, int* counts, int* count) {
  divisor const by(n_tiles);
  grouped_scheduler const s(g, tile_m, by, group_m);
  if (block{}.index() == 0 && block{}.rank() == 0) *count = s.count();
  for (int i = block{}.index(); i < s.count(); i += block{}.count()) {
    tile_coord const t = s[i];
    if (block{}.rank() != 0) continue;
    tiles[3 * i] = t.group, tiles[3 * i + 1] = t.m, tiles[3 * i + 2] = t.n;
    ++counts[i];
  }
}

/// A bias for each group.
struct shift_by_group {
  int const* by;  // [groups]
  struct shift {
    int by;
    __device__ float operator()(float x, int row, int column) const { return of(x, by, row, column); }
  };
  __device__ shift of_group(int g) const { return {by[g]}; }
  static __host__ __device__ float of(float x, int by, int row, int column) {
    return x + float(by) + float(row % 8) - float(column % 3);
  }
};

/// A pair epilogue.
struct product_of_pair {
  __device__ float operator()(float even, float odd, int row, int column) const { return of(even, odd, row, column); }
  static __host__ __device__ float of(float even, float odd, int row, int column) {
    return even - 2 * odd + float(row % 8) - float(column % 3);
  }
};

struct shape {
  int max_rows, n, k;
  layout b_layout;
  unsigned seed;
};

/// Memory for calls up to a capacity.
template <class T>
struct grouped_rank {
  rank_of_test& r;
  sym<T> a, b, c;
  sym<int> begins, ends, by;

  grouped_rank(rank_of_test& rank, int max_rows, int max_n, int max_k, int max_groups)
      : r(rank), a(r.heap.allocate<T>(std::size_t(max_rows * max_k))),
        b(r.heap.allocate<T>(std::size_t(max_groups * (max_n + 8) * (max_k + 8)))),
        c(r.heap.allocate<T>(std::size_t(max_rows * (max_n + 8)))),
        begins(r.heap.allocate<int>(std::size_t(max_groups + 1))), ends(r.heap.allocate<int>(std::size_t(max_groups))),
        by(r.heap.allocate<int>(std::size_t(max_groups))) {}

  static std::int64_t ld_of_b(shape const& s) {
    return s.b_layout == layout::row_major ? ceil_div(s.n, 8) * 8 : s.k + 8;
  }
  static std::int64_t stride_of_b(shape const& s) {
    return (s.b_layout == layout::row_major ? s.k : s.n) * ld_of_b(s) + 8;
  }
  /// A, B and the groups; what belongs to no group, and what lies between two B's, is NaN.
  void upload(shape const& s, grouping const& g, bool with_ends) {
    std::vector<T> va(std::size_t(s.max_rows * s.k)), vb(std::size_t(g.groups() * stride_of_b(s)));
    for (auto* v : {&va, &vb})
      for (T& x : *v) x.bits = 0xffff;
    for (int i = 0; i < s.max_rows; ++i)
      if (int const of = g.of(i); of >= 0)
        for (int j = 0; j < s.k; ++j) va[std::size_t(i * s.k + j)] = T(a_of(s.seed, of, i, j));
    for (int e = 0; e < g.groups(); ++e)
      for (int j = 0; j < s.k; ++j)
        for (int col = 0; col < s.n; ++col)
          vb[std::size_t(e * stride_of_b(s) +
                         (s.b_layout == layout::row_major ? j * ld_of_b(s) + col : col * ld_of_b(s) + j))] =
              T(b_of(s.seed, e, j, col));
    r.upload(va, a);
    r.upload(vb, b);
    upload_groups(g, with_ends);
  }
  void upload_groups(grouping const& g, bool with_ends) {
    r.upload(with_ends ? g.begins : g.offsets(), begins);
    r.upload(g.ends, ends);
    r.fill(c, 0xff);
  }
  grouped_gemm_call<T> call(shape const& s, int groups, bool with_ends, int per_value = 1,
                            int rows_of_group = 0) const {
    return {.a = {r.here(a), s.max_rows, s.k, s.k},
            .b = {r.here(b), s.k, s.n, ld_of_b(s)},
            .b_group_stride = stride_of_b(s),
            .c = {r.here(c), s.max_rows, s.n / per_value, s.n / per_value + 1},
            .offsets = r.here(begins),
            .ends = with_ends ? r.here(ends) : nullptr,
            .groups = groups,
            .b_layout = s.b_layout,
            .rows_of_group = rows_of_group};
  }
  /// C has wanted(sum of column j, row, j, group) in rows of groups, and is untouched elsewhere.
  template <class Wanted>
  bool compare(shape const& s, grouping const& g, int columns, Wanted const& wanted) {
    int const ld = columns + 1;
    auto const found = r.download(static_cast<T const*>(r.here(c)), std::size_t(s.max_rows * ld));
    for (int i = 0; i < s.max_rows; ++i)
      for (int j = 0, of = g.of(i); j < ld; ++j) {
        T const f = found[std::size_t(i * ld + j)];
        bool const is_right = of < 0 || j == columns ? f.bits == 0xffff : float(f) == float(T(wanted(i, j, of)));
        if (!r.found.expect(is_right, "rows ", s.max_rows, " n ", s.n, " k ", s.k, " groups ", g.groups(),
                            s.b_layout == layout::row_major ? " row" : " column", ": c(", i, ", ", j, ") = ", float(f),
                            " in group ", of))
          return false;
      }
    return true;
  }
  bool run(grouped_gemm<T>& op, shape const& s, grouping const& g, bool with_ends = false, int rows_of_group = 0) {
    upload(s, g, with_ends);
    op(r.stream, call(s, g.groups(), with_ends, 1, rows_of_group));
    r.world.check(r.stream);
    return compare(s, g, s.n, [&](int i, int j, int of) { return product_of(s.seed, of, s.k, i, j); });
  }
};

heap_options larger_heap() { return {.bulk = 64_MiB, .signal = 2_MiB}; }

}  // namespace

TEST_CASE("grouped_scheduler: every tile of every group exactly once", "[grouped_gemm]") {
  on_ranks(1, [](rank_of_test& r) {
    constexpr int max_groups = 300, max_tiles = 4096;
    auto const begins = r.heap.allocate<int>(max_groups), ends = r.heap.allocate<int>(max_groups),
               tiles = r.heap.allocate<int>(3 * max_tiles), counts = r.heap.allocate<int>(max_tiles),
               count = r.heap.allocate<int>(1);
    lcg random{1};
    for (int const groups : {1, 2, 3, 8, 63, 64, 65, 128, 200, 300})
      for (int const max_rows : {1, 40, 1000}) {
        grouping const g = random_groups(random, groups, max_rows, 1 + random.below(3));
        int const tile_m = random.below(2) ? 16 : 128, n_tiles = 1 + random.below(5), group_m = 1 + random.below(8);
        r.upload(g.begins, begins);
        r.upload(g.ends, ends);
        r.fill(counts, 0);
        r.launch({.blocks = 3, .threads = 128}, hand_out,
                 row_groups{r.here(begins), r.here(ends), groups, g.ends.back()}, tile_m, n_tiles, group_m,
                 r.here(tiles), r.here(counts), r.here(count));
        std::vector<std::array<int, 3>> wanted, found;
        for (int e = 0; e < groups; ++e)
          for (int m = 0; m < ceil_div(g.rows(e), tile_m); ++m)
            for (int n = 0; n < n_tiles; ++n) wanted.push_back({e, m, n});
        int const all = r.download(count)[0];
        r.found.expect(all == int(wanted.size()) && all <= max_tiles &&
                           all <= n_tiles * max_grouped_m_tiles(groups, std::max(1, g.ends.back()), tile_m),
                       all, " tiles, wanted ", wanted.size());
        auto const of_tile = r.download(tiles), times = r.download(counts);
        for (int i = 0; i < all; ++i) {
          auto const* const t = &of_tile[std::size_t(3 * i)];
          found.push_back({t[0], t[1], t[2]});
          r.found.expect(times[std::size_t(i)] == 1, "tile ", i, " was handed out ", times[std::size_t(i)], " times");
        }
        std::sort(found.begin(), found.end());
        std::sort(wanted.begin(), wanted.end());
        if (!r.found.expect(found == wanted, groups, " groups of ", max_rows, " rows: not every tile once")) return;
      }
  });
}

TEST_CASE("grouped_gemm: groups of any size, types, layouts and tiles", "[grouped_gemm]") {
  auto const tile = GENERATE(gemm_tile::automatic, gemm_tile::small, gemm_tile::large);
  on_ranks(
      1,
      [&](rank_of_test& r) {
        auto const check = [&]<class T>(T) {
          lcg random{unsigned(tile.m) + unsigned(std::is_same_v<T, f16>)};
          grouped_rank<T> g(r, 420, 200, 136, 64);
          grouped_gemm<T> op(r.world, {.tile = tile});
          for (int const groups : {1, 3, 8, 64})
            for (layout const b : {layout::row_major, layout::column_major})
              for (int const expected : {0, 12, 50, 200}) {
                shape const s{1 + random.below(420), 1 + random.below(200), 8 * (1 + random.below(17)), b, random()};
                bool const with_ends = random.below(2);
                if (!g.run(op, s, random_groups(random, groups, s.max_rows, with_ends ? 8 : 1), with_ends, expected))
                  return;
              }
        };
        check(bf16{});
        check(f16{});
      },
      larger_heap());
}

TEST_CASE("grouped_gemm: one giant group, empty ones, no rows at all", "[grouped_gemm]") {
  on_ranks(
      1,
      [&](rank_of_test& r) {
        grouped_rank<bf16> g(r, 700, 136, 200, 9);
        grouped_gemm<bf16> op(r.world);
        for (layout const b : {layout::row_major, layout::column_major})
          for (auto const& sizes : {std::vector{0, 0, 690, 0, 7, 0, 0, 1, 2},
                                    {700, 0, 0, 0, 0, 0, 0, 0, 0},
                                    {0, 0, 0, 0, 0, 0, 0, 0, 700},
                                    {0, 0, 0, 0, 0, 0, 0, 0, 0},
                                    {128, 128, 128, 128, 0, 64, 16, 1, 1},
                                    {1, 1, 1, 1, 1, 1, 1, 1, 1}})
            for (int const expected : {0, 1, 600})
              g.run(op, {700, 136, 200, b, unsigned(expected)}, grouping::of_sizes(sizes), false, expected);
      },
      larger_heap());
}

TEST_CASE("grouped_gemm: every tuned tile", "[grouped_gemm]") {
  on_ranks(
      1,
      [&](rank_of_test& r) {
        grouped_rank<bf16> g(r, 400, 232, 328, 4);
        for (auto const& tile : tuned_mainloops<bf16>::tiles)
          for (layout const b : {layout::row_major, layout::column_major}) {
            if (!tile.suits(b)) continue;
            grouped_gemm<bf16> op(r.world, {.tile = {tile.block_m, tile.block_n, 1}});
            int const expected = tile.block_m > 64 ? 300 : tile.block_m;
            shape const s{400, 225, 328, b, unsigned(tile.block_n)};
            std::string const said = op.describe(g.call(s, 4, false, 1, expected));
            r.found.expect(said.find(text("tiles of ", tile.block_m, " x ", tile.block_n)) != std::string::npos, said);
            g.run(op, s, grouping::of_sizes({130, 1, 0, 261}), false, expected);
          }
      },
      larger_heap());
}

TEST_CASE("grouped_gemm: offsets that lie beyond the matrices", "[grouped_gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    grouped_rank<bf16> g(r, 64, 40, 64, 3);
    grouped_gemm<bf16> op(r.world);
    shape const s{40, 40, 64, layout::column_major, 1};
    grouping const kept{{0, 30, 40}, {10, 40, 40}}, told{{-5, 30, 2000000000}, {10, 70, -7}};
    g.upload(s, kept, true);
    r.upload(told.begins, g.begins);
    r.upload(told.ends, g.ends);
    op(r.stream, g.call(s, 3, true));
    r.world.check(r.stream);
    g.compare(s, kept, s.n, [&](int i, int j, int of) { return product_of(s.seed, of, s.k, i, j); });

    // Rows that several groups claim hold anything; other memory is left alone
    grouping const twice{{0, 0, 0}, {30, 30, 30}};
    for (int const expected : {1, 64}) {
      g.upload(s, kept, true);
      r.upload(twice.begins, g.begins);
      r.upload(twice.ends, g.ends);
      op(r.stream, g.call(s, 3, true, 1, expected));
      r.world.check(r.stream);
      int const ld = s.n + 1;
      auto const found = r.download(static_cast<bf16 const*>(r.here(g.c)), std::size_t(s.max_rows * ld));
      for (int i = 0; i < s.max_rows; ++i)
        for (int j = 0; j < ld; ++j)
          r.found.expect(found[std::size_t(i * ld + j)].bits == 0xffff || (i < 30 && j < s.n), "c(", i, ", ", j,
                         ") was written");
    }
  });
}

TEST_CASE("grouped_gemm: more groups than a wave has lanes", "[grouped_gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    lcg random{5};
    grouped_rank<bf16> g(r, 420, 24, 16, 200);
    grouped_gemm<bf16> op(r.world);
    for (int const expected : {1, 16, 100})
      g.run(op, {420, 24, 16, layout::column_major, unsigned(expected)}, random_groups(random, 200, 420, 1), false,
            expected);
  });
}

TEST_CASE("grouped_gemm: epilogues: of every group, and of pairs of columns", "[grouped_gemm][pairs]") {
  on_ranks(
      1,
      [&](rank_of_test& r) {
        grouped_rank<bf16> g(r, 300, 136, 200, 5);
        std::vector<int> const by{3, -2, 0, 5, 1};
        r.upload(by, g.by);
        grouped_gemm<bf16> op(r.world);
        for (gemm_tile const& tile : {gemm_tile::automatic, gemm_tile::small, gemm_tile::large}) {
          grouped_gemm<bf16> op(r.world, {.tile = tile});
          for (layout const b : {layout::row_major, layout::column_major})
            for (int const expected : {10, 60, 200}) {
              shape const s{300, 134, 72, b, unsigned(expected)};
              grouping const groups = grouping::of_sizes({17, 0, 150, 1, 100});
              auto const sum = [&](int of, int i, int j) { return product_of(s.seed, of, s.k, i, j); };
              g.upload(s, groups, false);
              op(r.stream, g.call(s, 5, false, 1, expected), shift_by_group{r.here(g.by)});
              r.world.check(r.stream);
              g.compare(s, groups, s.n, [&](int i, int j, int of) {
                return shift_by_group::of(sum(of, i, j), by[std::size_t(of)], i, j);
              });
              r.fill(g.c, 0xff);
              op(r.stream, g.call(s, 5, false, 2, expected), product_of_pair{});
              r.world.check(r.stream);
              g.compare(s, groups, s.n / 2, [&](int i, int j, int of) {
                return product_of_pair::of(sum(of, i, 2 * j), sum(of, i, 2 * j + 1), i, j);
              });
            }
        }
      },
      larger_heap());
}

TEST_CASE("grouped_gemm: a captured call is one kernel node, and replays read the offsets anew",
          "[grouped_gemm][graph]") {
  on_ranks(1, [&](rank_of_test& r) {
    grouped_rank<bf16> g(r, 200, 72, 64, 6);
    grouped_gemm<bf16> op(r.world);
    shape s{200, 72, 64, layout::column_major, 0};
    graph const captured(r, [&] { op(r.stream, g.call(s, 6, false)); });
    r.found.expect(captured.nodes() == std::vector<hipGraphNodeType>{hipGraphNodeTypeKernel},
                   "a captured call is not one kernel node");
    lcg random{1};
    for (s.seed = 0; s.seed < 6; ++s.seed) {
      grouping const groups =
          s.seed == 3 ? grouping::of_sizes({0, 0, 0, 0, 0, 0}) : random_groups(random, 6, s.max_rows, 1);
      g.upload(s, groups, false);
      captured.launch(r.stream);
      r.world.check(r.stream);
      g.compare(s, groups, s.n, [&](int i, int j, int of) { return product_of(s.seed, of, s.k, i, j); });
    }
  });
}

TEST_CASE("grouped_gemm refuses what it cannot do, and says what it can", "[grouped_gemm][errors]") {
  on_ranks(1, [&](rank_of_test& r) {
    r.found.throws<bad_argument>("split-k", {"grouped_gemm: tile = any x any, split-k 2; expected split-k 1 or any"},
                                 [&] { grouped_gemm<bf16> op(r.world, {.tile = {.split_k = 2}}); });
    grouped_rank<bf16> g(r, 64, 32, 64, 3);
    grouped_gemm<bf16> op(r.world);
    shape const s{21, 24, 64, layout::column_major, 1};
    auto const refuses = [&](std::vector<std::string> const& pieces, auto change) {
      auto c = g.call(s, 3, true);
      change(c);
      r.found.throws<bad_argument>(pieces[0].c_str(), pieces, [&] { op(r.stream, c); });
    };
    using call = grouped_gemm_call<bf16>;
    refuses({"grouped_gemm: a is [0, 64]"}, [](call& c) { c.a.rows = 0; });
    refuses({"grouped_gemm: a is [21, 12]", "multiple of 8"}, [](call& c) { c.a.cols = 12; });
    refuses({"grouped_gemm: c is [20, 24]; expected [21, 1 to "}, [](call& c) { c.c.rows = 20; });
    refuses({"grouped_gemm: b is [32, 24]; expected [64, 24]"}, [](call& c) { c.b.rows = 32; });
    refuses({"grouped_gemm: groups = 0; expected 1 to 65535"}, [](call& c) { c.groups = 0; });
    refuses({"grouped_gemm: rows_of_group = -1"}, [](call& c) { c.rows_of_group = -1; });
    refuses({"grouped_gemm: offsets = "}, [](call& c) { c.offsets = nullptr; });
    refuses({"grouped_gemm: b_group_stride = 8; expected at least ", "multiple of 8"},
            [](call& c) { c.b_group_stride = 8; });
    refuses({"grouped_gemm: b_group_stride = ", "multiple of 8"}, [](call& c) { c.b_group_stride += 4; });
    refuses({"grouped_gemm: c = ", "overlaps offsets"},
            [](call& c) { c.offsets = reinterpret_cast<int const*>(c.c.data) + 2; });
    refuses({"overlaps"}, [](call& c) { c.c.data = const_cast<bf16*>(c.b.data) + c.b_group_stride; });
    g.run(op, s, grouping::of_sizes({10, 0, 11}), true);
  });
}

TEST_CASE("batch_invariant: grouped_gemm, a group of any number of rows", "[grouped_gemm][batch_invariant]") {
  using namespace batch_invariance;
  layout const b_layout = any_layout();
  on_ranks(1, [&](rank_of_test& r) {
    batches x(r, max_k, max_n, b_layout, 1);
    auto const offsets = r.heap.allocate<int>(2);
    grouped_gemm<bf16> op(r.world, {.tile = gemm_tile::batch_invariant});
    x.compare_c("grouped_gemm", max_n, 3, [&](int m) {
      r.upload(std::vector{0, m}, offsets);
      op(r.stream, {.a = x.rows_of_a(max_m),
                    .b = x.whole_b(),
                    .c = {r.here(x.c), max_m, max_n, max_n},
                    .offsets = r.here(offsets),
                    .groups = 1,
                    .b_layout = b_layout,
                    .rows_of_group = m});
      return std::pair(0, m);
    });
  });
}
