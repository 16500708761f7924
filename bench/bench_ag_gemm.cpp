// All-gather + GEMM: the fused operator, its bulk-synchronous twin and the bare GEMM, which take turns in one run on
// the same matrices.
//
//   bench_ag_gemm [--ranks=W] [--m=M,...] [--n=N,...] [--k=K] [--dtypes=bf16,f16] [--gathers=k,m]
//                 [--variants=NAME,...] [--repeats=7] [--mainloop] [--row_major] [--quick] [--random=COUNT] [--seed=2]
//                 [--taxes] [--late=US,...] [--budget=S] [Google Benchmark's options]
//
// Names: ag_gemm/VARIANT/gather:G/dtype:T/W:w/M:m/N:n/K:k. real_time is one iteration of the slowest rank: the median
// of the repeats, each a replay of R iterations. measure.hpp has the protocol. Variants:
//
//   gemm                  the vendor's GEMM of the gathered problem, best of its heuristics; no communication
//   all_gather            the vendor's all-gather alone
//   bsp_eager, bsp_graph  all-gather, then GEMM; gather:k: the better of a copy that transposes shards and
//                         W accumulating GEMMs
//   pull, push, chosen    ag_gemm; options_of() has their options
//   chosen_eager          as chosen, not in a graph
//
// --late: measures bsp_graph, pull, push and chosen again, as NAME/late:US. In every iteration another rank, round
// robin, begins US microseconds late. 0 is always among the times, and the others are compared with it, because making
// a rank late takes a kernel.
// --taxes: few shapes, with the variants that show the three taxes of a bulk-synchronous program: eager and graph, and
// late ranks.
// --mainloop: only the multiplication, gemm and chosen on one rank, for four (N, K) in place of --n and --k, and for
// more M.
// --random: COUNT shapes drawn from --seed, in place of the sweep. They show whether ag_gemm chooses well for shapes to
// which its plan was not fitted. A seed whose measurements were used for the plan is used up, as seed 1 is: take a new
// one, and tell scripts/perf/performance.py.
// N is that of one rank.
// Counters: x_gemm is time over the bare GEMM's, speedup is the better twin's time over this one.
#include "choose_heuristic.hpp"
#include "harness.hpp"
#include "libraries.hpp"

#include <map>
#include <random>

#include <fusewire/ops/ag_gemm.hpp>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

enum class dtype { bf16, f16 };

struct shape {
  gather by;
  dtype type;
  int ranks, m, n, k;

  int iterations() const { return m > 1024 ? 16 : 48; }
  int rows(int) const { return by == gather::m ? m / ranks : m; }
  int cols() const { return by == gather::m ? k : k / ranks; }
  std::size_t gathered() const { return std::size_t(m) * std::size_t(k); }  // elements
  std::size_t shard() const { return gathered() / std::size_t(ranks); }
  std::size_t weights() const { return std::size_t(k) * std::size_t(n); }
  std::size_t result() const { return std::size_t(m) * std::size_t(n); }
  double flops() const { return 2.0 * m * n * k; }
  double link_bytes() const { return double(gathered() - shard()) * 2; }  // into every rank
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

/// The options of ag_gemm for a variant.
ag_gemm_options options_of(std::string const& variant, shape const& s, int max_m) {
  ag_gemm_options o{.max_m = max_m, .k = s.k, .gather = s.by, .method = method::automatic};
  if (variant == "pull") o.method = method::pull;
  if (variant == "push") o.method = method::push;
  return o;
}

struct capacity {
  // Bytes; result and gathered of one iteration
  std::size_t a = 0, shards = 0, c = 0, weights = 0, result = 0, gathered = 0;
  int m = 1, k = 1, flags = 1;

