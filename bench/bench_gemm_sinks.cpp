// GEMM + reduce-scatter, + all-reduce and + all-scatter: the fused operator, its bulk-synchronous twin and the bare
// GEMM, which take turns in one run on the same matrices.
//
//   bench_gemm_sinks [--ranks=W] [--m=M,...] [--n=N,...] [--k=K,...] [--dtypes=bf16,f16]
//                    [--operators=gemm_rs,gemm_ar,gemm_all_scatter] [--variants=NAME,...] [--repeats=7] [--row_major]
//                    [--quick] [--late=US,...] [--budget=S] [Google Benchmark's options]
//
// Names: OPERATOR/VARIANT/dtype:T/W:w/M:m/N:n/K:k. N and K are those of all ranks together. Each rank has K / W, and of
// gemm_all_scatter N / W. real_time is one iteration of the slowest rank: the median of the repeats, each a replay of R
// iterations. measure.hpp has the protocol. Variants:
//
//   gemm                  the vendor's GEMM of one rank's share, best of its heuristics; no communication
//   collective            the vendor's reduce-scatter, all-reduce or all-gather alone, of 16-bit elements
//   bsp_eager, bsp_graph  GEMM, then the collective, which adds up the GEMM's rounded results; for gemm_all_scatter a
//                         kernel after it moves the ranks' columns side by side, unless there is only one row
//   one_shot, two_shot    gemm_ar with reduce_algorithm::one_shot or reduce_algorithm::two_shot
//   fused                 the operator; gemm_ar with the shots that it chooses. Partial sums travel in 16 bits
//   fused_eager           as fused, not in a graph
//
// Counters: x_gemm is time over the bare GEMM's, speedup is the better twin's time over this one.
#include "choose_heuristic.hpp"
#include "harness.hpp"
#include "libraries.hpp"

#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_rs.hpp>
#include <map>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

enum class operation { gemm_rs, gemm_ar, gemm_all_scatter };
constexpr char const* operation_names[] = {"gemm_rs", "gemm_ar", "gemm_all_scatter"};
enum class dtype { bf16, f16 };

struct shape {
  operation what;
  dtype type;
  int ranks, m, n, k;

  bool scatters() const { return what == operation::gemm_all_scatter; }
  int iterations() const { return m > 1024 ? 16 : 48; }
  int own_k() const { return scatters() ? k : k / ranks; }
  int own_n() const { return scatters() ? n / ranks : n; }
  int rows() const { return what == operation::gemm_rs ? m / ranks : m; }       // of c
  std::size_t a_size() const { return std::size_t(m) * std::size_t(own_k()); }  // elements
  std::size_t weights() const { return std::size_t(own_k()) * std::size_t(own_n()); }
  std::size_t product() const { return std::size_t(m) * std::size_t(own_n()); }  // of one rank
  std::size_t products() const { return std::size_t(m) * std::size_t(n); }       // their sum, or side by side
  std::size_t result() const { return std::size_t(rows()) * std::size_t(n); }
  double flops() const { return 2.0 * m * own_n() * own_k(); }
  /// Whether each rank's share is whole, and the collective's shares are equal.
  bool divides() const {
    return k % 8 == 0 && (scatters() ? n % (8 * ranks) == 0 : k % (8 * ranks) == 0) &&
           (what != operation::gemm_rs || m % ranks == 0);
  }
};

constexpr std::size_t all_weights = std::size_t(1) << 30;  // bytes, several times any L2
int weight_copies(shape const& s) { return std::max(2, int((all_weights - 1) / (s.weights() * 2)) + 1); }

struct settings {
  int ranks, repeats;
  layout b_layout;
  std::vector<std::string> variants;
  std::vector<int> late;  // us
};
settings set;

gemm_rs_options rs_options(shape const& s) { return {.max_m = s.m, .max_n = s.n, .k = s.own_k()}; }
gemm_ar_options ar_options(std::string const& variant, shape const& s) {
  return {.max_m = s.m,
          .max_n = s.n,
          .k = s.own_k(),
          .shots = variant == "one_shot"   ? reduce_algorithm::one_shot
                   : variant == "two_shot" ? reduce_algorithm::two_shot
                                           : reduce_algorithm::automatic};
}
gemm_all_scatter_options scatter_options(shape const& s) { return {.max_m = s.m, .max_n = s.own_n(), .k = s.own_k()}; }

