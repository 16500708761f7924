// An MLP of experts that are spread over the ranks: dispatch_gemm and gemm_combine beside the four launches that they
// stand for, which take turns in one run on the same arrays.
//
//   bench_moe_mlp [--ranks=W] [--tokens=T,...] [--model=7168] [--hidden=2048] [--experts=256] [--top-k=8]
//                 [--variants=NAME,...] [--repeats=7] [--row_major] [--quick] [--budget=S] [Google Benchmark's options]
//
// Names: moe_mlp/VARIANT/W:w/tokens:T, elements are bf16, T tokens of each rank, whose experts are random. real_time is
// one iteration of the slowest rank: the median of the repeats, each a replay of R iterations. measure.hpp has the
// protocol. Variants:
//
//   single   moe_dispatch, grouped_gemm with swiglu, grouped_gemm, moe_combine
//   up       dispatch_gemm with swiglu, grouped_gemm, moe_combine
//   fused    dispatch_gemm with swiglu, gemm_combine
//
// Counters: speedup is the time of `single` over this one. Results are compared with those of `single`.
#include "harness.hpp"

#include <fusewire/ops/dispatch_gemm.hpp>
#include <fusewire/ops/gemm_combine.hpp>
#include <fusewire/ops/grouped_gemm.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <map>
#include <random>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

struct shape {
  int ranks, tokens, model, hidden, experts, top_k;

  int each() const { return experts / ranks; }
  int iterations() const { return tokens > 512 ? 6 : 32; }
  /// A rank's table.
  std::vector<std::int32_t> table(int rank) const {
    std::mt19937 random(unsigned(7 + rank));
    std::vector<std::int32_t> all;
    for (int t = 0; t < tokens; ++t) {
      std::vector<std::int32_t> chosen;
      while (int(chosen.size()) < top_k)
        if (int const e = int(random() % unsigned(experts)); std::ranges::find(chosen, e) == chosen.end())
          chosen.push_back(e);
      all.insert(all.end(), chosen.begin(), chosen.end());
    }
    return all;
  }
  /// The most rows that come to a rank, of experts that begin at multiples of 16.
  int most_rows() const {
    std::vector<int> rows(std::size_t(experts), 0);
    for (int r = 0; r < ranks; ++r)
      for (int const e : table(r)) ++rows[std::size_t(e)];
    int most = 1;
    for (int r = 0; r < ranks; ++r) {
      int sum = 0;
      for (int e = r * each(); e < (r + 1) * each(); ++e) sum += ceil_div(rows[std::size_t(e)], 16) * 16;
      most = std::max(most, sum);
    }
    return most;
  }
  moe_options options() const {
    return {.max_tokens = tokens,
            .experts = experts,
            .top_k = top_k,
            .max_row_bytes = model * 2,
            .layout = moe_layout::by_expert,
            .alignment = 16,
            .max_rows = most_rows()};
  }
  requirements needs() const {
    return moe_dispatch::requirements(ranks, options()) + moe_combine<bf16>::requirements(ranks, options()) +
           dispatch_gemm<bf16>::requirements(ranks, options()) + gemm_combine<bf16>::requirements(ranks, options());
  }
};

struct settings {
  int ranks, repeats;
  layout b_layout;
  std::vector<std::string> variants;
};
settings set;

struct capacity {
  std::size_t tokens = 0, rows = 0, inner = 0, up = 0, down = 0, entries = 0, max_bytes = 1;  // bytes
  int flags = 1;

  void include(shape const& s) {
    auto const n = [](int x) { return std::size_t(x); };
    tokens = std::max(tokens, n(s.tokens) * n(s.model) * 2);
    rows = std::max(rows, n(s.most_rows()) * n(s.model) * 2);
    inner = std::max(inner, n(s.most_rows()) * n(s.hidden) * 2);
    up = std::max(up, n(s.each()) * n(s.model) * n(s.hidden) * 4);
    down = std::max(down, n(s.each()) * n(s.model) * n(s.hidden) * 2);
    entries = std::max(entries, n(s.tokens) * n(s.top_k) * 4);
    max_bytes = std::max(max_bytes, s.needs().max_bytes()), flags = std::max(flags, s.needs().flags_per_source());
  }
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(
            w_, round_up(2 * c.max_bytes + 64_MiB, 2_MiB),
            round_up(channel::requirements(w_.size(), {.max_bytes = 1, .flags_per_source = c.flags}).signal() + 64_MiB,
                     2_MiB)),
        ch(h, {.max_bytes = c.max_bytes, .flags_per_source = c.flags}), x(c.tokens), out(c.tokens),
        reference(2 * c.tokens), rows(c.rows), made(c.rows), inner(c.inner), up(c.up), down(c.down), table(c.entries),
        weights(c.entries) {}

