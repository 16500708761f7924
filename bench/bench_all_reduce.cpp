// All-reduce, and all-reduce with residual and RMSNorm: the operator by each way beside the vendor's collective, which
// take turns in one run on the same arrays.
//
//   bench_all_reduce [--ranks=W] [--kb=KB,...] [--rows=ROWS,...] [--cols=8192] [--operators=all_reduce,rms_norm]
//                    [--variants=NAME,...] [--repeats=7] [--quick] [--budget=S] [Google Benchmark's options]
//
// Names: OPERATOR/VARIANT/W:w/rows:R/cols:C, elements are bf16; an array of all_reduce has R = 1. real_time is one
// iteration of the slowest rank: the median of the repeats, each a replay of R iterations. measure.hpp has the
// protocol. Variants:
//
//   bsp_eager, bsp_graph   the vendor's all-reduce; for rms_norm a kernel after it adds the residual and normalises
//   words_one, words_two   LL words, one-shot and two-shot
//   flags_one, flags_two   flags, likewise
//   fused                  what the operator chooses
//   int8                   likewise, but what travels by flags is int8 with a scale for each 64 elements
//   fused_eager            as fused, not in a graph
//
// Counters: gbps is the bytes that a rank sends at least, over time; speedup is the better twin's time over this one.
#include "harness.hpp"
#include "libraries.hpp"

#include <fusewire/ops/all_reduce.hpp>
#include <map>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

struct shape {
  bool norm;
  int ranks, rows, cols;

  std::int64_t count() const { return std::int64_t(rows) * cols; }
  std::size_t bytes() const { return std::size_t(count()) * 2; }
  int iterations() const { return bytes() > (4u << 20) ? 8 : 48; }
  /// What a rank sends at least: two shots, or one between two ranks.
  double sent() const { return double(bytes()) * 2 * (ranks - 1) / ranks; }
};

struct settings {
  int ranks, repeats;
  std::vector<std::string> variants;
};
settings set;

all_reduce_options options_of(std::string const& variant, shape const& s) {
  bool const words = variant.starts_with("words"), flags = variant.starts_with("flags"), one = variant.ends_with("one"),
             two = variant.ends_with("two");
  return {.max_rows = s.rows,
          .max_cols = s.cols,
          .shots = one   ? reduce_algorithm::one_shot
                   : two ? reduce_algorithm::two_shot
                         : reduce_algorithm::automatic,
          .transport = words   ? row_transport::ll_words
                       : flags ? row_transport::flags
                               : row_transport::automatic};
}

/// The twin's second kernel: a block for each row.
__global__ void add_and_normalise(bf16 const* sum, bf16 const* residual, bf16 const* gamma, bf16* residual_out,
                                  bf16* norm_out, int cols) {
  __shared__ float shared[block_reduce_words];
  block const b;
  std::int64_t const at = std::int64_t(b.index()) * cols;
  rms_norm<bf16> const e{.residual = {residual + at, 1, cols, cols},
                         .gamma = gamma,
                         .residual_out = {residual_out + at, 1, cols, cols},
                         .norm_out = {norm_out + at, 1, cols, cols}};
  auto const get = [&] {
    row_values<bf16, 1> x;
    if (x.first(b, 0) < cols) {
      auto const v = detail::load_row_vector(sum + at, x.first(b, 0), cols, true);
      for (int j = 0; j < x.width; ++j) x.x[0][j] = float(v.element[j]);
    }
    return x;
  };
  e(b, shared, 0, cols, row_sum<bf16, 1, decltype(get)>{get});
}