struct capacity {
  std::size_t a = 0, c = 0, weights = 0, product = 0, products = 0, gathered = 0, slot = 0;  // bytes
  int flags = 1;

  void include(shape const& s, std::string const& variant) {
    auto const R = std::size_t(s.iterations());
    auto const grow = [](std::size_t& x, std::size_t to) { x = std::max(x, to); };
    grow(a, R * s.a_size() * 2);
    grow(c, R * s.result() * 2);
    grow(weights, std::size_t(weight_copies(s)) * s.weights() * 2);
    grow(product, s.product() * 2);
    grow(products, s.products() * 4);
    grow(gathered, s.scatters() ? s.products() * 2 : 0);
    if (s.what == operation::gemm_rs) include_channel<gemm_rs<bf16>>(s, rs_options(s));
    else if (s.what == operation::gemm_ar) include_channel<gemm_ar<bf16>>(s, ar_options(variant, s));
    else include_channel<gemm_all_scatter<bf16>>(s, scatter_options(s));
  }

 private:
  template <class Op, class Options>
  void include_channel(shape const& s, Options const& o) {
    slot = std::max(slot, Op::max_bytes(s.ranks, o));
    flags = std::max(flags, Op::flags_per_source(s.ranks, o));
  }
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(w_, round_up(2 * c.slot + 64_MiB, 2_MiB), 128_MiB),
        ch(h, {.max_bytes = c.slot, .flags_per_source = c.flags}), nccl(w_), product(nccl.allocate(c.product)),
        gathered(nccl.allocate(c.gathered)), c(nccl.allocate(c.c)), a(c.a), weights(c.weights), first(c.products),
        last(c.products), workspace(blas_gemm<bf16>::workspace_bytes) {
    check_blas(vendor::blas_create(&blas) == vendor::blas_success, "create");
  }
  ~rank_state() { (void)vendor::blas_destroy(blas); }

  channel ch;
  collectives nccl;
  // Registered. The twin's product of this rank's share; gathered by ranks: [W][M, N / W]; results: [R][rows, N]
  std::byte *product, *gathered, *c;
  buffer a, weights;   // [R][M, own K], [copies][own K, own N]
  buffer first, last;  // fp32 [M, N]: references of iterations 0 and R - 1
  buffer workspace;
  vendor::blas_handle blas{};
  std::string prepared;  // the shape whose matrices are there
};