  channel ch;
  buffer x, out, reference, rows, made, inner, up, down, table, weights;
};

__global__ void widen(bf16 const* x, float* y, std::int64_t count) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t(gridDim.x) * blockDim.x)
    y[i] = float(x[i]);
}

class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s)
      : st_(st), s_(s), o_(s.options()), routing_(st.w, o_), dispatch_(st.ch, o_), gemm_(st.w), combine_(st.ch, o_),
        up_(st.ch, o_), down_(st.ch, o_) {
    gemm_.prepare<swiglu>(), up_.prepare<swiglu>();
    auto const upload = [&](auto const& v, void* to) {
      check_hip(hipMemcpy(to, v.data(), v.size() * sizeof v[0], hipMemcpyHostToDevice), "hipMemcpy");
    };
    upload(s.table(st.w.rank()), st.table.as<void>());
    upload(std::vector<float>(std::size_t(s.tokens) * std::size_t(s.top_k), 1.0f / float(s.top_k)),
           st.weights.as<void>());
    auto const fill = [&](buffer& b, std::int64_t rows, int cols, std::uint64_t seed) {
      fill_normal<<<dim3(1024), dim3(256), 0, st_.stream()>>>(b.as<bf16>(), rows, cols, st_.w.rank() * rows, 0, cols,
                                                              seed);
      check_hip(hipGetLastError(), "fill_normal");
    };
    fill(st.x, s.tokens, s.model, 1);
    fill(st.up, std::int64_t(s.each()) * s.model, 2 * s.hidden, 2);
    fill(st.down, std::int64_t(s.each()) * s.model, s.hidden, 3);
    iteration("single");
    widen<<<dim3(512), dim3(256), 0, st_.stream()>>>(st.out.as<bf16>(), st.reference.as<float>(), results());
    st.w.check(st.stream());
  }

  std::vector<figure> run() {
    std::vector<variant> all;
    for (std::string const& name : set.variants)
      all.push_back({name, [this, name](int) { iteration(name); }, true,
                     [this] {
                       check_hip(hipMemsetAsync(st_.out.as<void>(), 0xff, std::size_t(results()) * 2, st_.stream()),
                                 "hipMemsetAsync");
                     },
                     [this] {
                       compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(st_.out.as<bf16>(), st_.reference.as<float>(),
                                                                          results(), st_.scratch.as<sums>());
                     }});
    return measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(); });
  }

 private:
  std::int64_t results() const { return std::int64_t(s_.tokens) * s_.model; }
  static matrix<bf16> matrix_of(buffer& b, int rows, int cols) { return {b.as<bf16>(), rows, cols, cols}; }
  /// Of expert 0: a k x n matrix as set.b_layout says.
  static matrix<bf16 const> b_of(buffer& b, int k, int n) {
    return {b.as<bf16>(), k, n, set.b_layout == layout::row_major ? n : k};
  }
  void iteration(std::string const& name) {
    moe_routing_view const v = routing_;
    auto const x = matrix_of(st_.x, s_.tokens, s_.model), rows = matrix_of(st_.rows, o_.max_rows, s_.model),
               inner = matrix_of(st_.inner, o_.max_rows, s_.hidden), made = matrix_of(st_.made, o_.max_rows, s_.model),
               out = matrix_of(st_.out, s_.tokens, s_.model);
    auto const up = b_of(st_.up, s_.model, 2 * s_.hidden), down = b_of(st_.down, s_.hidden, s_.model);
    std::int64_t const of_up = std::int64_t(s_.model) * 2 * s_.hidden, of_down = of_up / 2;
    int const mean = std::max(1, s_.ranks * s_.tokens * s_.top_k / s_.experts);
    moe_dispatch_call const there{.x = x,
                                  .out = rows,
                                  .experts = st_.table.as<std::int32_t>(),
                                  .weights = st_.weights.as<float>(),
                                  .tokens = s_.tokens,
                                  .routing = routing_};
    auto const multiply = [&](matrix<bf16> a, matrix<bf16 const> b, std::int64_t stride, matrix<bf16> c, auto e) {
      gemm_(st_.stream(),
            {.a = a,
             .b = b,
             .b_group_stride = stride,
             .c = c,
             .offsets = v.expert_begins,
             .ends = v.expert_ends,
             .groups = s_.each(),
             .b_layout = set.b_layout,
             .rows_of_group = mean},
            e);
    };
    if (name == "single") {
      dispatch_(st_.stream(), there);
      multiply(rows, up, of_up, inner, swiglu{});
    } else {
      up_(st_.stream(),
          {.dispatch = there,
           .b = up,
           .b_group_stride = of_up,
           .c = inner,
           .b_layout = set.b_layout,
           .rows_of_group = mean},
          swiglu{});
    }
    if (name == "fused")
      return down_(st_.stream(), {.a = inner,
                                  .b = down,
                                  .b_group_stride = of_down,
                                  .y = made,
                                  .out = out,
                                  .weights = v.row_weights,
                                  .routing = routing_,
                                  .b_layout = set.b_layout,
                                  .rows_of_group = mean});
    multiply(inner, down, of_down, made, identity{});
    combine_(st_.stream(), {.in = made, .out = out, .weights = v.row_weights, .routing = routing_});
  }

  rank_state& st_;
  shape s_;
  moe_options o_;
  moe_routing routing_;
  moe_dispatch dispatch_;
  grouped_gemm<bf16> gemm_;
  moe_combine<bf16> combine_;
  dispatch_gemm<bf16> up_;
  gemm_combine<bf16> down_;
};

