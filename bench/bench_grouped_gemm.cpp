// A GEMM for each group of rows: the one launch of grouped_gemm beside a loop of the vendor's GEMMs, which take turns
// in one run on the same matrices. One GPU.
//
//   bench_grouped_gemm [--groups=G,...] [--m=M,...] [--skew=S,...] [--n=N,...] [--k=K,...] [--dtypes=bf16,f16]
//                      [--variants=NAME,...] [--repeats=7] [--row_major] [--quick] [--budget=S]
//                      [Google Benchmark's options]
//
// Names: grouped_gemm/VARIANT/dtype:T/G:g/M:m/skew:s/N:n/K:k. M: rows of all groups together. Skew: the first group has
// S times the rows of any other. real_time is one iteration: the median of the repeats, each a replay of R iterations.
// measure.hpp has the protocol. Variants:
//
//   loop                the vendor's GEMM for each group, one after the other, best of its heuristics for each number
//   of
//                       rows, in a graph. It needs the number of rows on the host
//   fused               grouped_gemm, in a graph
//   fused_eager         the same, not in a graph
//
// Counters: speedup is the loop's time over this one.
#include "choose_heuristic.hpp"
#include "harness.hpp"
#include "libraries.hpp"

#include <fusewire/ops/grouped_gemm.hpp>
#include <map>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

enum class dtype { bf16, f16 };

struct shape {
  dtype type;
  int groups, m, skew, n, k;

  int iterations() const { return m > 1024 ? 8 : 32; }
  std::size_t a_size() const { return std::size_t(m) * std::size_t(k); }  // elements
  std::size_t weights() const { return std::size_t(groups) * std::size_t(k) * std::size_t(n); }
  std::size_t result() const { return std::size_t(m) * std::size_t(n); }
  double flops() const { return 2.0 * m * n * k; }
  /// The first row of each group, and the number of rows.
  std::vector<int> offsets() const {
    std::vector<int> first{0};
    for (int g = 0; g < groups; ++g)
      first.push_back(int(std::int64_t(m) * (skew + g) / (skew + groups - 1)));  // the first has `skew` shares
    return first;
  }
};

constexpr std::size_t all_weights = std::size_t(1) << 30;  // bytes, several times any L2
int weight_copies(shape const& s) { return std::max(1, int((all_weights - 1) / (s.weights() * 2)) + 1); }

struct settings {
  int repeats;
  layout b_layout;
  std::vector<std::string> variants;
};
settings set;

struct capacity {
  std::size_t a = 0, c = 0, weights = 0, result = 0;  // bytes
  int groups = 1;

  void include(shape const& s) {
    auto const R = std::size_t(s.iterations());
    a = std::max(a, R * s.a_size() * 2);
    c = std::max(c, R * s.result() * 2);
    weights = std::max(weights, std::size_t(weight_copies(s)) * s.weights() * 2);
    result = std::max(result, s.result() * 4);
    groups = std::max(groups, s.groups);
  }
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& room)
      : rank_base(w_, 64_MiB, 8_MiB), a(room.a), c(room.c), weights(room.weights), first(room.result),
        last(room.result), offsets(std::size_t(room.groups + 1) * sizeof(int)),
        workspace(blas_gemm<bf16>::workspace_bytes) {
    check_blas(vendor::blas_create(&blas) == vendor::blas_success, "create");
  }
  ~rank_state() { (void)vendor::blas_destroy(blas); }

  buffer a, c, weights;  // [R][M, K], [R][M, N], [copies][G][K, N]
  buffer first, last;    // fp32 [M, N]: references of iterations 0 and R - 1
  buffer offsets;        // [G + 1]
  buffer workspace;
  vendor::blas_handle blas{};
};