  void include(shape const& s) {
    auto const R = std::size_t(s.iterations());
    auto const grow = [](std::size_t& x, std::size_t to) { x = std::max(x, to); };
    grow(a, R * s.gathered() * 2);
    grow(shards, R * s.shard() * 2);
    grow(c, R * s.result() * 2);
    grow(weights, std::size_t(weight_copies(s)) * s.weights() * 2);
    grow(result, s.result());
    m = std::max(m, s.m);
    k = std::max(k, s.k);
    gathered = std::size_t(m) * std::size_t(k) * 2;  // operators are made for the largest m
    flags = std::max(flags, ag_gemm<bf16>::flags_per_source(s.ranks, {.max_m = s.m, .k = s.k, .gather = s.by}));
  }
};

template <class T>
using operators = std::map<std::string, std::unique_ptr<ag_gemm<T>>>;

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(w_, round_up(c.shards + 2 * c.gathered + 512_MiB, 2_MiB), 128_MiB),
        ch(h, {.max_bytes = c.gathered, .flags_per_source = c.flags}), shards(h.allocate<std::byte>(c.shards)),
        nccl(w_), send(nccl.allocate(c.shards)), received(nccl.allocate(c.gathered)), a(c.a), whole(c.gathered),
        weights(c.weights), c(c.c), first(c.result * 4), last(c.result * 4),
        workspace(blas_gemm<bf16>::workspace_bytes), max_m(c.m) {
    check_blas(vendor::blas_create(&blas) == vendor::blas_success, "create");
  }
  ~rank_state() { (void)vendor::blas_destroy(blas); }

  channel ch;
  sym<std::byte> shards;  // [R][rows, cols] of A, on the symmetric heap
  collectives nccl;
  std::byte *send, *received;  // [R] shards, one gathered A; registered
  buffer a, whole;             // [R][M, K]; one A, transposed
  buffer weights, c;           // [copies][K, N], [R][M, N]
  buffer first, last;          // fp32 [M, N]: references of iterations 0 and R - 1
  buffer workspace;
  int max_m;
  vendor::blas_handle blas{};
  operators<bf16> of_bf16;
  operators<f16> of_f16;
  std::string prepared;  // the shape whose matrices are there
};

/// Adds the number of differing elements to out->error2.
__global__ void count_differences(std::uint16_t const* x, std::uint16_t const* y, int ranks, int m, int cols, bool by_k,
                                  sums* out) {
  double wrong = 0;
  std::int64_t const k = by_k ? std::int64_t(cols) * ranks : cols, all = std::int64_t(m) * k;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    std::int64_t const row = i / k, col = i % k, at = by_k ? (col / cols * m + row) * cols + col % cols : i;
    wrong += x[at] != y[i];
  }
  if (wrong > 0) atomic_ref<double, scope::device>(&out->error2).fetch_add(wrong, order::relaxed);
  if (blockIdx.x == 0 && threadIdx.x == 0) out->reference2 = 1;
}

