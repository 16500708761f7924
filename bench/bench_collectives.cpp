// All-gather, reduce-scatter and all-to-all beside the vendor's collectives, which take turns in one run on the same
// arrays.
//
//   bench_collectives [--ranks=W] [--kb=KB,...] [--operators=all_gather,reduce_scatter,all_to_all,all_to_all_v]
//                     [--variants=NAME,...] [--repeats=7] [--quick] [--budget=S] [Google Benchmark's options]
//
// Names: OPERATOR/VARIANT/W:w/kb:KB, elements are bf16; KB is a slice, what a rank sends to each other one.
// all_to_all_v sends slices of one size, too, which only the device knows; its twin knows it on the host. real_time is
// one iteration of the slowest rank: the median of the repeats, each a replay of R iterations. measure.hpp has the
// protocol. Variants:
//
//   bsp_eager, bsp_graph   the vendor's collective; of all-to-all its sends and receives
//   words, flags           LL words; flags
//   fused                  what the operator chooses
//   fused_eager            as fused, not in a graph
//
// Counters: gbps is the bytes that a rank sends, over time; speedup is the better twin's time over this one.
#include "harness.hpp"
#include "libraries.hpp"

#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_to_all.hpp>
#include <fusewire/ops/all_to_all_v.hpp>
#include <fusewire/ops/reduce_scatter.hpp>
#include <map>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

enum class collective { gather, reduce, exchange, exchange_rows };
constexpr char const* names[] = {"all_gather", "reduce_scatter", "all_to_all", "all_to_all_v"};
constexpr int row_elements = 512;  // of all_to_all_v

struct shape {
  collective what;
  int ranks, kb;  // of a slice

  std::int64_t count() const { return std::int64_t(kb) * 512; }
  std::int64_t in() const { return what == collective::gather ? count() : count() * ranks; }
  std::int64_t out() const { return what == collective::reduce ? count() : count() * ranks; }
  int iterations() const { return kb > 1024 ? 8 : 48; }
  double sent() const { return double(count()) * 2 * (ranks - 1); }
};

struct settings {
  int ranks, repeats;
  std::vector<std::string> variants;
};
settings set;

row_transport transport_of(std::string const& variant) {
  return variant == "words"   ? row_transport::ll_words
         : variant == "flags" ? row_transport::flags
                              : row_transport::automatic;
}

/// What this rank should have, of what all ranks had: `all` is [W][in].
__global__ void references(bf16 const* all, float* to, collective what, std::int64_t count, int rank, int ranks) {
  std::int64_t const n = what == collective::reduce ? count : count * ranks;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    std::int64_t const source = i / count, own = rank * count + i % count;  // of what a rank has for all
    if (what == collective::gather) to[i] = float(all[i]);
    else if (what != collective::reduce) to[i] = float(all[source * count * ranks + own]);
    else {
      float x = 0;
      for (int r = 0; r < ranks; ++r) x += float(all[r * count * ranks + own]);
      to[i] = float(bf16(x));
    }
  }
}

/// Calls visit(operator's type as a value) with its options.
template <class Visit>
auto with_operator(shape const& s, row_transport transport, Visit const& visit) {
  std::int64_t const n = s.count();
  switch (s.what) {
    case collective::gather:
      return visit(std::type_identity<all_gather<bf16>>(), all_gather_options{.max_count = n, .transport = transport});
    case collective::reduce:
      return visit(std::type_identity<reduce_scatter<bf16>>(),
                   reduce_scatter_options{.max_count = n, .transport = transport});
    case collective::exchange:
      return visit(std::type_identity<all_to_all<bf16>>(), all_to_all_options{.max_count = n, .transport = transport});
    default:
      return visit(std::type_identity<all_to_all_v<bf16>>(),
                   all_to_all_v_options{.max_count = n, .transport = transport});
  }
}

struct capacity {
  std::size_t ins = 0, outs = 0, in = 0, out = 0;  // bytes of [R][in], of [R][out], of one of them