/// Adds up every rank's summands in fp32, in the order of ranks: `all` is [W][count].
__global__ void reference_sums(bf16 const* all, float* sum, std::int64_t count, int ranks) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    float x = 0;
    for (int r = 0; r < ranks; ++r) x += float(all[r * count + i]);
    sum[i] = float(bf16(x));
  }
}
/// What rms_norm makes of the sums: a block for each row.
__global__ void reference_norm(float* sum, bf16 const* residual, bf16 const* gamma, int cols, float eps) {
  __shared__ float shared[block_reduce_words];
  block const b;
  float* const row = sum + std::int64_t(b.index()) * cols;
  float squares = 0;
  for (int j = b.rank(); j < cols; j += b.size()) {
    row[j] = float(bf16(row[j] + float(residual[std::int64_t(b.index()) * cols + j])));
    squares += row[j] * row[j];
  }
  float const by_rms = 1 / sqrtf(block_sum(b, squares, shared) / float(cols) + eps);
  for (int j = b.rank(); j < cols; j += b.size()) row[j] *= by_rms * float(gamma[j]);
}

struct capacity {
  std::size_t arrays = 0, array = 0, cols = 0;  // bytes of [R][count], of [count], of a row

  void include(shape const& s, std::string const& variant) {
    arrays = std::max(arrays, std::size_t(s.iterations()) * s.bytes());
    array = std::max(array, s.bytes());
    cols = std::max(cols, std::size_t(s.cols) * 2);
    auto const r = variant == "int8" ? all_reduce<bf16, std::int8_t>::requirements(s.ranks, options_of(variant, s))
                                     : all_reduce<bf16>::requirements(s.ranks, options_of(variant, s));
    bulk = std::max(bulk, r.bulk()), signal = std::max(signal, r.signal());
    max_bytes = std::max(max_bytes, r.max_bytes()), flags = std::max(flags, r.flags_per_source());
  }
  std::size_t bulk = 0, signal = 0, max_bytes = 1;
  int flags = 1;
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(w_, round_up(2 * c.max_bytes + 64_MiB, 2_MiB), round_up(8 * c.signal + 64_MiB, 2_MiB)),
        ch(h, {.max_bytes = c.max_bytes, .flags_per_source = c.flags}), nccl(w_), in(nccl.allocate(c.arrays)),
        out(nccl.allocate(c.arrays)), summed(nccl.allocate(c.array)),
        all(nccl.allocate(c.array * std::size_t(w_.size()))), residual(c.array), residual_out(c.array), gamma(c.cols),
        first(2 * c.array), last(2 * c.array) {}

  channel ch;
  collectives nccl;
  std::byte *in, *out, *summed, *all;    // registered: [R][count], [R][count], [count], [W][count]
  buffer residual, residual_out, gamma;  // [count], [count], [cols]
  buffer first, last;                    // fp32 [count]: references of iterations 0 and R - 1
};