template <class T>
class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s) : st_(st), s_(s), copies_(weight_copies(s)) {
    prepare();
    ldb_ = set.b_layout == layout::column_major ? s.k : s.n;
  }

  std::vector<figure> run() {
    std::vector<variant> all;
    auto const wanted = [](char const* name) {
      return std::find(set.variants.begin(), set.variants.end(), name) != set.variants.end();
    };
    int const m = s_.m, n = s_.n, k = s_.k, kw = k / s_.ranks;
    bool const bsp = wanted("bsp_eager") || wanted("bsp_graph");
    auto const gemm = std::make_shared<blas_gemm<T>>(st_.blas, st_.workspace.template as<void>(),
                                                     blas_shape{m, n, k, k, ldb_, n, set.b_layout, false});
    if (wanted("gemm") || bsp) choose(*gemm, k);
    auto const plain = [this, gemm](T const* a, int i) { check_blas((*gemm)(st_.stream(), a, b(i), c(i)), "matmul"); };
    if (wanted("gemm")) add(all, "gemm", true, [this, plain](int i) { plain(a(i), i); });
    if (wanted("all_gather")) {
      add(all, "all_gather", true, [this](int i) { gather_shards(i); });
      all.back().poison = [this] {
        check_hip(hipMemsetAsync(st_.received, 0xff, s_.gathered() * 2, st_.stream()), "hipMemsetAsync");
      };
      all.back().check = [this] {
        count_differences<<<dim3(512), dim3(256), 0, st_.stream()>>>(
            reinterpret_cast<std::uint16_t const*>(st_.received),
            reinterpret_cast<std::uint16_t const*>(a(s_.iterations() - 1)), s_.ranks, s_.m, s_.cols(),
            s_.by == gather::k, st_.scratch.as<sums>());
      };
    }
    if (bsp) {
      T* const received = reinterpret_cast<T*>(st_.received);
      std::function<void(int)> twin = [this, plain, received](int i) {
        gather_shards(i);
        plain(received, i);
      };
      if (s_.by == gather::k && m > 1 && s_.ranks > 1) {  // one row needs no copy
        std::function<void(int)> const copying = [this, plain, received](int i) {
          gather_shards(i);
          join_columns<<<dim3(unsigned(std::min(1056, ceil_div(int(s_.gathered() / 8), 256)))), dim3(256), 0,
                         st_.stream()>>>(reinterpret_cast<bytes16 const*>(received), st_.whole.template as<bytes16>(),
                                         s_.m, s_.cols() / 8, s_.ranks);
          plain(st_.whole.template as<T>(), i);
        };
        auto const set_sum = std::make_shared<blas_gemm<T>>(st_.blas, st_.workspace.template as<void>(),
                                                            blas_shape{m, n, kw, kw, ldb_, n, set.b_layout, false});
        auto const add_sum = std::make_shared<blas_gemm<T>>(st_.blas, st_.workspace.template as<void>(),
                                                            blas_shape{m, n, kw, kw, ldb_, n, set.b_layout, true});
        choose(*set_sum, kw);
        choose(*add_sum, kw);
        std::function<void(int)> const accumulating = [this, set_sum, add_sum, received, kw](int i) {
          gather_shards(i);
          for (int r = 0; r < s_.ranks; ++r) {
            T const* const part = b(i) + std::int64_t(r) * kw * (set.b_layout == layout::column_major ? 1 : s_.n);
            check_blas((r == 0 ? *set_sum : *add_sum)(st_.stream(), received + std::int64_t(r) * s_.m * kw, part, c(i)),
                       "matmul");
          }
        };
        twin = time_of(copying) <= time_of(accumulating) ? copying : accumulating;
      }
      if (wanted("bsp_eager")) add(all, "bsp_eager", false, twin);
      if (wanted("bsp_graph")) add(all, "bsp_graph", true, twin);
    }
    for (char const* name : {"pull", "push", "chosen", "chosen_eager"})
      if (wanted(name)) fused(all, name);
    add_late(all, set.late);
    auto figures = measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(); });
    for (auto const& f : refused_) figures.push_back(f);
    return figures;
  }

 private:
  T* a(int i) const { return st_.a.template as<T>() + std::size_t(i) * s_.gathered(); }
  T* b(int i) const { return st_.weights.template as<T>() + std::size_t(i % copies_) * s_.weights(); }
  T* c(int i) const { return st_.c.template as<T>() + std::size_t(i) * s_.result(); }
  T* shard(int i) const { return reinterpret_cast<T*>(st_.h.view().here(st_.shards)) + std::size_t(i) * s_.shard(); }
  void gather_shards(int i) const {
    st_.nccl.all_gather(st_.stream(), st_.send + std::size_t(i) * s_.shard() * 2, st_.received, s_.shard() * 2);
  }

  void fill(T* to, std::size_t rows, int cols, int first_row, int first_col, int width, std::uint64_t seed) const {
    fill_normal<<<dim3(2048), dim3(256), 0, st_.stream()>>>(to, std::int64_t(rows), cols, first_row, first_col, width,
                                                            seed);
  }

  /// Fills matrices of this shape, and the references of the first and the last iteration. A is different in every
  /// iteration.
  void prepare() {
    std::string const key = text(int(s_.type), ' ', s_.m, ' ', s_.n, ' ', s_.k),
                      with_gather = text(key, ' ', int(s_.by));
    if (st_.prepared == with_gather) return;
    int const R = s_.iterations(), rank = st_.w.rank();
    if (st_.prepared.rfind(key + ' ', 0) != 0) {
      fill(st_.weights.template as<T>(), std::size_t(copies_) * std::size_t(s_.k), s_.n, 0, 0, s_.n,
           1000 + std::uint64_t(rank));
      for (int i = 0; i < R; ++i) fill(a(i), std::size_t(s_.m), s_.k, 0, 0, s_.k, 1 + std::uint64_t(i));
      bool const columns = set.b_layout == layout::column_major;
      for (int const i : {0, R - 1})
        reference_gemm<<<dim3(unsigned(ceil_div(s_.n, 64)), unsigned(ceil_div(s_.m, 64))), dim3(256), 0,
                         st_.stream()>>>(a(i), b(i), reference(i), s_.m, s_.n, s_.k, columns ? 1 : std::int64_t(s_.n),
                                         columns ? std::int64_t(s_.k) : 1, s_.n);
    }
    for (int i = 0; i < R; ++i)
      for (T* to : {shard(i), reinterpret_cast<T*>(st_.send) + std::size_t(i) * s_.shard()})
        fill(to, std::size_t(s_.rows(rank)), s_.cols(), s_.by == gather::m ? rank * s_.rows(rank) : 0,
             s_.by == gather::k ? rank * s_.cols() : 0, s_.k, 1 + std::uint64_t(i));
    check_hip(hipGetLastError(), "preparing matrices");
    check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
    st_.prepared = with_gather;
  }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).template as<float>(); }

  void add(std::vector<variant>& all, char const* name, bool graph, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), graph,
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

  void fused(std::vector<variant>& all, char const* name) {
    auto& operators = [this]() -> auto& {
      if constexpr (std::is_same_v<T, bf16>) return st_.of_bf16;
      else return st_.of_f16;
    }();
    auto& op = operators[text(name, int(s_.by), ' ', s_.k)];
    try {
      if (!op) op = std::make_unique<ag_gemm<T>>(st_.ch, options_of(name, s_, st_.max_m));
    } catch (error const& e) {  // on all ranks alike
      refused_.push_back({.name = name, .failure = e.what()});
      return;
    }
    add(all, name, std::string(name) != "chosen_eager", [this, f = op.get()](int i) {
      (*f)(st_.stream(), {.a = {shard(i), s_.rows(st_.w.rank()), s_.cols(), s_.cols()},
                          .b = {b(i), s_.k, s_.n, ldb_},
                          .c = {c(i), s_.m, s_.n, s_.n},
                          .m = s_.m,
                          .b_layout = set.b_layout,
                          .b_is_constant = true});
    });
  }

  void choose(blas_gemm<T>& g, int k) {
    choose_heuristic(st_, g, 2.0 * s_.m * s_.n * k,
                     [&](int i) { return g(st_.stream(), st_.a.template as<T>(), b(i), c(i % s_.iterations())); });
  }

  /// The best time of an iteration in a few replays of a graph, to choose between twins. Collective.
  double time_of(std::function<void(int)> const& iteration) {
    int const R = std::min(s_.iterations(), 16);
    graph_exec graph;
    double best = 1e30;
    auto const all = [&] {
      for (int i = 0; i < R; ++i) iteration(i);
    };
    std::string const failure = st_.attempt([&] {
      iteration(0);
      st_.w.check(st_.stream());
      graph.capture(st_.stream(), all);
    });
    require<runtime_failure>(failure.empty(), std::source_location::current(), "choosing a twin: ", failure);
    for (int i = 0; i < 4; ++i)
      best = std::min(best, slowest(st_, timed(st_, [&] { graph.launch(st_.stream()); }) / R));
    return best;
  }

  rank_state& st_;
  shape s_;
  int copies_;
  std::int64_t ldb_ = 0;
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
  return text("ag_gemm/", variant.substr(0, slash), "/gather:", s.by == gather::k ? "k" : "m",
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
  if (variant != "all_gather") state.counters["tflops"] = s.flops() / found->us * 1e-6;
  if (variant != "gemm") state.counters["link_gb_s"] = s.link_bytes() / found->us * 1e-3;
  if (variant.find('/') != std::string::npos) return;  // ranks that are late are compared with each other
  if (auto const* g = r->of("gemm")) state.counters["x_gemm"] = found->us / g->us;
  if (auto const* t = r->twin()) state.counters["speedup"] = t->us / found->us;
}