struct row : shape_figures {
  shape s;
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;

std::string name_of(std::string const& variant, shape const& s) {
  return text("moe_mlp/", variant, "/W:", s.ranks, "/tokens:", s.tokens);
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  row const* const r = results_of(state, results, name_of("", s), variant, row{{}, s}, *ranks,
                                  [&](rank_state& st) { return shape_runner(st, s).run(); });
  if (!r) return;
  figure const* const found = report_variant(state, *r, variant, 1e-3);
  if (!found) return;
  if (auto const* t = r->of("single")) state.counters["speedup"] = t->us / found->us;
}

void print_table() {
  std::printf("\nmicroseconds of one iteration, slowest rank, median\n%2s %6s |", "W", "tokens");
  for (std::string const& v : set.variants) std::printf("%10s ", v.c_str());
  std::printf("\n");
  for (auto const& [key, r] : results) {
    std::printf("%2d %6d |", r.s.ranks, r.s.tokens);
    for (std::string const& v : set.variants) {
      if (auto const* f = r.of(v)) std::printf("%10.2f ", f->us);
      else std::printf("%10s ", "-");
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  command_line c(argc, argv,
                 "bench_moe_mlp [--ranks=W] [--tokens=T,...] [--model=7168] [--hidden=2048] [--experts=256]\n"
                 "              [--top-k=8] [--variants=NAME,...] [--repeats=7] [--row_major] [--quick] [--budget=S]\n"
                 "NAME: single, up, fused. --tokens: of each rank.");
  using names = std::vector<std::string>;
  bool const quick = c.flag("quick");
  set = {c.number("ranks", std::max(1, gpus())), c.number("repeats", quick ? 3 : 7),
         c.flag("row_major") ? layout::row_major : layout::column_major,
         c.words("variants", "single|up|fused", names{"single", "up", "fused"})};
  auto const tokens =
      c.numbers("tokens", quick ? std::vector{8, 128, 2048} : std::vector{1, 8, 32, 128, 512, 1024, 2048, 4096});
  int const model = c.number("model", 7168), hidden = c.number("hidden", 2048), experts = c.number("experts", 256),
            top_k = c.number("top-k", 8);
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_moe_mlp: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  if (model % 8 != 0 || hidden % 8 != 0 || experts % set.ranks != 0 ||
      top_k > std::min(experts, moe_shape::most_top_k)) {
    std::fprintf(stderr,
                 "bench_moe_mlp: --model=%d --hidden=%d --experts=%d --top-k=%d; expected multiples of 8, of 8 and of "
                 "the ranks, and up to %d\n",
                 model, hidden, experts, top_k, moe_shape::most_top_k);
    return 1;
  }
  capacity room;
  for (int const t : tokens) {
    shape const s{set.ranks, t, model, hidden, experts, top_k};
    bool any = false;
    for (auto const& v : set.variants) {
      std::string const name = name_of(v, s);
      if (!selected(name)) continue;
      progress::get().plan();
      any = true;
      benchmark::RegisterBenchmark(name.c_str(), report, v, s)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
    if (any) room.include(s);
  }
  add_context(set.ranks);
  ranks =
      std::make_unique<team<rank_state>>(set.ranks, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  print_table();
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
