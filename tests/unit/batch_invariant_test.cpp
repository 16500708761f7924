// gemm_tile::batch_invariant: a row has the same bits whatever rows are multiplied with it. Numbers are no integers, so
// another order of sums gives other bits. all_reduce has one order.
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/all_reduce.hpp>
#include <fusewire/ops/gemm.hpp>
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>
#include <fusewire/ops/grouped_gemm.hpp>

#include "support.hpp"

using namespace support;

namespace {

constexpr int max_m = 256, max_n = 40, max_k = 1032;

/// A [rows, k] and B [k, n] of random numbers. Most products of a row are large, and cancel with those k / 2 further
/// on: what other orders of adding leave of them shows in the sum of the others, though C has 8 bits.
struct operands_of_test {
  int k;
  unsigned seed;

  float random(int which, int i, int j) const {
    lcg next{seed + unsigned(which) * 7919u + unsigned(i) * 104729u + unsigned(j) * 1299709u};
    next();
    return float(bf16(float(next.below(65536) - 32768) / 32768));
  }
  bool cancels(int j) const { return j % (k / 2) % 4 != 0; }
  float a(int row, int j) const {
    if (!cancels(j)) return random(0, row, j);
    return j < k / 2 ? 256 * random(0, row, j) : -a(row, j - k / 2);
  }
  float b(int j, int column) const { return random(1, cancels(j) ? j % (k / 2) : j, column); }
};

/// What the calls of a test multiply: rows of one A, of which a batch is a range, and this rank's B.
struct batches {
  rank_of_test& r;
  int k, n;  // columns of A, which this rank has; columns of B
  layout b_layout;
  sym<bf16> a, b, c;
  std::vector<bf16> all_rows;  // of A

  batches(rank_of_test& rank, int k, int n, layout b_layout, unsigned seed_of_a)
      : r(rank), k(k), n(n), b_layout(b_layout), a(r.heap.allocate<bf16>(std::size_t(max_m * k))),
        b(r.heap.allocate<bf16>(std::size_t(k * n))), c(r.heap.allocate<bf16>(std::size_t(max_m * n) * 8)) {
    operands_of_test const of_a{k, seed_of_a}, of_b{k, 99};
    for (int i = 0; i < max_m; ++i)
      for (int j = 0; j < k; ++j) all_rows.push_back(bf16(of_a.a(i, j)));
    std::vector<bf16> values(std::size_t(k * n));
    for (int j = 0; j < k; ++j)
      for (int i = 0; i < n; ++i)
        values[std::size_t(b_layout == layout::row_major ? j * n + i : i * k + j)] = bf16(of_b.b(j, i));
    r.upload(values, b);
  }
  /// Uploads rows [first, first + m) of A.
  void upload(int first, int m) const {
    r.upload(std::vector<bf16>(all_rows.begin() + first * k, all_rows.begin() + (first + m) * k), a);
  }
  matrix<bf16 const> rows_of_a(int m) const { return {r.here(a), m, k, k}; }
  matrix<bf16 const> whole_b() const { return {r.here(b), k, n, b_layout == layout::row_major ? n : k}; }

  /// Calls run(first, m), which returns rows of a batch's result and the number of the first of them, for batches of 1
  /// to max_m rows, and compares the bits of each row with those that it had in the largest batch. `columns`: of the
  /// result. Every `step`-th size.
  template <class Run>
  void compare(char const* what, int columns, int step, Run const& run) {
    std::vector<bf16> wanted(std::size_t(max_m * columns));
    std::vector<bool> known(max_m, false);
    bool same = true;
    for (int m = max_m; m >= 1; m -= step) {
      int const begin = m % 3 == 0 ? max_m - m : m % 7 * (max_m - m) / 7;
      auto const [from, rows] = run(begin, m);
      for (std::size_t i = 0; i < rows.size() / std::size_t(columns); ++i) {
        std::size_t const row = std::size_t(begin + from) + i;
        for (std::size_t j = 0; j < std::size_t(columns); ++j) {
          bf16& w = wanted[row * std::size_t(columns) + j];
          bf16 const f = rows[i * std::size_t(columns) + j];
          if (!known[row]) w = f;
          else if (same)  // the first difference is told, and other ranks still wait for this one's launches
            same = r.found.expect(w.bits == f.bits, what, ", ", m, " rows from ", begin, ": row ", row, ", column ", j,
                                  " is ", float(f), ", before ", float(w));
        }
        known[row] = true;
      }
    }
  }
  /// The same of an operator's C [rows, columns].
  template <class Launch>
  void compare_c(char const* what, int columns, int step, Launch const& launch) {
    compare(what, columns, step, [&](int first, int m) {
      upload(first, m);
      r.fill(c, 0xff);
      auto const [from, rows] = launch(m);
      r.world.check(r.stream);
      return std::pair(from, r.download(static_cast<bf16 const*>(r.here(c)), std::size_t(rows * columns)));
    });
  }
};

heap_options large_heap() {
  heap_options h = small_heap();
  h.bulk = 24_MiB, h.signal = 16_MiB;
  return h;
}
layout any_layout() { return GENERATE(layout::column_major, layout::row_major); }

template <template <class> class Call>
Call<bf16> call_of(batches const& x, int m, int c_rows, int c_columns) {
  return {.a = x.rows_of_a(m),
          .b = x.whole_b(),
          .c = {x.r.here(x.c), c_rows, c_columns, c_columns},
          .m = m,
          .b_layout = x.b_layout};
}
template <class Op, class Options>
channel_options channel_for(int ranks, Options const& o) {
  return channel_options::of(Op::requirements(ranks, o));
}

}  // namespace

