// A tensor-parallel decoder layer of Llama 3 70B's shapes, examples/decoder_layer.hpp, beside its bulk-synchronous
// twin; they take turns in one run on the same weights and KV.
//
//   bench_decoder_layer [--ranks=W] [--batches=1,4,16,64] [--tokens=8192,32768,131072] [--variants=NAME,...]
//                       [--late=US,...] [--repeats=7] [--memory=GiB] [--quick] [--budget=S]
//                       [Google Benchmark's options]
//
// Names: decoder_layer/VARIANT/W:w/batch:b/kv:n; elements are bf16, n tokens of each sequence over all ranks. real_time
// is one layer of the slowest rank: the median of the repeats, each a replay of R layers. measure.hpp has the protocol.
// Variants:
//
//   bsp_eager, bsp_graph     the twin, decoder_twin.hpp: the vendor's GEMMs and collectives, fourteen launches
//   fused                    seven launches
//   fused_8, fused_9         decoder::choices: sums with the norm; and QKV gathered by an all-gather
//   fused_eager              as fused, not in a graph
//
// Outputs are compared with the twin's first ones. Weights rotate among copies of 1 GB in all, KV among 0.5 GB. Shapes
// whose KV does not fit in --memory of a rank are left out.
// The three taxes: kernels (in a graph) and host_us (of fused_eager and bsp_eager) are the launches; --late measures
// bsp_graph and fused with ranks that are late; mb_between is what a layer stores for a later kernel to load.
#include "decoder_twin.hpp"
#include "harness.hpp"
#include "libraries.hpp"

#include <map>
#include <numeric>
#include <random>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

constexpr int page = 16;

struct shape {
  int ranks, batch, kv;

  int pages() const { return ceil_div(kv / ranks, page); }  // of a sequence on a rank
  decoder::shape layer() const { return decoder::shape::llama_70b(batch, pages()); }
  std::size_t page_elements() const { return std::size_t(page) * std::size_t(layer().kv_heads) * 128; }  // of K
  std::size_t copy_bytes() const { return std::size_t(batch) * std::size_t(pages()) * page_elements() * 4; }
  int iterations() const { return copy_bytes() > (std::size_t(2) << 30) ? 4 : 16; }
  int copies() const { return std::min(iterations(), int((512_MiB - 1) / copy_bytes()) + 1); }
  std::size_t pool() const { return std::size_t(copies()) * copy_bytes() / 2; }  // bytes of K
  std::size_t x_bytes() const { return std::size_t(batch) * std::size_t(layer().hidden) * 2; }
};

struct settings {
  int ranks, repeats;
  std::vector<std::string> variants;
  std::vector<int> late;
};
settings set;

template <class T>
__global__ void fill_scaled(T* to, std::int64_t n, float scale, std::uint64_t seed) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x)
    to[i] = T(scale * normal(std::uint64_t(i), seed));
}
__global__ void widen(bf16 const* from, float* to, std::int64_t n) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x)
    to[i] = float(from[i]);
}
/// y = x / rms(x), a block for each row: what the layer before leaves for the twin.
__global__ void normalise_rows(bf16 const* x, bf16* y, int cols) {
  __shared__ float shared[block_reduce_words];
  block const b;
  std::int64_t const at = std::int64_t(b.index()) * cols;
  float const scale = decoder::by_rms(b, x + at, cols, shared);
  for (int j = b.rank(); j < cols; j += b.size()) y[at + j] = bf16(float(x[at + j]) * scale);
}

struct capacity {
  std::size_t pool = 0, entries = 0, x = 0, bulk = 0, signal = 0, max_bytes = 1;
  int batch = 1, flags = 1;