template <class T>
class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s)
      : st_(st), s_(s), copies_(weight_copies(s)), ldb_(set.b_layout == layout::column_major ? s.own_k() : s.own_n()) {
    prepare();
  }

  std::vector<figure> run() {
    auto const wanted = [](char const* name) {
      return std::find(set.variants.begin(), set.variants.end(), name) != set.variants.end();
    };
    bool const bsp = wanted("bsp_eager") || wanted("bsp_graph");
    std::vector<variant> all;
    auto const product = std::make_shared<blas_gemm<T>>(
        st_.blas, st_.workspace.template as<void>(),
        blas_shape{s_.m, s_.own_n(), s_.own_k(), s_.own_k(), ldb_, s_.own_n(), set.b_layout, false});
    auto const multiply = [this, product](int i) {
      return (*product)(st_.stream(), a(i), b(i), reinterpret_cast<T*>(st_.product));
    };
    if (wanted("gemm") || bsp)
      choose_heuristic(st_, *product, s_.flops(), [&](int i) { return multiply(i % s_.iterations()); });
    if (wanted("gemm")) all.push_back({"gemm", [multiply](int i) { check_blas(multiply(i), "matmul"); }, true, {}, {}});
    if (wanted("collective")) all.push_back({"collective", [this](int i) { collect(i); }, true, {}, {}});
    auto const twin = [this, multiply](int i) {
      check_blas(multiply(i), "matmul");
      collect(i);
      if (needs_joining())
        join_columns<<<dim3(unsigned(std::min(1056, ceil_div(int(s_.result() / 8), 256)))), dim3(256), 0,
                       st_.stream()>>>(reinterpret_cast<bytes16 const*>(st_.gathered), reinterpret_cast<bytes16*>(c(i)),
                                       s_.m, s_.own_n() / 8, s_.ranks);
    };
    if (wanted("bsp_eager")) add(all, "bsp_eager", false, twin);
    if (wanted("bsp_graph")) add(all, "bsp_graph", true, twin);
    for (char const* name : {"one_shot", "two_shot", "fused", "fused_eager"})
      if (wanted(name) && (s_.what == operation::gemm_ar || name[0] == 'f')) fused(all, name);
    add_late(all, set.late);
    auto figures = measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(); });
    for (auto const& f : refused_) figures.push_back(f);
    return figures;
  }

 private:
  T* a(int i) const { return st_.a.template as<T>() + std::size_t(i) * s_.a_size(); }
  T* b(int i) const { return st_.weights.template as<T>() + std::size_t(i % copies_) * s_.weights(); }
  T* c(int i) const { return reinterpret_cast<T*>(st_.c) + std::size_t(i) * s_.result(); }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).template as<float>(); }

  /// Whether the all-gather leaves the columns of a row apart.
  bool needs_joining() const { return s_.scatters() && s_.m > 1 && s_.ranks > 1; }

  void collect(int i) const {
    T const* const mine = reinterpret_cast<T const*>(st_.product);
    if (s_.what == operation::gemm_rs) st_.nccl.reduce_scatter(st_.stream(), mine, c(i), s_.product());
    else if (s_.what == operation::gemm_ar) st_.nccl.all_reduce(st_.stream(), mine, c(i), s_.product());
    else
      st_.nccl.all_gather(st_.stream(), mine, needs_joining() ? st_.gathered : reinterpret_cast<std::byte*>(c(i)),
                          s_.product() * sizeof(T));
  }

  void fill(T* to, std::size_t rows, int cols, std::uint64_t seed) const {
    fill_normal<<<dim3(2048), dim3(256), 0, st_.stream()>>>(to, std::int64_t(rows), cols, 0, 0, cols, seed);
  }

  /// Fills matrices of this shape, different on every rank, and the references of the first and the last iteration.
  void prepare() {
    std::string const key = text(int(s_.what), ' ', int(s_.type), ' ', s_.m, ' ', s_.n, ' ', s_.k);
    if (st_.prepared == key) return;
    int const R = s_.iterations(), rank = st_.w.rank(), k = s_.own_k(), n = s_.own_n();
    bool const columns = set.b_layout == layout::column_major;
    // All ranks of gemm_all_scatter have the same A
    std::uint64_t const seed_of_a = s_.scatters() ? 0 : 10'000 * std::uint64_t(rank);
    fill(st_.weights.template as<T>(), std::size_t(copies_) * std::size_t(k), n, 1000 + std::uint64_t(rank));
    for (int i = 0; i < R; ++i) fill(a(i), std::size_t(s_.m), k, 1 + std::uint64_t(i) + seed_of_a);
    for (int const i : {0, R - 1}) {  // what other ranks add is zero here
      check_hip(hipMemsetAsync(reference(i), 0, s_.products() * sizeof(float), st_.stream()), "hipMemsetAsync");
      reference_gemm<<<dim3(unsigned(ceil_div(n, 64)), unsigned(ceil_div(s_.m, 64))), dim3(256), 0, st_.stream()>>>(
          a(i), b(i), reference(i) + (s_.scatters() ? rank * n : 0), s_.m, n, k, columns ? 1 : std::int64_t(n),
          columns ? std::int64_t(k) : 1, s_.n);
      if (s_.ranks > 1) st_.nccl.all_reduce(st_.stream(), reference(i), reference(i), s_.products());
    }
    check_hip(hipGetLastError(), "preparing matrices");
    check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
    st_.prepared = key;
  }

  void add(std::vector<variant>& all, char const* name, bool graph, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), graph,
                   [this] {
                     check_hip(hipMemsetAsync(c(0), 0xff, std::size_t(s_.iterations()) * s_.result() * 2, st_.stream()),
                               "hipMemsetAsync");
                   },
                   [this] {
                     std::size_t const mine =
                         s_.what == operation::gemm_rs ? std::size_t(st_.w.rank()) * s_.result() : 0;
                     for (int const i : {0, s_.iterations() - 1})
                       compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(
                           c(i), reference(i) + mine, std::int64_t(s_.result()), st_.scratch.as<sums>());
                   }});
  }

  template <class Op>
  void launches(std::vector<variant>& all, char const* name, std::shared_ptr<Op> op) {
    add(all, name, std::string(name) != "fused_eager", [this, op](int i) {
      (*op)(st_.stream(), {.a = {a(i), s_.m, s_.own_k(), s_.own_k()},
                           .b = {b(i), s_.own_k(), s_.own_n(), ldb_},
                           .c = {c(i), s_.rows(), s_.n, s_.n},
                           .m = s_.m,
                           .b_layout = set.b_layout,
                           .b_is_constant = true});
    });
  }
  void fused(std::vector<variant>& all, char const* name) {
    try {
      if (s_.what == operation::gemm_rs) launches(all, name, std::make_shared<gemm_rs<T>>(st_.ch, rs_options(s_)));
      else if (s_.what == operation::gemm_ar)
        launches(all, name, std::make_shared<gemm_ar<T>>(st_.ch, ar_options(name, s_)));
      else launches(all, name, std::make_shared<gemm_all_scatter<T>>(st_.ch, scatter_options(s_)));
    } catch (error const& e) {  // on all ranks alike
      refused_.push_back({.name = name, .failure = e.what()});
    }
  }

  rank_state& st_;
  shape s_;
  int copies_;
  std::int64_t ldb_;
  std::vector<figure> refused_;
};