TEST_CASE("batch_invariant: gemm, every number of rows from 1 to 256", "[gemm][batch_invariant]") {
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

TEST_CASE("batch_invariant: grouped_gemm, a group of any number of rows", "[grouped_gemm][batch_invariant]") {
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

TEST_CASE("batch_invariant: a B that no tuned mainloop reads", "[gemm][batch_invariant]") {
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

TEST_CASE("batch_invariant: gemm_rs, gemm_ar and gemm_all_scatter, every number of rows from 1 to 256",
          "[gemm_rs][gemm_ar][gemm_all_scatter][batch_invariant]") {
  layout const b_layout = any_layout();
  int const ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        constexpr int k = 200;
        int const step = ranks == 2 ? 1 : 9;
        batches x(r, k, max_n, b_layout, 1 + unsigned(r.rank()));
        gemm_rs_options const rs_options{.max_m = max_m, .max_n = max_n, .k = k, .tile = gemm_tile::batch_invariant};
        gemm_ar_options const ar_options{.max_m = max_m, .max_n = max_n, .k = k, .tile = gemm_tile::batch_invariant};
        gemm_all_scatter_options const as_options{
            .max_m = max_m, .max_n = max_n, .k = k, .tile = gemm_tile::batch_invariant};
        channel of_rs(r.heap, channel_for<gemm_rs<bf16>>(ranks, rs_options)),
            of_ar(r.heap, channel_for<gemm_ar<bf16>>(ranks, ar_options)),
            of_as(r.heap, channel_for<gemm_all_scatter<bf16>>(ranks, as_options));
        gemm_rs<bf16> rs(of_rs, rs_options);
        gemm_ar<bf16> ar(of_ar, ar_options);
        gemm_all_scatter<bf16> as(of_as, as_options);
        x.compare_c("gemm_rs", max_n, step, [&](int m) {
          row_shards const shards(m, ranks, 1);
          rs(r.stream, call_of<gemm_rs_call>(x, m, rs.rows(m), max_n));
          return std::pair(shards.first_row(r.rank()), rs.rows(m));
        });
        x.compare_c("gemm_ar", max_n, step, [&](int m) {  // one-shot, then two-shot
          ar(r.stream, call_of<gemm_ar_call>(x, m, m, max_n));
          return std::pair(0, m);
        });
        x.compare_c("gemm_all_scatter", ranks * max_n, 7, [&](int m) {
          as(r.stream, call_of<gemm_all_scatter_call>(x, m, m, ranks * max_n));
          return std::pair(0, m);
        });
      },
      large_heap());
}

TEST_CASE("batch_invariant: ag_gemm along both dimensions, every number of rows from 1 to 256",
          "[ag_gemm][batch_invariant]") {
  layout const b_layout = any_layout();
  auto const by = GENERATE(gather::k, gather::m);
  int const ranks = GENERATE(2, 3), k = by == gather::k ? 344 * ranks : 600;  // no shard in whole steps
  CAPTURE(int(by), ranks);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        // All ranks know the gathered A, and pass their part of it
        batches x(r, k, max_n, b_layout, 1);
        ag_gemm_options const o{.max_m = max_m, .k = k, .gather = by, .tile = gemm_tile::batch_invariant};
        channel ch(r.heap, channel_for<ag_gemm<bf16>>(ranks, o));
        ag_gemm<bf16> op(ch, o);
        x.compare("ag_gemm", max_n, ranks == 2 ? 1 : 9, [&](int first, int m) {
          gather_map const map{by, m, k, ranks, 128, 512};
          int const rows = map.rows(r.rank()), cols = map.cols(), row0 = first + map.first_row(r.rank()),
                    col0 = map.first_col(r.rank());
          std::vector<bf16> mine;
          for (int i = 0; i < rows; ++i) {
            auto const row = x.all_rows.begin() + (row0 + i) * k + col0;
            mine.insert(mine.end(), row, row + cols);
          }
          if (rows > 0) r.upload(mine, x.a);
          r.fill(x.c, 0xff);
          op(r.stream, {.a = {r.here(x.a), rows, cols, cols},
                        .b = x.whole_b(),
                        .c = {r.here(x.c), m, max_n, max_n},
                        .m = m,
                        .b_layout = b_layout});
          r.world.check(r.stream);
          return std::pair(0, r.download(static_cast<bf16 const*>(r.here(x.c)), std::size_t(m * max_n)));
        });
      },
      large_heap());
}

TEST_CASE("batch_invariant: all_reduce with a norm, every number of rows from 1 to 256, whatever the options",
          "[all_reduce][batch_invariant]") {
  int const ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        constexpr int cols = 520;
        batches x(r, cols, cols, layout::row_major, 1 + unsigned(r.rank()));
        all_reduce_options const o{.max_rows = max_m, .max_cols = cols};
        channel ch(r.heap, channel_for<all_reduce<bf16>>(ranks, o));
        all_reduce<bf16> op(ch, o);
        x.compare_c("all_reduce", cols, ranks == 2 ? 1 : 9, [&](int m) {  // LL words, then flags
          op(r.stream, x.rows_of_a(m), rms_norm<bf16>{.gamma = r.here(x.b), .norm_out = {r.here(x.c), m, cols, cols}});
          return std::pair(0, m);
        });
      },
      large_heap());
}
