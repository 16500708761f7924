// Fused communication outside of neural networks: examples/stencil.hpp and examples/embedding.hpp, each beside its
// bulk-synchronous twin, which take turns in one run on the same data.
//
//   bench_examples [--ranks=W] [--heights=H,...] [--cols=C,...] [--steps=S,...] [--bags=B,...] [--ids=I,...]
//                  [--rows=R] [--dim=D] [--variants=NAME,...] [--repeats=7] [--late=US,...] [--quick] [--budget=S]
//                  [Google Benchmark's options]
//
// Names: stencil/VARIANT/W:w/rows:r/cols:c/steps:s, embedding/VARIANT/W:w/rows:r/dim:d/bags:b/ids:i. A rank has H rows
// of the grid for each compute unit. 8 bags travel together up to 4096 bags, then 32; the table's rows are those of all
// ranks. real_time is one iteration of the slowest rank, all steps of a stencil: the median of the repeats. measure.hpp
// has the protocol. Variants:
//
//   fused                 one launch
//   bsp_eager, bsp_graph  stencil: in each step a kernel, then the vendor's send and receive of the edges;
//                         embedding: all-gather of the ids, a kernel that sums up the local rows of all bags,
//                         reduce-scatter of the sums
//   local                 the twin's kernels alone, without communication
//
// Counters: speedup: the better twin's time over this one; x_local: this time over local's; kernels: of an iteration.
// --late: round robin, one rank is late in each iteration; 0 is among the times.
#include "../examples/embedding.hpp"
#include "../examples/stencil.hpp"
#include "harness.hpp"
#include "libraries.hpp"

using namespace fusewire;
using namespace fusewire::bench;

namespace {

constexpr int iterations = 16, threads = 512;

struct shape {
  bool is_stencil;
  int ranks;
  int rows, cols, steps;  // of a rank's grid
  embedding::shape lookup;

  stencil::shape grid(int blocks) const { return {rows, cols, blocks, steps}; }
  /// Of a rank's result.
  std::size_t count() const {
    return is_stencil ? std::size_t(rows) * std::size_t(cols) : std::size_t(lookup.bags) * std::size_t(lookup.dim);
  }
  std::size_t in_table() const { return std::size_t(lookup.rows_of(0, ranks)) * std::size_t(lookup.dim); }
  std::size_t all_ids() const { return std::size_t(lookup.bags) * std::size_t(lookup.ids); }
};

struct settings {
  int repeats;
  std::vector<std::string> variants;
  std::vector<int> late;  // us
};
settings set;

/// One step of the twin's: to = the mean of each point's neighbours in from. The rows next to the grid lie in
/// halo [2][cols]; null: zeros.
__global__ void __launch_bounds__(threads)
    step_once(matrix<float const> from, matrix<float> to, float const* above, float const* below) {
  int const r = int(blockIdx.x);
  auto const row = [&](int i) -> float const* { return i < 0 ? above : i >= from.rows ? below : from.at(i, 0); };
  float const *up = row(r - 1), *here = row(r), *down = row(r + 1);
  for (int c = int(threadIdx.x); c < from.cols; c += int(blockDim.x))
    to(r, c) = stencil::point(up ? up[c] : 0, c > 0 ? here[c - 1] : 0, c + 1 < from.cols ? here[c + 1] : 0,
                              down ? down[c] : 0);
}

/// The twin's sums: of each bag of all ranks, the rows that this rank owns.
__global__ void __launch_bounds__(256)
    sum_own_rows(embedding::shape g, embedding::vec4 const* table, std::int32_t const* ids, embedding::vec4* sums,
                 int rank, int ranks) {
  int const vec4s = g.dim / 4;
  for (int at = int(blockIdx.x * blockDim.x + threadIdx.x); at < ranks * g.bags * vec4s;
       at += int(gridDim.x * blockDim.x)) {
    int const bag = at / vec4s, column = at % vec4s;
    embedding::vec4 sum{};
#pragma unroll 4
    for (int i = 0; i < g.ids; ++i) {
      int const id = ids[bag * g.ids + i];
      if (id % ranks != rank) continue;
      embedding::vec4 const row = table[std::int64_t(id / ranks) * vec4s + column];
      sum.add(row);
    }
    sums[at] = sum;
  }
}

__global__ void fill_ids(std::int32_t* ids, std::int64_t count, int rows, std::uint64_t seed) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t(gridDim.x) * blockDim.x)
    ids[i] = std::int32_t((std::uint64_t(i) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull) >> 33) % rows;
}

/// Memory for the largest shape.
struct capacity {
  std::size_t count = 0, table = 0, ids = 0, edge = 0;
  requirements needs;