  void include(shape const& s) {
    pool = std::max(pool, s.pool()), batch = std::max(batch, s.batch);
    entries = std::max(entries, std::size_t(s.copies()) * std::size_t(s.batch) * std::size_t(s.pages()));
    x = std::max(x, std::size_t(s.iterations()) * s.x_bytes());
    auto const r = decoder::layer::needs(s.ranks, s.layer());
    bulk = std::max(bulk, r.bulk()), signal = std::max(signal, r.signal());
    max_bytes = std::max(max_bytes, r.max_bytes()), flags = std::max(flags, r.flags_per_source());
  }
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(w_, round_up(4 * c.bulk + 2 * c.max_bytes + 64_MiB, 2_MiB), round_up(4 * c.signal + 64_MiB, 2_MiB)),
        ch(h, {.max_bytes = c.max_bytes, .flags_per_source = c.flags}), alone(w_.split(w_.rank())),
        alone_heap(alone, {.bulk = 256_MiB, .signal = 64_MiB, .wait_limit = std::chrono::seconds(2)}),
        alone_ch(alone_heap, {.max_bytes = 1, .flags_per_source = 1}), nccl(w_), k(c.pool), v(c.pool),
        table(c.entries * 4), step(std::size_t(c.batch) * (8 + 64 * 8)), begin(c.x), normed(c.x), x(c.x), y(c.x),
        first(2 * c.x), last(2 * c.x), workspace(blas_gemm<bf16>::workspace_bytes) {
    check_blas(vendor::blas_create(&handle) == vendor::blas_success, "create");
    auto const s = decoder::shape::llama_70b(1, 1);
    auto const qkv = std::size_t(s.heads() * s.d / w.size()) * std::size_t(s.hidden),
               inner = std::size_t(s.ffn / w.size()),
               own = std::size_t(s.q_heads / w.size() * s.d) * std::size_t(s.hidden),
               gate = 2 * inner * std::size_t(s.hidden), down = gate / 2, all = qkv + own + gate + down;
    copies = int(1_GiB / (all * 2)) + 1;
    weights = buffer(std::size_t(copies) * all * 2);
    std::uint64_t seed = 10'000 * std::uint64_t(w.rank());
    bf16* at = weights.as<bf16>();
    auto const next = [&](std::size_t count, int rows) {
      fill_scaled<<<dim3(2048), dim3(256), 0, stream()>>>(at, std::int64_t(count), 1 / std::sqrt(float(rows)), ++seed);
      return std::exchange(at, at + count);
    };
    for (int i = 0; i < copies; ++i) {
      decoder::weights one;
      one.qkv = next(qkv, s.hidden), one.out = next(own, s.q_heads * s.d);
      one.gate_and_up = next(gate, s.hidden), one.down = next(down, s.ffn);
      layers.push_back(one);
    }
    // K's scale makes some tokens count, so that attention is seen in x
    fill_scaled<<<dim3(2048), dim3(256), 0, stream()>>>(k.as<bf16>(), std::int64_t(c.pool / 2), 3.0f, ++seed);
    fill_scaled<<<dim3(2048), dim3(256), 0, stream()>>>(v.as<bf16>(), std::int64_t(c.pool / 2), 1.0f, ++seed);
    check_hip(hipStreamSynchronize(stream()), "hipStreamSynchronize");
  }
  ~rank_state() { vendor::blas_destroy(handle); }

  channel ch;
  world alone;
  heap alone_heap;
  channel alone_ch;
  collectives nccl;
  buffer k, v, table, step;
  buffer begin, normed, x, y;  // [R][batch, hidden]: inputs, normalised; and where layers work
  buffer first, last;          // fp32: references of iterations 0 and R - 1
  buffer workspace, weights;
  vendor::blas_handle handle{};
  int copies = 0;
  std::vector<decoder::weights> layers;
  std::map<std::array<int, 3>, std::unique_ptr<blas_gemm<bf16>>> products;  // the fastest heuristic of each m, n, k
};