class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s) : st_(st), s_(s) { prepare(); }

  std::vector<figure> run() {
    std::vector<variant> all;
    for (std::string const& name : set.variants) {
      if (name.starts_with("bsp")) add(all, name, [this](int i) { twin(i); });
      else if (name == "int8") fused<std::int8_t>(all, name);
      else fused<bf16>(all, name);
    }
    auto figures = measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(); });
    for (auto const& f : refused_) figures.push_back(f);
    return figures;
  }

 private:
  bf16* in(int i) const { return reinterpret_cast<bf16*>(st_.in) + std::int64_t(i) * s_.count(); }
  bf16* out(int i) const { return reinterpret_cast<bf16*>(st_.out) + std::int64_t(i) * s_.count(); }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).template as<float>(); }
  matrix<bf16> rows_of(bf16* p) const { return {p, s_.rows, s_.cols, s_.cols}; }

  void fill(bf16* to, std::int64_t rows, int cols, std::uint64_t seed) const {
    fill_normal<<<dim3(2048), dim3(256), 0, st_.stream()>>>(to, rows, cols, 0, 0, cols, seed);
  }
  /// Fills arrays, different on every rank and in every iteration, and the references of the first and the last.
  void prepare() {
    int const R = s_.iterations();
    for (int i = 0; i < R; ++i)
      fill(in(i), s_.rows, s_.cols, 1 + std::uint64_t(i) + 10'000 * std::uint64_t(st_.w.rank()));
    fill(st_.residual.as<bf16>(), s_.rows, s_.cols, 7);
    fill(st_.gamma.as<bf16>(), 1, s_.cols, 8);
    for (int const i : {0, R - 1}) {
      st_.nccl.all_gather(st_.stream(), in(i), st_.all, s_.bytes());
      reference_sums<<<dim3(1024), dim3(256), 0, st_.stream()>>>(reinterpret_cast<bf16 const*>(st_.all), reference(i),
                                                                 s_.count(), s_.ranks);
      if (s_.norm)
        reference_norm<<<dim3(unsigned(s_.rows)), dim3(256), 0, st_.stream()>>>(reference(i), st_.residual.as<bf16>(),
                                                                                st_.gamma.as<bf16>(), s_.cols, 1e-6f);
    }
    check_hip(hipGetLastError(), "preparing arrays");
    check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
  }

  void twin(int i) const {
    if (!s_.norm) return st_.nccl.all_reduce(st_.stream(), in(i), out(i), std::size_t(s_.count()));
    auto* const sum = reinterpret_cast<bf16*>(st_.summed);
    st_.nccl.all_reduce(st_.stream(), in(i), sum, std::size_t(s_.count()));
    add_and_normalise<<<dim3(unsigned(s_.rows)), dim3(unsigned(s_.cols / 8)), 0, st_.stream()>>>(
        sum, st_.residual.as<bf16>(), st_.gamma.as<bf16>(), st_.residual_out.as<bf16>(), out(i), s_.cols);
  }

  void add(std::vector<variant>& all, std::string const& name, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), !name.ends_with("eager"),
                   [this] {
                     check_hip(hipMemsetAsync(out(0), 0xff, std::size_t(s_.iterations()) * s_.bytes(), st_.stream()),
                               "hipMemsetAsync");
                   },
                   [this] {
                     for (int const i : {0, s_.iterations() - 1})
                       compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(out(i), reference(i), s_.count(),
                                                                          st_.scratch.as<sums>());
                   }});
  }
  template <class Partial>
  void fused(std::vector<variant>& all, std::string const& name) {
    try {
      auto const op = std::make_shared<all_reduce<bf16, Partial>>(st_.ch, options_of(name, s_));
      if (s_.norm) op->template prepare<rms_norm<bf16>>();
      add(all, name, [this, op](int i) {
        if (!s_.norm) return (*op)(st_.stream(), {.in = in(i), .out = out(i), .count = s_.count()});
        (*op)(st_.stream(), rows_of(in(i)),
              rms_norm<bf16>{.residual = rows_of(st_.residual.as<bf16>()),
                             .gamma = st_.gamma.as<bf16>(),
                             .residual_out = rows_of(st_.residual_out.as<bf16>()),
                             .norm_out = rows_of(out(i))});
      });
    } catch (error const& e) {  // on all ranks alike
      refused_.push_back({.name = name, .failure = e.what()});
    }
  }

  rank_state& st_;
  shape s_;
  std::vector<figure> refused_;
};