template <class T>
class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s)
      : st_(st), s_(s), offsets_(s.offsets()), copies_(weight_copies(s)),
        ldb_(set.b_layout == layout::column_major ? s.k : s.n) {
    prepare();
  }

  std::vector<figure> run() {
    auto const wanted = [](char const* name) {
      return std::find(set.variants.begin(), set.variants.end(), name) != set.variants.end();
    };
    std::vector<variant> all;
    if (wanted("loop")) add(all, "loop", loop());
    if (wanted("fused") || wanted("fused_eager")) {
      auto const op = std::make_shared<grouped_gemm<T>>(st_.w);
      for (char const* name : {"fused", "fused_eager"})
        if (wanted(name)) add(all, name, [this, op](int i) { (*op)(st_.stream(), call(i)); });
    }
    return measure(st_, all, s_.iterations(), set.repeats, [] {});
  }

 private:
  T* a(int i) const { return st_.a.template as<T>() + std::size_t(i) * s_.a_size(); }
  T* b(int i) const { return st_.weights.template as<T>() + std::size_t(i % copies_) * s_.weights(); }
  T* c(int i) const { return st_.c.template as<T>() + std::size_t(i) * s_.result(); }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).template as<float>(); }
  int rows(int g) const { return offsets_[std::size_t(g + 1)] - offsets_[std::size_t(g)]; }
  std::int64_t b_stride() const { return std::int64_t(s_.k) * s_.n; }

  grouped_gemm_call<T> call(int i) const {
    return {.a = {a(i), s_.m, s_.k, s_.k},
            .b = {b(i), s_.k, s_.n, ldb_},
            .b_group_stride = b_stride(),
            .c = {c(i), s_.m, s_.n, s_.n},
            .offsets = st_.offsets.template as<int>(),
            .groups = s_.groups,
            .b_layout = set.b_layout};
  }

  /// The vendor's GEMM of each group.
  std::function<void(int)> loop() {
    for (int g = 0; g < s_.groups; ++g) {
      if (rows(g) == 0 || products_.contains(rows(g))) continue;
      auto const one =
          std::make_shared<blas_gemm<T>>(st_.blas, st_.workspace.template as<void>(),
                                         blas_shape{rows(g), s_.n, s_.k, s_.k, ldb_, s_.n, set.b_layout, false});
      choose_heuristic(st_, *one, 2.0 * rows(g) * s_.n * s_.k,
                       [&, g](int i) { return multiply(*one, i % s_.iterations(), (g + i) % s_.groups, g); });
      products_[rows(g)] = one;
    }
    return [this](int i) {
      for (int g = 0; g < s_.groups; ++g)
        if (rows(g) > 0) check_blas(multiply(*products_.at(rows(g)), i, g, g), "matmul");
    };
  }
  /// The rows of group g times the B of group `of_b`.
  bool multiply(blas_gemm<T> const& product, int i, int of_b, int g) const {
    std::int64_t const row = offsets_[std::size_t(g)];
    return product(st_.stream(), a(i) + row * s_.k, b(i) + of_b * b_stride(), c(i) + row * s_.n);
  }

  void fill(T* to, std::size_t rows, int cols, std::uint64_t seed) const {
    fill_normal<<<dim3(2048), dim3(256), 0, st_.stream()>>>(to, std::int64_t(rows), cols, 0, 0, cols, seed);
  }
  void prepare() {
    int const R = s_.iterations();
    bool const columns = set.b_layout == layout::column_major;
    check_hip(hipMemcpy(st_.offsets.template as<int>(), offsets_.data(), offsets_.size() * sizeof(int),
                        hipMemcpyHostToDevice),
              "hipMemcpy");
    fill(st_.weights.template as<T>(), std::size_t(copies_) * std::size_t(s_.groups) * std::size_t(s_.k), s_.n, 1000);
    for (int i = 0; i < R; ++i) fill(a(i), std::size_t(s_.m), s_.k, 1 + std::uint64_t(i));
    for (int const i : {0, R - 1})
      for (int g = 0; g < s_.groups; ++g) {
        if (rows(g) == 0) continue;
        std::int64_t const row = offsets_[std::size_t(g)];
        reference_gemm<<<dim3(unsigned(ceil_div(s_.n, 64)), unsigned(ceil_div(rows(g), 64))), dim3(256), 0,
                         st_.stream()>>>(a(i) + row * s_.k, b(i) + g * b_stride(), reference(i) + row * s_.n, rows(g),
                                         s_.n, s_.k, columns ? 1 : std::int64_t(s_.n), columns ? std::int64_t(s_.k) : 1,
                                         s_.n);
      }
    check_hip(hipGetLastError(), "preparing matrices");
    check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
  }

  void add(std::vector<variant>& all, char const* name, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), std::string(name) != "fused_eager",
                   [this] {
                     check_hip(hipMemsetAsync(c(0), 0xff, std::size_t(s_.iterations()) * s_.result() * 2, st_.stream()),
                               "hipMemsetAsync");
                   },
                   [this] {
                     for (int const i : {0, s_.iterations() - 1})
                       compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(c(i), reference(i), std::int64_t(s_.result()),
                                                                          st_.scratch.as<sums>());
                   }});
  }

  rank_state& st_;
  shape s_;
  std::vector<int> offsets_;
  int copies_;
  std::int64_t ldb_;
  std::map<int, std::shared_ptr<blas_gemm<T>>> products_;  // by rows
};