class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s)
      : st_(st), s_(s), g_(s.layer()), fused_(st.h, st.ch, g_), twin_(make_twin()) {
    prepare();
  }

  std::vector<figure> run() {
    std::vector<variant> all;
    for (std::string const& name : set.variants) {
      if (name.starts_with("bsp")) add(all, name, [this](int i) { twin(i); });
      else {
        decoder::choices const c{name != "fused_9", name != "fused_8" && name != "fused_9"};
        auto const op = std::make_shared<decoder::layer>(st_.h, st_.ch, g_, c);
        add(all, name, [this, op](int i) { (*op)(st_.stream(), weights(i), kv(), step(i), x(i)); });
      }
    }
    add_late(all, set.late);
    return measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(), st_.alone_ch.reset(); });
  }

 private:
  std::int64_t count() const { return std::int64_t(s_.batch) * g_.hidden; }
  bf16* of(buffer const& b, int i) const { return b.as<bf16>() + i * count(); }
  bf16* x(int i) const { return of(st_.x, i); }
  decoder::weights const& weights(int i) const { return st_.layers[std::size_t(i % st_.copies)]; }
  decoder::kv_cache kv() const { return {st_.k.as<bf16>(), st_.v.as<bf16>()}; }
  std::int32_t* lengths() const { return st_.step.as<std::int32_t>(); }
  /// The new token is the last one of the last rank, in the same place in every copy of KV.
  decoder::step step(int i) const {
    auto* const slots = lengths() + s_.batch;
    return {s_.batch, st_.table.as<std::int32_t>() + std::int64_t(i % s_.copies()) * s_.batch * s_.pages(), lengths(),
            slots, reinterpret_cast<float2 const*>(slots + s_.batch)};
  }

  decoder_twin make_twin() {
    hipStream_t const stream = st_.stream();
    return decoder_twin(
        st_.w, st_.alone_ch, fused_, g_,
        {[this, stream](int, bf16 const* a, bf16 const* b, bf16* c, int m, int n, int k) {
           (*product(a, b, c, m, n, k))(stream, a, b, c);
         },
         [this, stream](void const* mine, void* all, std::size_t bytes) {
           st_.nccl.all_gather(stream, mine, all, bytes);
         },
         [this, stream](bf16 const* mine, bf16* sum, std::size_t n) { st_.nccl.all_reduce(stream, mine, sum, n); },
         [this, stream] { st_.nccl.complete(stream); }},
        [this](std::size_t bytes) { return st_.nccl.allocate(bytes); });
  }
  /// The first call of a shape measures all heuristics, outside of a capture: prepare() makes it.
  blas_gemm<bf16>* product(bf16 const* a, bf16 const* b, bf16* c, int m, int n, int k) {
    auto& known = st_.products[{m, n, k}];
    if (known) return known.get();
    known = std::make_unique<blas_gemm<bf16>>(st_.handle, st_.workspace.as<void>(),
                                              blas_shape{m, n, k, k, k, n, layout::column_major, false});
    float best = INFINITY;
    int chosen = 0;
    for (int i = 0; i < known->choices(); ++i) {
      known->choose(i);
      if (!(*known)(st_.stream(), a, b, c)) continue;
      check_hip(hipEventRecord(st_.start, st_.stream()), "hipEventRecord");
      for (int again = 0; again < 8; ++again) (*known)(st_.stream(), a, b, c);
      check_hip(hipEventRecord(st_.stop, st_.stream()), "hipEventRecord");
      check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
      float ms = 0;
      check_hip(hipEventElapsedTime(&ms, st_.start, st_.stop), "hipEventElapsedTime");
      if (ms < best) best = ms, chosen = i;
    }
    known->choose(chosen);
    return known.get();
  }
  void twin(int i) { twin_(st_.stream(), weights(i), kv(), step(i), x(i), of(st_.y, i)); }

  void restore() const {
    auto const bytes = std::size_t(s_.iterations()) * s_.x_bytes();
    for (auto [to, from] : {std::pair{&st_.x, &st_.begin}, std::pair{&st_.y, &st_.normed}})
      check_hip(hipMemcpyAsync(to->as<void>(), from->as<void>(), bytes, hipMemcpyDeviceToDevice, st_.stream()),
                "hipMemcpyAsync");
  }
  void prepare() {
    int const R = s_.iterations(), pages = s_.pages();
    std::vector<std::int32_t> order(std::size_t(s_.copies() * s_.batch * pages)), tail;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7u));
    bool const owner = st_.w.rank() == s_.ranks - 1;
    // A sequence's last page is the same in every copy, so that a slot is
    for (int copy = 1; copy < s_.copies(); ++copy)
      for (int i = 0; i < s_.batch; ++i)
        order[std::size_t(((copy * s_.batch + i) + 1) * pages - 1)] = order[std::size_t((i + 1) * pages - 1)];
    for (int i = 0; i < s_.batch; ++i) tail.push_back(pages * page);
    for (int i = 0; i < s_.batch; ++i)
      tail.push_back(owner ? order[std::size_t((i + 1) * pages - 1)] * page + page - 1 : -1);
    std::vector<float2> rotations;
    for (int i = 0; i < s_.batch; ++i)
      for (int p = 0; p < 64; ++p) {
        double const angle = (s_.kv - 1) * std::pow(500000.0, -p / 64.0);
        rotations.push_back({float(std::cos(angle)), float(std::sin(angle))});
      }
    check_hip(hipMemcpy(st_.table.as<void>(), order.data(), order.size() * 4, hipMemcpyHostToDevice), "hipMemcpy");
    check_hip(hipMemcpy(lengths(), tail.data(), tail.size() * 4, hipMemcpyHostToDevice), "hipMemcpy");
    check_hip(hipMemcpy(lengths() + 2 * s_.batch, rotations.data(), rotations.size() * 8, hipMemcpyHostToDevice),
              "hipMemcpy");
    fill_scaled<<<dim3(1024), dim3(256), 0, st_.stream()>>>(st_.begin.as<bf16>(), R * count(), 1.0f, 77);
    normalise_rows<<<dim3(unsigned(R * s_.batch)), dim3(256), 0, st_.stream()>>>(st_.begin.as<bf16>(),
                                                                                 st_.normed.as<bf16>(), g_.hidden);
    restore();
    for (int const i : {0, R - 1}) {
      twin(i);
      widen<<<dim3(512), dim3(256), 0, st_.stream()>>>(x(i), reference(i), count());
    }
    check_hip(hipGetLastError(), "preparing");
    check_hip(hipStreamSynchronize(st_.stream()), "hipStreamSynchronize");
    st_.w.barrier();
  }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).as<float>(); }

  void add(std::vector<variant>& all, std::string const& name, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), !name.ends_with("eager"), [this] { restore(); },
                   [this] {
                     for (int const i : {0, s_.iterations() - 1})
                       compare<<<dim3(512), dim3(256), 0, st_.stream()>>>(x(i), reference(i), count(),
                                                                          st_.scratch.as<sums>());
                   }});
  }

  rank_state& st_;
  shape s_;
  decoder::shape g_;
  decoder::layer fused_;
  decoder_twin twin_;
};

