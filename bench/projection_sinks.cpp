// GEMM + reduce-scatter, + all-reduce and + all-scatter on fusewire-sim --time.
//
//   projection_sinks gemm_rs|gemm_ar|gemm_ar_one_shot|gemm_ar_two_shot|gemm_all_scatter W M N K
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

/// us of the slowest rank; C has `rows` rows, the product's from `first` on, and `cols` columns.
template <class Op, class Call, class Options>
double time_of(world& w, shape const& s, Options o, int first, int rows, int cols) {
  o.max_m = s.m, o.max_n = s.n, o.k = s.k;
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
  if (rows) check_product(w, c, b, s.n, s.k, s.sums ? s.ranks : 1, first);
  return us;
}

double time_of(world& w, std::string const& what, shape const& s) {
  if (what == "gemm_rs") {
    int const each = ceil_div(s.m, s.ranks), first = std::min(s.m, w.rank() * each);
    return time_of<gemm_rs<bf16>, gemm_rs_call<bf16>>(w, s, gemm_rs_options{}, first, std::min(each, s.m - first), s.n);
  }
  if (what == "gemm_all_scatter")
    return time_of<gemm_all_scatter<bf16>, gemm_all_scatter_call<bf16>>(w, s, gemm_all_scatter_options{}, 0, s.m,
                                                                        s.ranks * s.n);
  gemm_ar_options const o{.shots = what == "gemm_ar_one_shot"   ? reduce_algorithm::one_shot
                                   : what == "gemm_ar_two_shot" ? reduce_algorithm::two_shot
                                                                : reduce_algorithm::automatic};
  return time_of<gemm_ar<bf16>, gemm_ar_call<bf16>>(w, s, o, 0, s.m, s.n);
}

}  // namespace

int main(int argc, char** argv) try {
  std::string const what = argc == 6 ? argv[1] : "";
  auto const number = [&](int i) { return argc == 6 ? std::atoi(argv[i]) : 0; };
  int const ranks = number(2), m = number(3), n = number(4), k = number(5);
  bool const sums = what == "gemm_rs" || what == "gemm_ar" || what == "gemm_ar_one_shot" || what == "gemm_ar_two_shot";
  if ((!sums && what != "gemm_all_scatter") || ranks < 1 || ranks > 16 || m < 1 || n < ranks || k < 8 || n % ranks ||
      k % (8 * ranks)) {
    std::fprintf(stderr,
                 "usage: projection_sinks gemm_rs|gemm_ar|gemm_ar_one_shot|gemm_ar_two_shot|gemm_all_scatter W M N K\n"
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