  void include(shape const& s, std::string const& variant) {
    std::size_t const R = std::size_t(s.iterations());
    in = std::max(in, std::size_t(s.in()) * 2), out = std::max(out, std::size_t(s.out()) * 2);
    ins = std::max(ins, R * std::size_t(s.in()) * 2), outs = std::max(outs, R * std::size_t(s.out()) * 2);
    auto const r = with_operator(s, transport_of(variant), [&]<class Op>(std::type_identity<Op>, auto const& o) {
      return Op::requirements(s.ranks, o);
    });
    bulk = std::max(bulk, r.bulk()), signal = std::max(signal, r.signal());
    max_bytes = std::max(max_bytes, r.max_bytes()), flags = std::max(flags, r.flags_per_source());
  }
  std::size_t bulk = 0, signal = 0, max_bytes = 1;
  int flags = 1;
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(w_, round_up(2 * c.max_bytes + 64_MiB, 2_MiB), round_up(8 * c.signal + 64_MiB, 2_MiB)),
        ch(h, {.max_bytes = c.max_bytes, .flags_per_source = c.flags}), nccl(w_), in(nccl.allocate(c.ins)),
        out(nccl.allocate(c.outs)), all(nccl.allocate(c.in * std::size_t(w_.size()))), first(2 * c.out),
        last(2 * c.out), counts(std::size_t(w_.size()) * 8) {}

  channel ch;
  collectives nccl;
  std::byte *in, *out, *all;  // registered: [R][in], [R][out], [W][in]
  buffer first, last;         // fp32 [out]: references of iterations 0 and R - 1
  buffer counts;              // [W], int64, of all_to_all_v
};

