// gemm_tile::batch_invariant: a row has the same bits whatever rows are multiplied with it. Numbers are no integers, so
// another order of sums gives other bits. all_reduce has one order.
#pragma once
#include <fusewire/gemm/gemm_plan.hpp>

#include "support.hpp"

namespace batch_invariance {
using namespace support;

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

inline heap_options large_heap() {
  heap_options h = small_heap();
  h.bulk = 24_MiB, h.signal = 16_MiB;
  return h;
}
inline layout any_layout() { return GENERATE(layout::column_major, layout::row_major); }

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

/// Every number of rows, by an operator of two ranks, and every ninth by one of three. launch(op, x, m) multiplies a
/// batch and returns what compare_c() takes. all_columns: C has the columns of all ranks.
template <class Op, class Options, class Launch>
void compare_on_ranks(char const* what, bool all_columns, Launch const& launch) {
  layout const b_layout = any_layout();
  int const ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        constexpr int k = 200;
        batches x(r, k, max_n, b_layout, 1 + unsigned(r.rank()));
        Options const o{.max_m = max_m, .max_n = max_n, .k = k, .tile = gemm_tile::batch_invariant};
        channel ch(r.heap, channel_for<Op>(ranks, o));
        Op op(ch, o);
        x.compare_c(what, all_columns ? ranks * max_n : max_n, ranks == 2 ? 1 : 9,
                    [&](int m) { return launch(op, x, m); });
      },
      large_heap());
}

}  // namespace batch_invariance