  void include(shape const& s, int units) {
    count = std::max(count, s.count());
    if (s.is_stencil) {
      edge = std::max(edge, std::size_t(s.cols));
      needs += channel::requirements(s.ranks, {.max_bytes = s.grid(8 * units).inbox_bytes(), .flags_per_source = 1});
    } else {
      needs += channel::requirements(s.ranks, s.lookup.needs(s.ranks));
      table = std::max(table, s.in_table());
      ids = std::max(ids, s.all_ids());
    }
  }
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& room)
      : rank_base(w_, round_up(room.needs.bulk() + (room.table + 4) * sizeof(float) + 64_MiB, 2_MiB),
                  round_up(room.needs.signal() + 8_MiB, 2_MiB)),
        ch(h, room.needs), sides(h.allocate<flag>(16 * std::size_t(w.compute_units()))),
        table(h.allocate<embedding::vec4>(room.table / 4 + 1)), nccl(w_),
        first(nccl.allocate((iterations + 1) * room.count * sizeof(float))),
        second(nccl.allocate(std::size_t(w.size()) * room.count * sizeof(float))),
        edges(nccl.allocate(2 * room.edge * sizeof(float))), ids(nccl.allocate(room.ids * sizeof(std::int32_t))),
        all_ids(nccl.allocate(std::size_t(w.size()) * room.ids * sizeof(std::int32_t))),
        reference(room.count * sizeof(float)) {}

  channel ch;
  sym<flag> sides;  // of all stencils: their launches have one number of steps at a time
  sym<embedding::vec4> table;
  collectives nccl;
  // Registered. Results of the iterations, and a start; the twin's other grid, or its sums of all bags; edges of the
  // ranks above and below; ids of this rank, and of all
  std::byte *first, *second, *edges, *ids, *all_ids;
  buffer reference;
};