class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s) : st_(st), s_(s) { prepare(); }

  std::vector<figure> run() {
    std::vector<variant> all;
    for (std::string const& name : set.variants) {
      if (name.starts_with("bsp")) add(all, name, [this](int i) { twin(i); });
      else fused(all, name);
    }
    auto figures = measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(); });
    for (auto const& f : refused_) figures.push_back(f);
    return figures;
  }

 private:
  bf16* in(int i) const { return reinterpret_cast<bf16*>(st_.in) + i * s_.in(); }
  bf16* out(int i) const { return reinterpret_cast<bf16*>(st_.out) + i * s_.out(); }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).template as<float>(); }

  /// Fills arrays, different on every rank and in every iteration, and the references of the first and the last.
  void prepare() {
    int const R = s_.iterations();
    for (int i = 0; i < R; ++i)
      fill_normal<<<dim3(2048), dim3(256), 0, st_.stream()>>>(
          in(i), s_.in() / row_elements, row_elements, 0, 0, row_elements,
          1 + std::uint64_t(i) + 10'000 * std::uint64_t(st_.w.rank()));
    for (int const i : {0, R - 1}) {
      st_.nccl.all_gather(st_.stream(), in(i), st_.all, std::size_t(s_.in()) * 2);
      references<<<dim3(1024), dim3(256), 0, st_.stream()>>>(reinterpret_cast<bf16 const*>(st_.all), reference(i),
                                                             s_.what, s_.count(), st_.w.rank(), s_.ranks);
    }
    std::vector<std::int64_t> const rows(std::size_t(s_.ranks), s_.count() / row_elements);
    check_hip(hipMemcpy(st_.counts.as<std::int64_t>(), rows.data(), rows.size() * 8, hipMemcpyHostToDevice),
              "hipMemcpy");
    check_hip(hipGetLastError(), "preparing arrays");
    check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
  }

  void twin(int i) const {
    std::size_t const bytes = std::size_t(s_.count()) * 2;
    if (s_.what == collective::gather) return st_.nccl.all_gather(st_.stream(), in(i), out(i), bytes);
    if (s_.what == collective::reduce)
      return st_.nccl.reduce_scatter(st_.stream(), in(i), out(i), std::size_t(s_.in()));
    std::vector<collectives::message> all;
    for (int p = 0; p < s_.ranks; ++p)
      all.push_back({in(i) + p * s_.count(), out(i) + p * s_.count(), bytes, bytes, p});
    st_.nccl.exchange(st_.stream(), all);
  }

  void add(std::vector<variant>& all, std::string const& name, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), !name.ends_with("eager"),
                   [this] {
                     check_hip(hipMemsetAsync(out(0), 0xff, std::size_t(s_.iterations() * s_.out()) * 2, st_.stream()),
                               "hipMemsetAsync");
                   },
                   [this] {
                     for (int const i : {0, s_.iterations() - 1})
                       compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(out(i), reference(i), s_.out(),
                                                                          st_.scratch.as<sums>());
                   }});
  }
  void fused(std::vector<variant>& all, std::string const& name) {
    try {
      with_operator(s_, transport_of(name), [&]<class Op>(std::type_identity<Op>, auto const& o) {
        auto const op = std::make_shared<Op>(st_.ch, o);
        add(all, name, [this, op](int i) {
          if constexpr (std::is_same_v<Op, all_to_all_v<bf16>>) {
            int const rows = int(s_.in() / row_elements);
            (*op)(st_.stream(), all_to_all_v_call<bf16>{.in = in(i),
                                                        .in_rows = rows,
                                                        .out = out(i),
                                                        .out_rows = rows,
                                                        .cols = row_elements,
                                                        .in_counts = st_.counts.as<std::int64_t>()});
          } else {
            (*op)(st_.stream(), {.in = in(i), .out = out(i), .count = s_.count()});
          }
        });
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
  return text(names[int(s.what)], "/", variant, "/W:", s.ranks, "/kb:", s.kb);
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
  std::printf("%-14s %2s %7s |", "operator", "W", "KB");
  for (std::string const& v : set.variants) std::printf("%11s ", v.c_str());
  std::printf("| %7s %6s\n", "speedup", "GB/s");
  for (auto const& [key, r] : results) {
    std::printf("%-14s %2d %7d |", names[int(r.s.what)], r.s.ranks, r.s.kb);
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
  command_line c(argc, argv,
                 "bench_collectives [--ranks=W] [--kb=KB,...] "
                 "[--operators=all_gather,reduce_scatter,all_to_all,all_to_all_v]\n"
                 "                  [--variants=NAME,...] [--repeats=7] [--quick] [--budget=S]\n"
                 "NAME: bsp_eager, bsp_graph, words, flags, fused, fused_eager. --kb: what a rank sends to each other "
                 "one.");
  bool const quick = c.flag("quick");
  int const of = c.number("ranks", std::max(1, gpus()));
  set = {of, c.number("repeats", quick ? 3 : 7),
         c.words("variants", "bsp_eager|bsp_graph|words|flags|fused|fused_eager",
                 of == 1 ? std::vector<std::string>{"fused"}
                         : std::vector<std::string>{"bsp_graph", "words", "flags", "fused"})};
  auto const kbs =
      c.numbers("kb", quick ? std::vector{4, 64, 1024, 16384} : std::vector{4, 16, 64, 256, 1024, 4096, 16384, 65536});
  auto const operators = c.words("operators", "all_gather|reduce_scatter|all_to_all|all_to_all_v",
                                 {names[0], names[1], names[2], names[3]});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_collectives: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  capacity room;
  auto const plan = [&](shape const& s) {
    for (auto const& v : set.variants) {
      std::string const name = name_of(v, s);
      // LL words of long arrays would take the whole signal segment
      if ((v == "words" && s.kb > 4096) || !selected(name)) continue;
      progress::get().plan();
      room.include(s, v);
      benchmark::RegisterBenchmark(name.c_str(), report, v, s)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  };
  for (int i = 0; i < int(std::size(names)); ++i)
    if (std::find(operators.begin(), operators.end(), names[i]) != operators.end())
      for (int const kb : kbs) plan({collective(i), set.ranks, kb});
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