struct row : shape_figures {
  shape s;
  /// The faster one of the bulk-synchronous twins.
  figure const* twin() const { return faster("bsp_eager", "bsp_graph"); }
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;

std::string name_of(std::string const& variant, shape const& s) {
  return text(s.norm ? "rms_norm" : "all_reduce", "/", variant, "/W:", s.ranks, "/rows:", s.rows, "/cols:", s.cols);
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  row const* const r = results_of(state, results, name_of("", s), variant, row{{}, s}, *ranks,
                                  [&](rank_state& st) { return shape_runner(st, s).run(); });
  if (!r) return;
  figure const* const found = report_variant(state, *r, variant, 1e-2);
  if (!found) return;
  state.counters["gbps"] = s.sent() / found->us * 1e-3;
  if (auto const* t = r->twin()) state.counters["speedup"] = t->us / found->us;
}

void print_table() {
  std::printf("\nmicroseconds of one iteration, slowest rank, median; speedup: over the better twin; NVLS off\n");
  std::printf("%-10s %2s %6s %8s %9s |", "operator", "W", "rows", "cols", "KB");
  for (std::string const& v : set.variants) std::printf("%11s ", v.c_str());
  std::printf("| %7s %6s\n", "speedup", "GB/s");
  for (auto const& [key, r] : results) {
    std::printf("%-10s %2d %6d %8d %9.1f |", r.s.norm ? "rms_norm" : "all_reduce", r.s.ranks, r.s.rows, r.s.cols,
                double(r.s.bytes()) / 1024);
    for (std::string const& v : set.variants) {
      if (auto const* f = r.of(v)) std::printf("%11.2f ", f->us);
      else std::printf("%11s ", "-");
    }
    auto const *t = r.twin(), *x = r.of("fused");
    if (x && t) std::printf("| %7.2f %6.1f", t->us / x->us, r.s.sent() / x->us * 1e-3);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  command_line c(
      argc, argv,
      "bench_all_reduce [--ranks=W] [--kb=KB,...] [--rows=ROWS,...] [--cols=8192] "
      "[--operators=all_reduce,rms_norm]\n"
      "                 [--variants=NAME,...] [--repeats=7] [--quick] [--budget=S]\n"
      "NAME: bsp_eager, bsp_graph, words_one, words_two, flags_one, flags_two, fused, int8, fused_eager. --kb: "
      "arrays of all_reduce;\n--rows: rows of rms_norm, of --cols elements, a multiple of 8 up to 8192.");
  using names = std::vector<std::string>;
  bool const quick = c.flag("quick");
  int const of = c.number("ranks", std::max(1, gpus()));
  names const usual = of == 1 ? names{"fused"}
                      : of == 2
                          ? names{"bsp_graph", "words_one", "flags_one", "fused", "int8"}
                          : names{"bsp_graph", "words_one", "words_two", "flags_one", "flags_two", "fused", "int8"};
  set = {
      of, c.number("repeats", quick ? 3 : 7),
      c.words("variants", "bsp_eager|bsp_graph|words_one|words_two|flags_one|flags_two|fused|int8|fused_eager", usual)};
  auto const kbs = c.numbers("kb", quick ? std::vector{4, 64, 1024, 16384}
                                         : std::vector{4, 16, 64, 128, 256, 512, 1024, 4096, 16384, 65536}),
             rows =
                 c.numbers("rows", quick ? std::vector{1, 32, 1024} : std::vector{1, 4, 8, 16, 32, 64, 128, 512, 2048});
  int const cols = c.number("cols", 8192);
  auto const operators = c.words("operators", "all_reduce|rms_norm", {"all_reduce", "rms_norm"});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_all_reduce: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  if (cols < 8 || cols > 8192 || cols % 8 != 0) {
    std::fprintf(stderr, "bench_all_reduce: --cols=%d; expected a multiple of 8 up to 8192\n", cols);
    return 1;
  }
  capacity room;
  auto const plan = [&](shape const& s) {
    for (auto const& v : set.variants) {
      std::string const name = name_of(v, s);
      // LL words of long arrays would take the whole signal segment
      if ((v.starts_with("words") && s.bytes() > (4u << 20)) || !selected(name)) continue;
      progress::get().plan();
      room.include(s, v);
      benchmark::RegisterBenchmark(name.c_str(), report, v, s)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  };
  for (auto const& op : operators)
    for (int const n : op == "rms_norm" ? rows : kbs)
      plan(op == "rms_norm" ? shape{true, set.ranks, n, cols} : shape{false, set.ranks, 1, n * 512});
  add_context(set.ranks);
  benchmark::AddCustomContext(vendor::collectives_name,
                              text(NCCL_MAJOR, '.', NCCL_MINOR, '.', NCCL_PATCH, ", NVLS off"));
  ranks =
      std::make_unique<team<rank_state>>(set.ranks, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  print_table();
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