class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s) : st_(st), s_(s), units_(st.w.compute_units()) {
    // As many bands for each unit as fit and divide the rows
    int const fit = resident_blocks(st.w, stencil::run_steps, threads, 0) / units_;
    for (bands_ = units_ * std::max(1, fit); s.is_stencil && s.rows % bands_ != 0;) bands_ -= units_;
    prepare();
  }

  std::vector<figure> run() {
    std::vector<variant> all;
    auto const add = [&](char const* name, bool graph, bool checked, std::function<void(int)> iteration) {
      if (std::find(set.variants.begin(), set.variants.end(), name) == set.variants.end()) return;
      std::function<void()> poison, check;
      if (checked) {
        poison = [this] {
          check_hip(hipMemsetAsync(result(0), 0xff, iterations * s_.count() * sizeof(float), st_.stream()),
                    "hipMemsetAsync");
        };
        check = [this] {
          for (int const i : {0, iterations - 1})
            compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(result(i), st_.reference.as<float>(),
                                                               std::int64_t(s_.count()), st_.scratch.as<sums>());
        };
      }
      all.push_back({name, std::move(iteration), graph, std::move(poison), std::move(check)});
    };
    auto const bsp = [this](int i) { twin(i, true); };
    add("local", true, false, [this](int i) { twin(i, false); });
    add("bsp_eager", false, true, bsp);
    add("bsp_graph", true, true, bsp);
    add("fused", true, true, [this](int i) { fused(i); });
    add_late(all, set.late);
    return measure(st_, all, iterations, set.repeats, [this] { st_.ch.reset(); });
  }

 private:
  float* start() const { return reinterpret_cast<float*>(st_.first) + std::size_t(iterations) * s_.count(); }
  float* result(int i) const { return reinterpret_cast<float*>(st_.first) + std::size_t(i) * s_.count(); }
  float* other() const { return reinterpret_cast<float*>(st_.second); }
  float* edge(int side) const { return reinterpret_cast<float*>(st_.edges) + side * s_.cols; }
  matrix<float> grid(float* data) const { return {data, s_.rows, s_.cols, s_.cols}; }

  /// A thread for each vec4 of the sums of so many ranks, as far as four blocks fit on a compute unit.
  int lookup_blocks(int of) const {
    return std::min(ceil_div(of * s_.lookup.bags * s_.lookup.dim / 4, 256), 8 * units_);
  }
  /// Both begin with a copy of the start: a stencil's steps end in the grid that they began in.
  void fused(int i) {
    if (s_.is_stencil) {
      check_hip(hipMemcpyAsync(result(i), start(), s_.count() * sizeof(float), hipMemcpyDeviceToDevice, st_.stream()),
                "hipMemcpyAsync");
      launch(st_.w, st_.stream(), {.blocks = bands_, .threads = threads}, stencil::run_steps,
             st_.ch.view(make_header("stencil", 0, std::uint64_t(s_.rows), std::uint64_t(s_.cols),
                                     std::uint64_t(bands_), std::uint64_t(s_.steps))),
             s_.grid(bands_), grid(result(i)), grid(other()), st_.sides);
    } else {
      launch(st_.w, st_.stream(), {.blocks = std::min(s_.ranks * s_.lookup.chunks(), 4 * units_), .threads = 256},
             embedding::sum_bags,
             st_.ch.view(make_header("lookup", 0, std::uint64_t(s_.lookup.rows), std::uint64_t(s_.lookup.dim),
                                     std::uint64_t(s_.lookup.bags), std::uint64_t(s_.lookup.ids))),
             s_.lookup, static_cast<embedding::vec4 const*>(st_.h.here(st_.table)),
             reinterpret_cast<std::int32_t const*>(st_.ids), reinterpret_cast<embedding::vec4*>(result(i)));
    }
  }

  void twin(int i, bool communicates) {
    int const rank = st_.w.rank(), last = s_.ranks - 1;
    if (s_.is_stencil) {
      check_hip(hipMemcpyAsync(result(i), start(), s_.count() * sizeof(float), hipMemcpyDeviceToDevice, st_.stream()),
                "hipMemcpyAsync");
      float *from = result(i), *to = other();
      for (int s = 0; s < s_.steps; ++s) {
        std::size_t const bytes = std::size_t(s_.cols) * sizeof(float);
        float const* const lowest = from + std::size_t(s_.rows - 1) * std::size_t(s_.cols);
        std::vector<collectives::message> all;
        if (rank > 0) all.push_back({from, edge(0), bytes, bytes, rank - 1});
        if (rank < last) all.push_back({lowest, edge(1), bytes, bytes, rank + 1});
        if (communicates && !all.empty()) st_.nccl.exchange(st_.stream(), all);
        step_once<<<dim3(unsigned(s_.rows)), dim3(threads), 0, st_.stream()>>>(
            grid(from), grid(to), rank > 0 ? edge(0) : nullptr, rank < last ? edge(1) : nullptr);
        std::swap(from, to);
      }
    } else {
      if (communicates) st_.nccl.all_gather(st_.stream(), st_.ids, st_.all_ids, s_.all_ids() * sizeof(std::int32_t));
      sum_own_rows<<<dim3(unsigned(lookup_blocks(s_.ranks))), dim3(256), 0, st_.stream()>>>(
          s_.lookup, st_.h.here(st_.table), reinterpret_cast<std::int32_t const*>(st_.all_ids),
          reinterpret_cast<embedding::vec4*>(other()), rank, s_.ranks);
      if (communicates) st_.nccl.reduce_scatter(st_.stream(), other(), result(i), std::size_t(s_.ranks) * s_.count());
    }
  }

  /// Fills what the shape reads, and computes the reference by plain steps.
  void prepare() {
    auto const stream = st_.stream();
    int const rank = st_.w.rank();
    if (s_.is_stencil) {
      fill_normal<<<dim3(1024), dim3(256), 0, stream>>>(start(), s_.rows, s_.cols, std::int64_t(rank) * s_.rows, 0,
                                                        s_.cols, 7);
    } else {
      std::int64_t const own = s_.lookup.rows_of(rank, s_.ranks);
      fill_normal<<<dim3(1024), dim3(256), 0, stream>>>(st_.h.here(st_.table)->x, own, s_.lookup.dim, 0, 0,
                                                        s_.lookup.dim, std::uint64_t(20 + rank));
      fill_ids<<<dim3(256), dim3(256), 0, stream>>>(reinterpret_cast<std::int32_t*>(st_.ids),
                                                    std::int64_t(s_.all_ids()), s_.lookup.rows,
                                                    std::uint64_t(40 + rank));
    }
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    st_.w.barrier();
    twin(0, true);
    check_hip(hipMemcpyAsync(st_.reference.as<float>(), result(0), s_.count() * sizeof(float), hipMemcpyDeviceToDevice,
                             stream),
              "hipMemcpyAsync");
    // Another number of steps may come: flags begin again
    check_hip(hipMemsetAsync(st_.h.here(st_.sides), 0, st_.sides.count * sizeof(flag), stream), "hipMemsetAsync");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    st_.w.barrier();
  }

  rank_state& st_;
  shape s_;
  int units_, bands_ = 0;
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, std::vector<figure>> results;

std::string name_of(std::string const& variant, shape const& s) {
  auto const slash = std::min(variant.find('/'), variant.size());
  std::string const extents = s.is_stencil ? text("/rows:", s.rows, "/cols:", s.cols, "/steps:", s.steps)
                                           : text("/rows:", s.lookup.rows, "/dim:", s.lookup.dim,
                                                  "/bags:", s.lookup.bags, "/ids:", s.lookup.ids);
  return text(s.is_stencil ? "stencil/" : "embedding/", variant.substr(0, slash), "/W:", s.ranks, extents,
              variant.substr(slash));
}