/// Random shapes, the same on every rank: M and N evenly over their logarithms, K a multiple of 512, both types and
/// gathers.
std::vector<shape> random_shapes(int count, unsigned seed, int ranks) {
  std::mt19937 random(seed);
  auto const between = [&](double low, double high) {
    return low * std::exp2(std::log2(high / low) * (random() % 10000) / 10000.0);
  };
  std::vector<shape> all;
  for (int i = 0; i < count; ++i) {
    gather const by = random() % 2 ? gather::m : gather::k;
    int const m = int(between(1, 8192)), n = int(between(512, 8192)) / 64 * 64, k = int(2 + random() % 15) * 512;
    all.push_back({by, random() % 2 ? dtype::f16 : dtype::bf16, ranks,
                   by == gather::m ? (m + ranks - 1) / ranks * ranks : m, n, k});
  }
  return all;
}

std::vector<row> sorted_results() {
  std::vector<row> rows;
  for (auto const& [key, r] : results) rows.push_back(r);
  std::sort(rows.begin(), rows.end(), [](row const& x, row const& y) {
    auto const key = [](shape const& s) { return std::tuple(int(s.type), s.by, s.n, s.k, s.m); };
    return key(x.s) < key(y.s);
  });
  return rows;
}

void print_table() {
  std::printf("\nmicroseconds of one iteration, slowest rank, median; x: chosen over the bare GEMM; speedup: over the "
              "better twin; NVLS off\n");
  std::printf("%-6s %-5s %2s %5s %5s %5s |%8s %8s %8s %8s %8s %8s %8s |%6s %7s %7s %8s\n", "gather", "dtype", "W", "M",
              "N", "K", "gemm", "gather", "eager", "graph", "pull", "push", "chosen", "x", "speedup", "TFLOP/s",
              "link GB/s");
  auto const rows = sorted_results();
  for (auto const& r : rows) {
    std::printf("%-6s %-5s %2d %5d %5d %5d |", r.s.by == gather::k ? "k" : "m",
                r.s.type == dtype::bf16 ? "bf16" : "f16", r.s.ranks, r.s.m, r.s.n, r.s.k);
    for (char const* v : {"gemm", "all_gather", "bsp_eager", "bsp_graph", "pull", "push", "chosen"}) {
      if (auto const* f = r.of(v)) std::printf("%8.2f ", f->us);
      else std::printf("%8s ", "-");
    }
    std::printf("|");
    auto const *g = r.of("gemm"), *t = r.twin(), *x = r.of("chosen");
    if (x && g) std::printf("%6.2f ", x->us / g->us);
    if (x && t) std::printf("%7.2f ", t->us / x->us);
    if (x) std::printf("%7.1f %8.1f", r.s.flops() / x->us * 1e-6, r.s.link_bytes() / x->us * 1e-3);
    std::printf("\n");
  }
  int compared = 0, close = 0;
  double most = 0;
  for (auto const& r : rows) {
    auto const *pull = r.of("pull"), *push = r.of("push"), *x = r.of("chosen");
    if (!pull || !push || !x) continue;
    double const over = x->us / std::min(pull->us, push->us);
    ++compared;
    close += over <= 1.05;
    most = std::max(most, over);
  }
  if (compared > 0)
    std::printf(
        "chosen is within 5 %% of the better of pull and push in %d of %d rows, and takes at most %.2f times as long\n",
        close, compared, most);
}