struct row : shape_figures {
  shape s;
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;

std::string name_of(std::string const& variant, shape const& s) {
  return text("grouped_gemm/", variant, "/dtype:", s.type == dtype::bf16 ? "bf16" : "f16", "/G:", s.groups, "/M:", s.m,
              "/skew:", s.skew, "/N:", s.n, "/K:", s.k);
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  row const* const r = results_of(state, results, name_of("", s), variant, row{{}, s}, *ranks, [&](rank_state& st) {
    return s.type == dtype::bf16 ? shape_runner<bf16>(st, s).run() : shape_runner<f16>(st, s).run();
  });
  if (!r) return;
  figure const* const found = report_variant(state, *r, variant, s.type == dtype::bf16 ? 1e-2 : 2e-3);
  if (!found) return;
  state.counters["tflops"] = s.flops() / found->us * 1e-6;
  state.counters["weights_gb_s"] = 2.0 * double(s.weights()) / found->us * 1e-3;
  if (auto const* l = r->of("loop")) state.counters["speedup"] = l->us / found->us;
}

void print_table() {
  std::printf("\nmicroseconds of one iteration, median; speedup: over the loop of the vendor's GEMMs\n");
  std::printf("%-5s %4s %6s %5s %5s %5s |%9s %9s %9s |%8s %8s %9s\n", "dtype", "G", "M", "skew", "N", "K", "loop",
              "fused", "eager", "speedup", "TFLOP/s", "B GB/s");
  for (auto const& [key, r] : results) {
    std::printf("%-5s %4d %6d %5d %5d %5d |", r.s.type == dtype::bf16 ? "bf16" : "f16", r.s.groups, r.s.m, r.s.skew,
                r.s.n, r.s.k);
    for (char const* v : {"loop", "fused", "fused_eager"}) {
      if (auto const* f = r.of(v)) std::printf("%9.2f ", f->us);
      else std::printf("%9s ", "-");
    }
    std::printf("|");
    auto const *l = r.of("loop"), *x = r.of("fused");
    if (x && l) std::printf("%8.2f ", l->us / x->us);
    if (x) std::printf("%8.1f %9.0f", r.s.flops() / x->us * 1e-6, 2.0 * double(r.s.weights()) / x->us * 1e-3);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  command_line c(argc, argv,
                 "bench_grouped_gemm [--groups=G,...] [--m=M,...] [--skew=S,...] [--n=N,...] [--k=K,...] "
                 "[--dtypes=bf16,f16]\n"
                 "                          [--variants=NAME,...] [--repeats=7] [--row_major] [--quick] [--budget=S]\n"
                 "NAME: loop, fused, fused_eager. M: rows of all groups. --skew: the first group has S times the rows "
                 "of another.");
  using names = std::vector<std::string>;
  bool const quick = c.flag("quick");
  set = {c.number("repeats", quick ? 3 : 7), c.flag("row_major") ? layout::row_major : layout::column_major,
         c.words("variants", "loop|fused|fused_eager", names{"loop", "fused"})};
  auto const groups = c.numbers("groups", quick ? std::vector{8} : std::vector{8, 32}),
             ms = c.numbers("m", quick ? std::vector{64, 1024} : std::vector{64, 256, 1024, 4096, 8192}),
             skews = c.numbers("skew", {1, 8}), ns = c.numbers("n", {4096}), ks = c.numbers("k", {7168});
  auto const dtypes = c.words("dtypes", "bf16|f16", {"bf16"});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (gpus() < 1) {
    std::fprintf(stderr, "bench_grouped_gemm: no GPU\n");
    return 77;
  }
  capacity room;
  for (auto const& type : dtypes)
    for (int const g : groups)
      for (int const n : ns)
        for (int const k : ks)
          for (int const m : ms)
            for (int const skew : skews) {
              shape const s{type == "f16" ? dtype::f16 : dtype::bf16, g, m, skew, n, k};
              for (auto const& v : set.variants) {
                std::string const name = name_of(v, s);
                if (!selected(name)) continue;
                progress::get().plan();
                room.include(s);
                benchmark::RegisterBenchmark(name.c_str(), report, v, s)
                    ->UseManualTime()
                    ->Iterations(1)
                    ->Unit(benchmark::kMicrosecond);
              }
            }
  add_context(1);
  benchmark::AddCustomContext(vendor::blas_name, text(vendor::blas_version()));
  benchmark::AddCustomContext("b_layout", set.b_layout == layout::column_major ? "column-major" : "row-major");
  ranks = std::make_unique<team<rank_state>>(1, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  print_table();
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