figure const* figure_of(std::vector<figure> const& all, std::string const& name) {
  for (auto const& f : all)
    if (f.name == name && f.failure.empty()) return &f;
  return nullptr;
}
figure const* twin_of(std::vector<figure> const& all) {
  auto const *eager = figure_of(all, "bsp_eager"), *graph = figure_of(all, "bsp_graph");
  return !eager || (graph && graph->us <= eager->us) ? graph : eager;
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  std::string const key = name_of("", s);
  if (!progress::get().begins(state, results.contains(key))) return;
  if (!results.contains(key)) {
    std::vector<figure> figures;
    try {
      ranks->run([&](rank_state& st) {
        auto mine = shape_runner(st, s).run();
        if (st.w.rank() == 0) figures = std::move(mine);
      });
    } catch (std::exception const& e) {
      figures.push_back({.name = variant, .failure = e.what()});
    }
    results[key] = figures;
  }
  auto const& all = results[key];
  auto const found = std::find_if(all.begin(), all.end(), [&](figure const& f) { return f.name == variant; });
  std::string const failure = found == all.end()        ? "not measured: the shape's first variant failed"
                              : !found->failure.empty() ? found->failure
                              : !(found->error < 1e-5)  ? text("wrong: relative error ", found->error)
                                                        : "";
  if (!failure.empty()) return state.SkipWithError(failure.c_str());
  for (auto _ : state) state.SetIterationTime(found->us * 1e-6);
  state.counters["min_us"] = found->least;
  state.counters["max_us"] = found->most;
  state.counters["sm_mhz"] = found->mhz;
  if (found->kernels > 0) state.counters["kernels"] = found->kernels;
  if (found->host_us > 0) state.counters["host_us"] = found->host_us;
  if (variant.find('/') != std::string::npos) return;  // ranks that are late are compared with each other
  if (auto const* l = figure_of(all, "local")) state.counters["x_local"] = found->us / l->us;
  if (auto const* t = twin_of(all)) state.counters["speedup"] = t->us / found->us;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  command_line c(argc, argv,
                 "bench_examples [--ranks=W] [--heights=H,...] [--cols=C,...] [--steps=S,...] [--bags=B,...] "
                 "[--ids=I,...] [--rows=R]\n"
                 "               [--dim=D] [--variants=local,bsp_eager,bsp_graph,fused] [--repeats=7] [--late=US,...] "
                 "[--quick] [--budget=S]\n"
                 "--heights: rows of the stencil's grid for each compute unit. --rows: of the table of all ranks. "
                 "--late: round robin, one rank per iteration is late.");
  bool const quick = c.flag("quick");
  int const of = c.number("ranks", std::max(1, gpus()));
  set = {c.number("repeats", quick ? 3 : 7),
         c.words("variants", "local|bsp_eager|bsp_graph|fused", {"local", "bsp_eager", "bsp_graph", "fused"}),
         late_times(c, false)};
  auto const heights = c.numbers("heights", quick ? std::vector{4} : std::vector{1, 2, 4, 8, 16, 32}),
             cols = c.numbers("cols", {4096}), steps = c.numbers("steps", {32}),
             bags = c.numbers("bags", quick ? std::vector{512} : std::vector{16, 64, 256, 1024, 4096, 16384}),
             ids = c.numbers("ids", {32});
  int const rows = c.number("rows", 1 << 20), dim = c.number("dim", 128);
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (of < 1 || of > gpus()) {
    std::fprintf(stderr, "bench_examples: %d ranks, %d GPUs: a GPU per rank is needed\n", of, gpus());
    return 77;
  }
  int units = 0;
  run_local(1, [&](world& w) { units = w.compute_units(); });
  std::vector<shape> shapes;
  for (int const h : heights)
    for (int const n : cols)
      for (int const s : steps) shapes.push_back({true, of, h * units, n, s + s % 2, {}});
  for (int const b : bags)
    for (int const i : ids) shapes.push_back({false, of, 0, 0, 0, {rows, dim, b, i, b <= 4096 ? 8 : 32}});
  capacity room;
  for (shape const& s : shapes)
    for (auto const& v : with_late(set.variants, set.late)) {
      std::string const name = name_of(v, s);
      if (!selected(name)) continue;
      progress::get().plan();
      room.include(s, units);
      benchmark::RegisterBenchmark(name.c_str(), report, v, s)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  add_context(of);
  benchmark::AddCustomContext(vendor::collectives_name,
                              text(NCCL_MAJOR, '.', NCCL_MINOR, '.', NCCL_PATCH, ", NVLS off"));
  ranks = std::make_unique<team<rank_state>>(of, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