void print_taxes() {
  std::printf(
      "\nkernels: of an iteration; host: microseconds to enqueue it; late: what it takes longer when round robin "
      "one rank is that much late, all of it if everybody waits\n");
  std::printf("\n%-6s %-5s %2s %5s %5s %5s %-7s |%8s %8s %8s %8s |", "gather", "dtype", "W", "M", "N", "K", "",
              "kernels", "host us", "eager", "graph");
  for (int const late : set.late) std::printf(" late %3d", late);
  std::printf("\n");
  for (auto const& r : sorted_results())
    for (auto const& [graph, eager] : {std::pair{"bsp_graph", "bsp_eager"}, std::pair{"chosen", "chosen_eager"}}) {
      auto const *g = r.of(graph), *e = r.of(eager);
      if (!g || !e) continue;
      std::printf("%-6s %-5s %2d %5d %5d %5d %-7s |%8.0f %8.2f %8.2f %8.2f |", r.s.by == gather::k ? "k" : "m",
                  r.s.type == dtype::bf16 ? "bf16" : "f16", r.s.ranks, r.s.m, r.s.n, r.s.k, graph, g->kernels,
                  e->host_us, e->us, g->us);
      for (int const late : set.late)
        if (auto const *l = r.of(text(graph, "/late:", late)), *none = r.of(text(graph, "/late:0")); l && none)
          std::printf(" %+7.1f ", l->us - none->us);
      std::printf("\n");
    }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  command_line c(argc, argv,
                 "bench_ag_gemm [--ranks=W] [--m=M,...] [--n=N,...] [--k=K] [--dtypes=bf16,f16] [--gathers=k,m] "
                 "[--variants=NAME,...] [--repeats=7]\n"
                 "                     [--mainloop] [--row_major] [--quick] [--random=COUNT] [--seed=2] [--taxes] "
                 "[--late=US,...] [--budget=S]\n"
                 "NAME: gemm, all_gather, bsp_eager, bsp_graph, pull, push, chosen, chosen_eager. --mainloop: the GEMM "
                 "alone, on one rank. --random: shapes drawn\n"
                 "from the seed. --late: round robin, one rank per iteration is late. --taxes: few shapes, eager and "
                 "graph, ranks that are late.");
  bool const taxes = c.flag("taxes"), quick = c.flag("quick"), mainloop = c.flag("mainloop");
  using names = std::vector<std::string>;
  names const usual = mainloop ? names{"gemm", "chosen"}
                               : names{"gemm", "all_gather", "bsp_eager", "bsp_graph", "pull", "push", "chosen"};
  set = {c.number("ranks", mainloop ? 1 : std::max(1, gpus())), c.number("repeats", quick ? 3 : 7),
         c.flag("row_major") ? layout::row_major : layout::column_major,
         c.words("variants", "gemm|all_gather|bsp_eager|bsp_graph|pull|push|chosen|chosen_eager",
                 taxes ? names{"gemm", "all_gather", "bsp_eager", "bsp_graph", "chosen_eager", "chosen"} : usual),
         late_times(c, taxes)};
  auto sweep = taxes   ? std::vector{16, 128, 1024, 4096}
               : quick ? std::vector{1, 16, 128, 1024, 4096}
                       : std::vector{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  // Shapes that tiles do not divide evenly
  if (mainloop && !quick) sweep.insert(sweep.end(), {192, 320, 384, 640, 768, 1280, 1536, 3072});
  auto const ms = c.numbers("m", sweep),
             ns = c.numbers("n", quick || taxes ? std::vector{3584} : std::vector{3584, 7168});
  int const k = c.number("k", 8192), random = c.number("random", 0), seed = c.number("seed", 2);
  auto const dtypes = c.words("dtypes", "bf16|f16", quick || taxes ? names{"bf16"} : names{"bf16", "f16"}),
             gathers = c.words("gathers", "k|m", mainloop ? names{"k"} : names{"k", "m"});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_ag_gemm: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  capacity room;
  std::vector<shape> shapes = random_shapes(random, unsigned(seed), set.ranks);
  std::vector<std::pair<int, int>> weights;  // n, k
  if (mainloop) weights = {{3584, 8192}, {7168, 8192}, {8192, 7168}, {8192, 8192}};
  else
    for (int const n : ns) weights.emplace_back(n, k);
  if (shapes.empty())
    for (auto const& type : dtypes)
      for (auto const& [n, k] : weights)
        for (int const m : ms)
          for (auto const& g : gathers) {
            shape const s{
                g == "m" ? gather::m : gather::k, type == "f16" ? dtype::f16 : dtype::bf16, set.ranks, m, n, k};
            if (s.by == gather::k || m % s.ranks == 0) shapes.push_back(s);
          }
  for (shape const& s : shapes)
    for (auto const& v : with_late(set.variants, set.late)) {
      std::string const name = name_of(v, s);
      if (!selected(name)) continue;
      progress::get().plan();
      room.include(s);
      benchmark::RegisterBenchmark(name.c_str(), report, v, s)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  add_context(set.ranks);
  benchmark::AddCustomContext(vendor::collectives_name,
                              text(NCCL_MAJOR, '.', NCCL_MINOR, '.', NCCL_PATCH, ", NVLS off"));
  benchmark::AddCustomContext(vendor::blas_name, text(vendor::blas_version()));
  if (random > 0) benchmark::AddCustomContext("seed", text(seed));
  benchmark::AddCustomContext("b_layout", set.b_layout == layout::column_major ? "column-major" : "row-major");
  ranks =
      std::make_unique<team<rank_state>>(set.ranks, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  print_table();
  if (taxes) print_taxes();
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