struct row : shape_figures {
  shape s;
  figure const* twin() const { return faster("bsp_eager", "bsp_graph"); }
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;

std::string name_of(std::string const& variant, shape const& s) {
  auto const slash = variant.find('/');
  return text("decoder_layer/", variant.substr(0, slash), "/W:", s.ranks, "/batch:", s.batch, "/kv:", s.kv,
              slash == std::string::npos ? "" : variant.substr(slash));
}

/// MB that kernels of a layer store and others load: activations, and what collectives take and give.
double mb_between(shape const& s, bool twin) {
  auto const g = s.layer();
  double const qkv = g.heads() * g.d, q = g.q_heads * g.d, own = q / s.ranks, inner = double(g.ffn) / s.ranks;
  double const fused = qkv + q + own + 2 * g.hidden + inner,
               more = qkv / s.ranks + q * (s.ranks + 1) + 5 * g.hidden + 2 * inner;
  return (twin ? fused + more : fused) * s.batch * 2e-6;
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  row const* const r = results_of(state, results, name_of("", s), variant, row{{}, s}, *ranks,
                                  [&](rank_state& st) { return shape_runner(st, s).run(); });
  if (!r) return;
  figure const* const found = report_variant(state, *r, variant, 2e-2);
  if (!found) return;
  state.counters["mb_between"] = mb_between(s, variant.starts_with("bsp"));
  if (auto const* t = r->twin()) state.counters["speedup"] = t->us / found->us;
}

void print_table() {
  std::printf("\nmicroseconds of a layer, slowest rank, median; speedup: of fused over the better twin; NVLS off\n");
  std::printf("%2s %5s %7s |", "W", "batch", "tokens");
  for (std::string const& v : set.variants) std::printf("%11s ", v.c_str());
  std::printf("| speedup\n");
  for (auto const& [key, r] : results) {
    std::printf("%2d %5d %7d |", r.s.ranks, r.s.batch, r.s.kv);
    for (std::string const& v : set.variants) {
      if (auto const* f = r.of(v)) std::printf("%11.1f ", f->us);
      else std::printf("%11s ", "-");
    }
    auto const *t = r.twin(), *f = r.of("fused");
    if (f && t) std::printf("| %.2f", t->us / f->us);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  command_line c(argc, argv,
                 "bench_decoder_layer [--ranks=W] [--batches=1,4,16,64] [--tokens=8192,32768,131072] "
                 "[--variants=NAME,...]\n"
                 "                    [--late=US,...] [--repeats=7] [--memory=GiB] [--quick] [--budget=S]\n"
                 "NAME: bsp_eager, bsp_graph, fused, fused_8, fused_9, fused_eager. --memory: of the KV of a rank.");
  using names = std::vector<std::string>;
  bool const quick = c.flag("quick");
  set = {c.number("ranks", std::max(1, gpus())), c.number("repeats", quick ? 3 : 7),
         c.words("variants", "bsp_eager|bsp_graph|fused|fused_8|fused_9|fused_eager",
                 names{"bsp_eager", "bsp_graph", "fused", "fused_8", "fused_9"}),
         late_times(c, false)};
  auto const batches = c.numbers("batches", quick ? std::vector{1, 16} : std::vector{1, 4, 16, 64}),
             tokens = c.numbers("tokens", quick ? std::vector{8192} : std::vector{8192, 32768, 131072});
  std::size_t const memory = std::size_t(c.number("memory", 40)) << 30;
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus() || 16 % set.ranks) {
    std::fprintf(stderr, "bench_decoder_layer: %d ranks, %d GPUs: a GPU per rank is needed, and 1, 2, 4 or 8\n",
                 set.ranks, gpus());
    return 77;
  }
  capacity room;
  for (int const batch : batches)
    for (int const kv : tokens) {
      shape const s{set.ranks, batch, kv};
      if (kv % (set.ranks * page) || 2 * s.pool() > memory) continue;
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
    }
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
