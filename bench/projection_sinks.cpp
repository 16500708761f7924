// GEMM + reduce-scatter, + all-reduce and + all-scatter on fusewire-sim --time.
//
//   projection_sinks gemm_rs|gemm_ar|gemm_all_scatter W M N K
//
// bf16, column-major B. K and N are all ranks' together: of a sum over ranks each has K / W columns of A, of an
// all-scatter N / W columns of B. All ranks begin a graph of one call together, whose weights no earlier call has
// touched. Some outputs are checked. Prints "us: TIME", the slowest rank's.
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>

#include <string>

#include "projection.hpp"

using namespace fusewire;
using namespace fusewire::projected;

namespace {

struct shape {
  int ranks, m, n, k;  // of a rank: B [k, n]
  bool sums;           // over ranks, each of which has its columns of A
};

float b_at(std::vector<bf16> const& b, shape const& s, int k, int col) {
  return float(b[std::size_t(col) * std::size_t(s.k) + std::size_t(k)]);
}

/// Some elements of C, whose row 0 is row `first` of the product. Partial sums are rounded to bf16, and so is their
/// sum; all else is exact. Fails: runtime_failure.
void check(world const& w, shape const& s, matrix<bf16> const& c, std::vector<bf16> const& b, int first) {
  std::size_t const size = std::size_t(c.rows) * std::size_t(c.cols);
  std::vector<bf16> out(size);
  check_hip(hipMemcpy(out.data(), c.data, size * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  for (std::size_t i = 0; i < size; i += size / 97 + 1) {
    int const row = int(i / std::size_t(c.cols)), col = int(i % std::size_t(c.cols));
    float want = 0, error = 0;
    for (int r = 0; r < (s.sums ? s.ranks : 1); ++r) {
      float part = 0;
      for (int k = 0; k < s.k; ++k)
        part += a_at(first + row, (s.sums ? r * s.k : 0) + k, s.sums ? s.ranks * s.k : s.k) * b_at(b, s, k, col % s.n);
      want += part;
      if (s.sums) error += std::abs(part) / 256;
    }
    require<runtime_failure>(std::abs(float(out[i]) - want) <= error + (std::abs(want) + error) / 256,
                             std::source_location::current(), "rank ", w.rank(), ": C[", row, ", ", col, "] is ",
                             float(out[i]), ", not ", want);
  }
}

/// us of the slowest rank; C has `rows` rows, the product's from `first` on, and `cols` columns.
template <class Op, class Options, class Call>
double time_of(world& w, shape const& s, int first, int rows, int cols) {
  Options const o{.max_m = s.m, .max_n = s.n, .k = s.k};
  auto const needs = Op::requirements(s.ranks, o) + requirements::of<barrier_state>(1);
  heap h(w, needs);
  channel ch(h, needs);
  Op op(ch, o);
  stopwatch watch(w, h);
  std::vector<bf16> const& b = weights_of(std::size_t(s.n) * std::size_t(s.k));
  std::vector<bf16> a(std::size_t(s.m) * std::size_t(s.k));
  for (int row = 0; row < s.m; ++row)
    for (int k = 0; k < s.k; ++k)
      a[std::size_t(row) * std::size_t(s.k) + std::size_t(k)] =
          bf16(a_at(row, (s.sums ? w.rank() * s.k : 0) + k, s.sums ? s.ranks * s.k : s.k));
  matrix<bf16> const c{allocate<bf16>(std::max<std::size_t>(1, std::size_t(rows) * std::size_t(cols))), rows, cols,
                       cols};
  Call const call{.a = {upload(allocate<bf16>(a.size()), a), s.m, s.k, s.k},
                  .b = {upload(allocate<bf16>(b.size()), b), s.k, s.n, s.k},
                  .c = c,
                  .m = s.m,
                  .b_layout = layout::column_major,
                  .b_is_constant = true};
  if (w.rank() == 0) std::printf("%s\n", op.describe(call).c_str());
  double const us = watch.time(true, [&](int) { op(w.stream(), call); });
  if (rows) check(w, s, c, b, first);
  return us;
}

double time_of(world& w, std::string const& what, shape const& s) {
  if (what == "gemm_rs") {
    int const each = ceil_div(s.m, s.ranks), first = std::min(s.m, w.rank() * each);
    return time_of<gemm_rs<bf16>, gemm_rs_options, gemm_rs_call<bf16>>(w, s, first, std::min(each, s.m - first), s.n);
  }
  if (what == "gemm_ar") return time_of<gemm_ar<bf16>, gemm_ar_options, gemm_ar_call<bf16>>(w, s, 0, s.m, s.n);
  return time_of<gemm_all_scatter<bf16>, gemm_all_scatter_options, gemm_all_scatter_call<bf16>>(w, s, 0, s.m,
                                                                                                s.ranks * s.n);
}

}  // namespace

int main(int argc, char** argv) try {
  std::string const what = argc == 6 ? argv[1] : "";
  auto const number = [&](int i) { return argc == 6 ? std::atoi(argv[i]) : 0; };
  int const ranks = number(2), m = number(3), n = number(4), k = number(5);
  bool const sums = what != "gemm_all_scatter";
  if ((what != "gemm_rs" && what != "gemm_ar" && sums) || ranks < 1 || ranks > 16 || m < 1 || n < ranks || k < 8 ||
      n % ranks || k % (8 * ranks)) {
    std::fprintf(stderr,
                 "usage: projection_sinks gemm_rs|gemm_ar|gemm_all_scatter W M N K\n"
                 "       W is 1 to 16, M at least 1, N a multiple of W, K a multiple of 8 W\n"
                 "       not: %s",
                 argc < 2 ? "no arguments\n" : "");
    for (int i = 1; i < argc; ++i) std::fprintf(stderr, "%s%s", argv[i], i + 1 < argc ? " " : "\n");
    return 2;
  }
  run_local(ranks, [&](world& w) {
    double const us = time_of(w, what, {ranks, m, sums ? n : n / ranks, sums ? k / ranks : k, sums});
    if (w.rank() == 0) std::printf("us: %.3f\n", us);
    w.barrier();
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