struct row : shape_figures {
  shape s;
  /// The faster one of the bulk-synchronous twins.
  figure const* twin() const { return faster("bsp_eager", "bsp_graph"); }
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;

/// The benchmark's name. "/late:US" of a variant's name goes to the end.
std::string name_of(std::string const& variant, shape const& s) {
  auto const slash = std::min(variant.find('/'), variant.size());
  return text(operation_names[int(s.what)], "/", variant.substr(0, slash),
              "/dtype:", s.type == dtype::bf16 ? "bf16" : "f16", "/W:", s.ranks, "/M:", s.m, "/N:", s.n, "/K:", s.k,
              variant.substr(slash));
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  row const* const r = results_of(state, results, name_of("", s), variant, row{{}, s}, *ranks, [&](rank_state& st) {
    return s.type == dtype::bf16 ? shape_runner<bf16>(st, s).run() : shape_runner<f16>(st, s).run();
  });
  if (!r) return;
  figure const* const found = report_variant(state, *r, variant, s.type == dtype::bf16 ? 1e-2 : 2e-3);
  if (!found) return;
  if (variant != "collective") state.counters["tflops"] = s.flops() / found->us * 1e-6;
  if (variant.find('/') != std::string::npos) return;  // ranks that are late are compared with each other
  if (auto const* g = r->of("gemm")) state.counters["x_gemm"] = found->us / g->us;
  if (auto const* t = r->twin()) state.counters["speedup"] = t->us / found->us;
}

void print_table() {
  std::printf("\nmicroseconds of one iteration, slowest rank, median; x: fused over the bare GEMM; speedup: over the "
              "better twin; N and K of all ranks; NVLS off\n");
  std::printf("%-16s %-5s %2s %5s %5s %5s |%9s %10s %9s %9s %9s %9s %9s |%6s %7s %7s\n", "operator", "dtype", "W", "M",
              "N", "K", "gemm", "collective", "eager", "graph", "one-shot", "two-shot", "fused", "x", "speedup",
              "TFLOP/s");
  double speedups = 0, least = 1e30;
  int count = 0;
  for (auto const& [key, r] : results) {
    std::printf("%-16s %-5s %2d %5d %5d %5d |", operation_names[int(r.s.what)],
                r.s.type == dtype::bf16 ? "bf16" : "f16", r.s.ranks, r.s.m, r.s.n, r.s.k);
    for (char const* v : {"gemm", "collective", "bsp_eager", "bsp_graph", "one_shot", "two_shot", "fused"}) {
      int const width = std::string(v) == "collective" ? 10 : 9;
      if (auto const* f = r.of(v)) std::printf("%*.2f ", width, f->us);
      else std::printf("%*s ", width, "-");
    }
    std::printf("|");
    auto const *g = r.of("gemm"), *t = r.twin(), *x = r.of("fused");
    if (x && g) std::printf("%6.2f ", x->us / g->us);
    if (x && t) {
      std::printf("%7.2f ", t->us / x->us);
      speedups += std::log(t->us / x->us), least = std::min(least, t->us / x->us), ++count;
    }
    if (x) std::printf("%7.1f", r.s.flops() / x->us * 1e-6);
    std::printf("\n");
  }
  if (count > 0)
    std::printf("speedup: geometric mean %.2f, least %.2f of %d rows\n", std::exp(speedups / count), least, count);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  command_line c(argc, argv,
                 "bench_gemm_sinks [--ranks=W] [--m=M,...] [--n=N,...] [--k=K,...] [--dtypes=bf16,f16] "
                 "[--operators=gemm_rs,gemm_ar,gemm_all_scatter]\n"
                 "                        [--variants=NAME,...] [--repeats=7] [--row_major] [--quick] [--late=US,...] "
                 "[--budget=S]\n"
                 "NAME: gemm, collective, bsp_eager, bsp_graph, one_shot, two_shot, fused, fused_eager. N and K are "
                 "all ranks' together. --late: round robin, one rank\n"
                 "per iteration is late.");
  using names = std::vector<std::string>;
  bool const quick = c.flag("quick");
  int const of = c.number("ranks", std::max(1, gpus()));
  names const usual = of == 1 ? names{"gemm", "fused"}
                              : names{"gemm", "collective", "bsp_eager", "bsp_graph", "one_shot", "two_shot", "fused"};
  set = {of, c.number("repeats", quick ? 3 : 7), c.flag("row_major") ? layout::row_major : layout::column_major,
         c.words("variants", "gemm|collective|bsp_eager|bsp_graph|one_shot|two_shot|fused|fused_eager", usual),
         late_times(c, false)};
  auto const ms = c.numbers("m", quick ? std::vector{1, 16, 128, 1024, 4096}
                                       : std::vector{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192});
  auto const ns = c.numbers("n", {8192}), ks = c.numbers("k", quick ? std::vector{8192} : std::vector{8192, 28672});
  auto const dtypes = c.words("dtypes", "bf16|f16", {"bf16"}),
             operators =
                 c.words("operators", "gemm_rs|gemm_ar|gemm_all_scatter", {"gemm_rs", "gemm_ar", "gemm_all_scatter"});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_gemm_sinks: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  capacity room;
  for (auto const& op : operators)
    for (auto const& type : dtypes)
      for (int const n : ns)
        for (int const k : ks)
          for (int const m : ms) {
            shape const s{operation(std::find(operation_names, std::end(operation_names), op) - operation_names),
                          type == "f16" ? dtype::f16 : dtype::bf16,
                          set.ranks,
                          m,
                          n,
                          k};
            if (!s.divides()) continue;
            for (auto const& v : with_late(set.variants, set.late)) {
              if (s.what != operation::gemm_ar && v.find("_shot") != std::string::npos) continue;
              std::string const name = name_of(v, s);
              if (!selected(name)) continue;
              progress::get().plan();
              room.include(s, v);
              benchmark::RegisterBenchmark(name.c_str(), report, v, s)
                  ->UseManualTime()
                  ->Iterations(1)
                  ->Unit(benchmark::kMicrosecond);
            }
          }
  add_context(set.ranks);
  benchmark::AddCustomContext(vendor::collectives_name,
                              text(NCCL_MAJOR, '.', NCCL_MINOR, '.', NCCL_PATCH, ", NVLS off"));
  benchmark::AddCustomContext(vendor::blas_name, text(vendor::blas_version()));
  benchmark::AddCustomContext("b_layout", set.b_layout == layout::column_major ? "column-major" : "row-major");
  ranks =
      std::make_unique<team<rank_state>>(set.ranks, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  print_table();
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
