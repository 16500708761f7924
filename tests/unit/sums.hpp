// GEMMs whose products are added up over all ranks, and their comparison with a reference.
#pragma once
#include <fusewire/comm/reduce_scatter_sink.hpp>
#include <fusewire/gemm/epilogue.hpp>

#include "counted.hpp"
#include "reference/products.hpp"
#include "support.hpp"

namespace support {

/// One call: its shape, and the elements of A and B on each rank.
struct problem {
  int m, n, k;
  layout b_layout;
  unsigned seed;

  float a(int rank, int i, int j) const { return a_of(seed, rank, i, j); }
  float b(int rank, int j, int column) const { return b_of(seed, rank, j, column); }
  /// An element of the sum over ranks, whose partial sums are rounded to Partial; one rank has none.
  template <class Partial>
  float c(int ranks, int i, int column) const {
    if (ranks == 1) return product_of(seed, 0, k, i, column);
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += float(Partial(product_of(seed, r, k, i, column)));
    return sum;
  }
};

/// One rank's memory for problems up to a capacity, and calls of Op on it. Scattered: C is this rank's
/// rows, else all of it.
template <class Op, template <class> class Call, class T, bool Scattered, class Partial = T>
struct sum_rank {
  rank_of_test& r;
  sym<T> a, b, c;

  sum_rank(rank_of_test& rank, int max_m, int max_n, int k)
      : r(rank), a(r.heap.allocate<T>(std::size_t(max_m * k))), b(r.heap.allocate<T>(std::size_t(max_n * k))),
        c(r.heap.allocate<T>(std::size_t(max_m * max_n))) {}

  int first_row(problem const& p) const { return Scattered ? row_shards(p.m, r.size(), 1).first_row(r.rank()) : 0; }
  int rows(problem const& p) const { return Scattered ? row_shards(p.m, r.size(), 1).rows(r.rank()) : p.m; }

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
  Call<T> call(problem const& p) const {
    Call<T> x;
    x.a = {r.here(a), p.m, p.k, p.k};
    x.b = {r.here(b), p.k, p.n, p.b_layout == layout::row_major ? p.n : p.k};
    x.c = {r.here(c), rows(p), p.n, p.n};
    if constexpr (requires { x.m; }) x.m = p.m;
    x.b_layout = p.b_layout;
    return x;
  }
  /// Uploads, launches, overwrites A and B immediately, and compares.
  template <class Epilogue = identity, class Wanted = float (*)(float, int, int)>
  void run(
      Op& op, problem const& p, Epilogue const& epilogue = {}, Wanted wanted = [](float x, int, int) { return x; }) {
    upload(p);
    op(r.stream, call(p), epilogue);
    check_hip(hipMemsetAsync(r.here(a), 0xff, a.count * sizeof(T), r.stream), "hipMemsetAsync");
    check_hip(hipMemsetAsync(r.here(b), 0xff, b.count * sizeof(T), r.stream), "hipMemsetAsync");
    r.world.check(r.stream);
    compare(p, wanted);
  }
  template <class Wanted>
  void compare(problem const& p, Wanted wanted) {
    auto const found = r.download(static_cast<T const*>(r.here(c)), std::size_t(rows(p) * p.n));
    for (int i = 0; i < rows(p); ++i)
      for (int j = 0; j < p.n; ++j) {
        float const f = float(found[std::size_t(i * p.n + j)]),
                    w = float(T(wanted(p.template c<Partial>(r.size(), first_row(p) + i, j), i, j)));
        if (!r.found.expect(f == w, "m ", p.m, " n ", p.n, " k ", p.k,
                            p.b_layout == layout::row_major ? " row" : " column", ": c(", i, ", ", j, ") = ", f,
                            ", wanted ", w))
          return;
      }
  }
};

/// Runs op once on numbers in [-1, 1], and compares with fp64. Each of the W partial sums is rounded once to Partial, C
/// once to T, with unit roundoffs u: |error| <= u(Partial) sum of |partial| + u(T) |C|, and the fp32 sums' k 2^-24 of
/// the sum of |a b|.
template <class Rank, class Op>
void compare_with_fp64(Rank& g, Op& op, problem const& p, double u_partial, double u) {
  auto const value = [&](int which, int rank, int i, int j) {
    lcg random{p.seed + unsigned(which + 2 * rank) * 7919u + unsigned(i) * 104729u + unsigned(j) * 1299709u};
    random();
    return double(float(bf16(float(int(random() >> 16 & 0xffff) - 32768) / 32768)));
  };
  std::vector<bf16> a(std::size_t(p.m * p.k)), b(std::size_t(p.n * p.k));
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.k; ++j) a[std::size_t(i * p.k + j)] = bf16(float(value(0, g.r.rank(), i, j)));
  for (int col = 0; col < p.n; ++col)
    for (int j = 0; j < p.k; ++j) b[std::size_t(col * p.k + j)] = bf16(float(value(1, g.r.rank(), col, j)));
  g.r.upload(a, g.a);
  g.r.upload(b, g.b);
  op(g.r.stream, g.call(p));
  g.r.world.check(g.r.stream);
  auto const found = g.r.download(g.c);
  double worst = 0;  // error, in units of its bound
  for (int i = 0; i < g.rows(p); ++i)
    for (int col = 0; col < p.n; ++col) {
      double sum = 0, partials = 0, products = 0;
      for (int r = 0; r < g.r.size(); ++r) {
        double partial = 0;
        for (int j = 0; j < p.k; ++j) {
          double const product = value(0, r, g.first_row(p) + i, j) * value(1, r, col, j);
          partial += product, products += std::abs(product);
        }
        sum += partial, partials += std::abs(partial);
      }
      double const bound = u_partial * partials + u * std::abs(sum) + products * p.k * 0x1p-24,
                   error = std::abs(double(float(found[std::size_t(i * p.n + col)])) - sum);
      worst = std::max(worst, error / bound);
    }
  g.r.found.expect(worst <= 1 && worst > 0.2, "the largest error is ", worst, " of its bound");
}

inline problem random_problem(lcg& random, int max_m, int max_n, int k) {
  return {1 + random.below(random.below(2) ? max_m : 8), 1 + random.below(max_n), k,
          random.below(2) ? layout::row_major : layout::column_major, random()};
}

}  // namespace support
