// Tokens to the ranks of their experts, and results back: moe_dispatch and moe_combine beside what the vendor's
// collectives make of it, which take turns in one run on the same arrays.
//
//   bench_moe [--ranks=W] [--tokens=T,...] [--hidden=7168] [--experts=256] [--top-k=8] [--spread=even,skewed]
//             [--operators=dispatch,combine] [--variants=NAME,...] [--repeats=7] [--quick] [--budget=S]
//             [Google Benchmark's options]
//
// Names: OPERATOR/VARIANT/W:w/tokens:T/SPREAD, elements are bf16, T tokens of each rank; skewed: one expert has 8 times
// the mean. real_time is one iteration of the slowest rank: the median of the repeats, each a replay of R iterations.
// measure.hpp has the protocol. Variants:
//
//   bsp_graph   dispatch: all-gather of rows and tables; combine: reduce-scatter of rows of all tokens
//   exchange    sends and receives of what each rank needs, whose numbers the host knows before; a kernel packs rows
//               before, or adds them up after
//   by_token    the operator: a row for each token that comes
//   by_expert   the operator: a row for each expert of it; combine adds them up with weights
//   routed      dispatch alone: by_token by the routing of an earlier call
//
// Counters: gbps is the bytes that the busiest rank sends at least, over time; speedup is the better twin's time over
// this one.
#include "harness.hpp"
#include "libraries.hpp"

#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <map>
#include <random>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

struct shape {
  bool combines, skewed;
  int ranks, tokens, hidden, experts, top_k;

  std::size_t row_bytes() const { return std::size_t(hidden) * 2; }
  std::size_t all_tokens() const { return std::size_t(ranks) * std::size_t(tokens); }
  int iterations() const { return std::size_t(tokens) * row_bytes() > (4u << 20) ? 6 : 32; }
};

struct settings {
  int ranks, repeats;
  std::vector<std::string> variants;
};
settings set;

/// What the host knows of a shape: tables of all ranks, and what comes to each.
struct host_routing {
  std::vector<std::int32_t> table;          // [ranks * tokens, top_k]
  std::vector<std::vector<int>> received;   // of each rank: tokens of all ranks, in order
  std::vector<std::vector<int>> by_expert;  // of each rank: the token of each row, -1 for none
  std::vector<std::vector<int>> expert_of;  // likewise its expert
  std::vector<std::vector<int>> pairs;      // [source][rank]: tokens that go there

  explicit host_routing(shape const& s) {
    std::mt19937 random(7);
    int const each = s.experts / s.ranks;
    for (std::size_t t = 0; t < s.all_tokens(); ++t) {
      std::vector<int> chosen;
      if (s.skewed && random() % unsigned(s.experts) < unsigned(8 * s.top_k)) chosen.push_back(0);
      while (int(chosen.size()) < s.top_k)
        if (int const e = int(random() % unsigned(s.experts)); std::ranges::find(chosen, e) == chosen.end())
          chosen.push_back(e);
      table.insert(table.end(), chosen.begin(), chosen.end());
    }
    pairs.assign(std::size_t(s.ranks), std::vector<int>(std::size_t(s.ranks)));
    for (int r = 0; r < s.ranks; ++r) {
      std::vector<std::vector<int>> of_expert;
      of_expert.resize(std::size_t(each));
      auto& all = received.emplace_back();
      for (int t = 0; t < int(s.all_tokens()); ++t) {
        bool any = false;
        for (int j = 0; j < s.top_k; ++j) {
          int const e = table[std::size_t(t * s.top_k + j)] - r * each;
          if (e < 0 || e >= each) continue;
          of_expert[std::size_t(e)].push_back(t), any = true;
        }
        if (any) all.push_back(t), ++pairs[std::size_t(t / s.tokens)][std::size_t(r)];
      }
      auto &rows = by_expert.emplace_back(), &experts = expert_of.emplace_back();
      for (int e = 0; e < each; ++e) {
        rows.insert(rows.end(), of_expert[std::size_t(e)].begin(), of_expert[std::size_t(e)].end());
        rows.resize(round_up(rows.size(), 128), -1);
        experts.resize(rows.size(), r * each + e);
      }
    }
  }
  std::size_t most_rows(bool experts) const {
    std::size_t most = 1;
    for (auto const& r : experts ? by_expert : received) most = std::max(most, r.size());
    return most;
  }
  /// Rows that the busiest rank sends to the others.
  int sent(bool back) const {
    int most = 0;
    for (std::size_t r = 0; r < pairs.size(); ++r) {
      int sum = 0;
      for (std::size_t p = 0; p < pairs.size(); ++p)
        if (p != r) sum += back ? pairs[p][r] : pairs[r][p];
      most = std::max(most, sum);
    }
    return most;
  }
};

moe_options options_of(shape const& s, host_routing const& h, bool experts) {
  return {.max_tokens = s.tokens,
          .experts = s.experts,
          .top_k = s.top_k,
          .max_row_bytes = int(s.row_bytes()),
          .layout = experts ? moe_layout::by_expert : moe_layout::by_token,
          .alignment = experts ? 128 : 1,
          .max_rows = int(h.most_rows(experts))};
}

/// Row i of `out` is row `of[i]` of the whole, from a token's number.
__device__ float x_at(int token, int c, int hidden) {
  return normal(std::uint64_t(token) * std::uint64_t(hidden) + std::uint64_t(c), 3);
}
/// What an expert makes of a token.
__device__ float y_at(int expert, int token, int c, int hidden) {
  return normal(std::uint64_t(token) * std::uint64_t(hidden) + std::uint64_t(c), 100 + std::uint64_t(expert));
}

template <class F>
__device__ void for_elements(std::int64_t rows, int hidden, F const& f) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x,
                    step = std::int64_t(gridDim.x) * blockDim.x;
       i < rows * hidden; i += step)
    f(i, int(i / hidden), int(i % hidden));
}

__global__ void fill_tokens(bf16* x, int rows, int first, int hidden) {
  for_elements(rows, hidden, [&](std::int64_t i, int r, int c) { x[i] = bf16(x_at(first + r, c, hidden)); });
}
/// Compares rows with those of tokens; row i is that of token of[i].
__global__ void compare_tokens(bf16 const* x, int const* of, int rows, int hidden, sums* out) {
  double e = 0, n = 0;
  for_elements(rows, hidden, [&](std::int64_t i, int r, int c) {
    if (of[r] < 0) return;
    float const wanted = float(bf16(x_at(of[r], c, hidden))), d = float(x[i]) - wanted;
    e += double(d) * d, n += double(wanted) * wanted;
  });
  atomic_ref<double, scope::device>(&out->error2).fetch_add(e, order::relaxed);
  atomic_ref<double, scope::device>(&out->reference2).fetch_add(n, order::relaxed);
}
/// The sum of what experts [first, first + each) make of tokens; row i is that of token of[i].
__global__ void fill_partials(bf16* y, int const* of, std::int32_t const* table, int rows, int hidden, int top_k,
                              int first, int each) {
  for_elements(rows, hidden, [&](std::int64_t i, int r, int c) {
    float sum = 0;
    for (int j = 0; j < top_k; ++j)
      if (int const e = table[of[r] * top_k + j]; e >= first && e < first + each) sum += y_at(e, of[r], c, hidden);
    y[i] = bf16(sum);
  });
}
__global__ void fill_results(bf16* y, int const* of, int const* expert, int rows, int hidden) {
  for_elements(rows, hidden,
               [&](std::int64_t i, int r, int c) { y[i] = bf16(of[r] < 0 ? 0 : y_at(expert[r], of[r], c, hidden)); });
}
__global__ void reference_sums(float* sum, std::int32_t const* table, int rows, int hidden, int top_k, int first) {
  for_elements(rows, hidden, [&](std::int64_t i, int r, int c) {
    float x = 0;
    for (int j = 0; j < top_k; ++j) x += y_at(table[(first + r) * top_k + j], first + r, c, hidden);
    sum[i] = x;
  });
}

/// Rows of the twin's messages: block i copies row from[i] of x to row i of y, or the other way round.
__global__ void pack_rows(bf16 const* x, bf16* y, int const* from, int hidden) {
  copy(block{}, x + std::int64_t(from[blockIdx.x]) * hidden, y + std::int64_t(blockIdx.x) * hidden, hidden);
}
/// Adds up, for token i, the rows of the messages that it has: rows[i * ranks + r], -1 for none.
__global__ void add_rows(bf16 const* y, bf16* out, int const* rows, int ranks, int hidden) {
  for (int v = int(threadIdx.x); v < hidden / 8; v += int(blockDim.x)) {
    float sum[8] = {};
    for (int r = 0; r < ranks; ++r) {
      int const row = rows[int(blockIdx.x) * ranks + r];
      if (row < 0) continue;
      auto const x = detail::load_vec16(y + std::int64_t(row) * hidden + v * 8);
      for (int j = 0; j < 8; ++j) sum[j] += float(x.element[j]);
    }
    for (int j = 0; j < 8; ++j) out[std::int64_t(blockIdx.x) * hidden + v * 8 + j] = bf16(sum[j]);
  }
}

struct capacity {
  std::size_t tokens = 0, all = 0, rows = 0, entries = 0, max_bytes = 1;  // bytes of rows; entries of tables
  int flags = 1;

  void include(shape const& s) {
    host_routing const h(s);
    tokens = std::max(tokens, std::size_t(s.tokens) * s.row_bytes());
    all = std::max(all, s.all_tokens() * s.row_bytes());
    rows = std::max(rows, h.most_rows(true) * s.row_bytes());
    entries = std::max(entries, std::max(s.all_tokens() * std::size_t(s.top_k), h.most_rows(true)) * 4);
    for (bool const experts : {false, true}) {
      auto const r = moe_dispatch::requirements(s.ranks, options_of(s, h, experts)) +
                     moe_combine<bf16>::requirements(s.ranks, options_of(s, h, experts));
      max_bytes = std::max(max_bytes, r.max_bytes()), flags = std::max(flags, r.flags_per_source());
    }
  }
};

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(
            w_, round_up(2 * c.max_bytes + 64_MiB, 2_MiB),
            round_up(channel::requirements(w_.size(), {.max_bytes = 1, .flags_per_source = c.flags}).signal() + 64_MiB,
                     2_MiB)),
        ch(h, {.max_bytes = c.max_bytes, .flags_per_source = c.flags}), nccl(w_), x(nccl.allocate(c.tokens)),
        out(nccl.allocate(c.tokens)), all(nccl.allocate(c.all)), packed(nccl.allocate(c.all)),
        tables(nccl.allocate(c.entries)), rows(c.rows), table(c.entries), weights(c.entries), of(c.entries),
        of_expert(c.entries), expert(c.entries), list(c.entries), reference(2 * c.tokens) {}

  channel ch;
  collectives nccl;
  std::byte *x, *out, *all, *packed, *tables;  // registered: [T], [T], [W T], [W T] rows, tables of all
  buffer rows, table, weights, of, of_expert, expert, list, reference;
};

class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s) : st_(st), s_(s), h_(s) { prepare(); }

  std::vector<figure> run() {
    std::vector<variant> all;
    for (std::string const& name : set.variants) {
      if (name == "bsp_graph") add(all, name, [this](int) { collective(); });
      else if (name == "exchange") add(all, name, [this](int) { messages(); });
      else if (name != "routed" || !s_.combines) fused(all, name);
    }
    auto figures = measure(st_, all, s_.iterations(), set.repeats, [this] { st_.ch.reset(); });
    for (auto const& f : refused_) figures.push_back(f);
    return figures;
  }

 private:
  static bf16* as_rows(std::byte* p) { return reinterpret_cast<bf16*>(p); }
  hipStream_t stream() const { return st_.stream(); }
  int me() const { return st_.w.rank(); }
  int each() const { return s_.experts / s_.ranks; }
  std::vector<int> const& received() const { return h_.received[std::size_t(me())]; }
  std::vector<int> const& by_expert() const { return h_.by_expert[std::size_t(me())]; }
  template <class T>
  void upload(std::vector<T> const& from, void* to) const {
    check_hip(hipMemcpyAsync(to, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice, stream()),
              "hipMemcpyAsync");
    check_hip(hipStreamSynchronize(stream()), "hipStreamSynchronize");
  }
  int pair(int source, int rank) const { return h_.pairs[std::size_t(source)][std::size_t(rank)]; }

  void prepare() {
    auto const first = std::ptrdiff_t(me()) * s_.tokens * s_.top_k;
    upload(std::vector(h_.table.begin() + first, h_.table.begin() + first + std::ptrdiff_t(s_.tokens) * s_.top_k),
           st_.table.as<std::int32_t>());
    upload(h_.table, st_.tables);
    upload(std::vector<float>(std::size_t(s_.tokens) * std::size_t(s_.top_k), 1.0f), st_.weights.as<float>());
    upload(received(), st_.of.as<int>());
    upload(by_expert(), st_.of_expert.as<int>());
    upload(h_.expert_of[std::size_t(me())], st_.expert.as<int>());
    // The messages' rows: dispatch packs own tokens by rank; combine finds the rows of own tokens in what has come
    std::vector<int> list;
    if (!s_.combines) {
      for (int r = 0; r < s_.ranks; ++r)
        for (int const t : h_.received[std::size_t(r)])
          if (t / s_.tokens == me()) list.push_back(t % s_.tokens);
    } else {
      list.assign(std::size_t(s_.tokens) * std::size_t(s_.ranks), -1);
      int n = 0;
      for (int r = 0; r < s_.ranks; ++r)
        for (int const t : h_.received[std::size_t(r)])
          if (t / s_.tokens == me()) list[std::size_t(t % s_.tokens * s_.ranks + r)] = n++;
    }
    upload(list, st_.list.as<int>());
    listed_ = int(list.size());
    dim3 const grid(1024), threads(256);
    fill_tokens<<<grid, threads, 0, stream()>>>(as_rows(st_.x), s_.tokens, me() * s_.tokens, s_.hidden);
    reference_sums<<<grid, threads, 0, stream()>>>(st_.reference.as<float>(),
                                                   reinterpret_cast<std::int32_t*>(st_.tables), s_.tokens, s_.hidden,
                                                   s_.top_k, me() * s_.tokens);
    check_hip(hipGetLastError(), "preparing tokens");
    check_hip(hipStreamSynchronize(stream()), "hipStreamSynchronize");
  }
  /// The experts' results, as a variant of combine takes them.
  void fill(std::string const& name) const {
    dim3 const grid(1024), threads(256);
    auto* const table = reinterpret_cast<std::int32_t*>(st_.tables);
    if (name == "by_expert") {
      fill_results<<<grid, threads, 0, stream()>>>(st_.rows.as<bf16>(), st_.of_expert.as<int>(), st_.expert.as<int>(),
                                                   int(by_expert().size()), s_.hidden);
    } else if (name == "bsp_graph") {
      std::vector<int> every(s_.all_tokens());
      for (std::size_t i = 0; i < every.size(); ++i) every[i] = int(i);
      upload(every, st_.of.as<int>());
      fill_partials<<<grid, threads, 0, stream()>>>(as_rows(st_.all), st_.of.as<int>(), table, int(every.size()),
                                                    s_.hidden, s_.top_k, me() * each(), each());
      upload(received(), st_.of.as<int>());
    } else {
      fill_partials<<<grid, threads, 0, stream()>>>(st_.rows.as<bf16>(), st_.of.as<int>(), table,
                                                    int(received().size()), s_.hidden, s_.top_k, me() * each(), each());
    }
    check_hip(hipGetLastError(), "preparing results");
  }

  void collective() const {
    if (s_.combines)
      return st_.nccl.reduce_scatter(stream(), as_rows(st_.all), as_rows(st_.out),
                                     s_.all_tokens() * std::size_t(s_.hidden));
    st_.nccl.all_gather(stream(), st_.x, st_.all, std::size_t(s_.tokens) * s_.row_bytes());
    st_.nccl.all_gather(stream(), st_.table.as<std::byte>(), st_.tables, std::size_t(s_.tokens * s_.top_k) * 4);
  }
  void messages() const {
    std::vector<collectives::message> all;
    std::size_t out = 0, in = 0;
    auto* const here = reinterpret_cast<std::byte*>(st_.rows.as<bf16>());
    for (int r = 0; r < s_.ranks; ++r) {
      std::size_t const to = std::size_t(s_.combines ? pair(r, me()) : pair(me(), r)) * s_.row_bytes(),
                        from = std::size_t(s_.combines ? pair(me(), r) : pair(r, me())) * s_.row_bytes();
      std::byte *const mine = s_.combines ? here : st_.packed, *const theirs = s_.combines ? st_.packed : here;
      all.push_back({mine + out, theirs + in, to, from, r});
      out += to, in += from;
    }
    if (!s_.combines)
      pack_rows<<<dim3(unsigned(listed_)), dim3(256), 0, stream()>>>(as_rows(st_.x), as_rows(st_.packed),
                                                                     st_.list.as<int>(), s_.hidden);
    st_.nccl.exchange(stream(), all);
    if (s_.combines)
      add_rows<<<dim3(unsigned(s_.tokens)), dim3(256), 0, stream()>>>(as_rows(st_.packed), as_rows(st_.out),
                                                                      st_.list.as<int>(), s_.ranks, s_.hidden);
  }

  void add(std::vector<variant>& all, std::string const& name, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), true,
                   [this, name] {
                     auto const poison = [&](void* p, std::size_t bytes) {
                       check_hip(hipMemsetAsync(p, 0xff, bytes, stream()), "hipMemsetAsync");
                     };
                     if (s_.combines) fill(name), poison(st_.out, std::size_t(s_.tokens) * s_.row_bytes());
                     else if (name == "bsp_graph") poison(st_.all, s_.all_tokens() * s_.row_bytes());
                     else poison(st_.rows.as<bf16>(), h_.most_rows(name == "by_expert") * s_.row_bytes());
                   },
                   [this, name] {
                     dim3 const grid(512), threads(256);
                     auto* const found = st_.scratch.as<sums>();
                     if (s_.combines) {
                       compare<<<grid, threads, 0, stream()>>>(as_rows(st_.out), st_.reference.as<float>(),
                                                               std::int64_t(s_.tokens) * s_.hidden, found);
                     } else if (name == "bsp_graph") {
                       std::vector<int> every(s_.all_tokens());
                       for (std::size_t i = 0; i < every.size(); ++i) every[i] = int(i);
                       upload(every, st_.of.as<int>());
                       compare_tokens<<<grid, threads, 0, stream()>>>(as_rows(st_.all), st_.of.as<int>(),
                                                                      int(every.size()), s_.hidden, found);
                       upload(received(), st_.of.as<int>());
                     } else {
                       bool const experts = name == "by_expert";
                       compare_tokens<<<grid, threads, 0, stream()>>>(
                           st_.rows.as<bf16>(), (experts ? st_.of_expert : st_.of).as<int>(),
                           int(experts ? by_expert().size() : received().size()), s_.hidden, found);
                     }
                   }});
  }
  void fused(std::vector<variant>& all, std::string const& name) {
    try {
      moe_options const o = options_of(s_, h_, name == "by_expert");
      auto const routing = std::make_shared<moe_routing>(st_.w, o);
      auto const there = std::make_shared<moe_dispatch>(st_.ch, o);
      auto const back = std::make_shared<moe_combine<bf16>>(st_.ch, o);
      matrix<bf16> const rows{st_.rows.as<bf16>(), o.max_rows, s_.hidden, s_.hidden};
      moe_dispatch_call const c{.x = matrix<bf16>{as_rows(st_.x), s_.tokens, s_.hidden, s_.hidden},
                                .out = rows,
                                .experts = st_.table.as<std::int32_t>(),
                                .weights = st_.weights.as<float>(),
                                .tokens = s_.tokens,
                                .routing = *routing};
      (*there)(stream(), c);
      st_.w.check(stream());
      add(all, name, [this, o, routing, there, back, rows, c, routed = name == "routed"](int) {
        if (s_.combines)
          return (*back)(stream(),
                         {.in = rows,
                          .out = {as_rows(st_.out), s_.tokens, s_.hidden, s_.hidden},
                          .weights = o.layout == moe_layout::by_expert ? routing->view().row_weights : nullptr,
                          .routing = *routing});
        moe_dispatch_call mine = c;
        mine.routed = routed;
        (*there)(stream(), mine);
      });
    } catch (error const& e) {  // on all ranks alike
      refused_.push_back({.name = name, .failure = e.what()});
    }
  }

  rank_state& st_;
  shape s_;
  host_routing h_;
  int listed_ = 0;
  std::vector<figure> refused_;
};

struct row : shape_figures {
  shape s;
  double sent = 0;  // bytes
  /// The faster one of the twins.
  figure const* twin() const { return faster("exchange", "bsp_graph"); }
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;

std::string name_of(std::string const& variant, shape const& s) {
  return text(s.combines ? "combine" : "dispatch", "/", variant, "/W:", s.ranks, "/tokens:", s.tokens, "/",
              s.skewed ? "skewed" : "even");
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  row const* const r = results_of(state, results, name_of("", s), variant,
                                  row{{}, s, double(host_routing(s).sent(s.combines)) * double(s.row_bytes())}, *ranks,
                                  [&](rank_state& st) { return shape_runner(st, s).run(); });
  if (!r) return;
  figure const* const found = report_variant(state, *r, variant, 1e-2);
  if (!found) return;
  state.counters["gbps"] = r->sent / found->us * 1e-3;
  if (auto const* t = r->twin()) state.counters["speedup"] = t->us / found->us;
}

void print_table() {
  std::printf(
      "\nmicroseconds of one iteration, slowest rank, median; speedup: by_token over the better twin; NVLS off\n");
  std::printf("%-8s %2s %6s %-6s %9s |", "operator", "W", "tokens", "spread", "MB sent");
  for (std::string const& v : set.variants) std::printf("%10s ", v.c_str());
  std::printf("| %7s %6s\n", "speedup", "GB/s");
  for (auto const& [key, r] : results) {
    std::printf("%-8s %2d %6d %-6s %9.2f |", r.s.combines ? "combine" : "dispatch", r.s.ranks, r.s.tokens,
                r.s.skewed ? "skewed" : "even", r.sent * 1e-6);
    for (std::string const& v : set.variants) {
      if (auto const* f = r.of(v)) std::printf("%10.2f ", f->us);
      else std::printf("%10s ", "-");
    }
    auto const *t = r.twin(), *x = r.of("by_token");
    if (x && t) std::printf("| %7.2f %6.1f", t->us / x->us, r.sent / x->us * 1e-3);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  // Between threads of a process the sends and receives of NCCL 2.28 hang once it registers their memory by itself
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
  setenv("NCCL_GRAPH_REGISTER", "0", 1);
  command_line c(argc, argv,
                 "bench_moe [--ranks=W] [--tokens=T,...] [--hidden=7168] [--experts=256] [--top-k=8]\n"
                 "          [--spread=even,skewed] [--operators=dispatch,combine] [--variants=NAME,...] [--repeats=7]\n"
                 "          [--quick] [--budget=S]\n"
                 "NAME: bsp_graph, exchange, by_token, by_expert, routed. --tokens: of each rank.");
  using names = std::vector<std::string>;
  bool const quick = c.flag("quick");
  int const of = c.number("ranks", std::max(1, gpus()));
  set = {of, c.number("repeats", quick ? 3 : 7),
         c.words("variants", "bsp_graph|exchange|by_token|by_expert|routed",
                 of == 1 ? names{"by_token", "by_expert"}
                         : names{"bsp_graph", "exchange", "by_token", "by_expert", "routed"})};
  auto const tokens =
      c.numbers("tokens", quick ? std::vector{8, 128, 2048}
                                : std::vector{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192});
  int const hidden = c.number("hidden", 7168), experts = c.number("experts", 256), top_k = c.number("top-k", 8);
  auto const spreads = c.words("spread", "even|skewed", {"even", "skewed"});
  auto const operators = c.words("operators", "dispatch|combine", {"dispatch", "combine"});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_moe: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  if (hidden % 8 != 0 || experts % set.ranks != 0 || top_k > std::min(experts, moe_shape::most_top_k)) {
    std::fprintf(stderr,
                 "bench_moe: --hidden=%d --experts=%d --top-k=%d; expected multiples of 8 and of the ranks, "
                 "and up to %d\n",
                 hidden, experts, top_k, moe_shape::most_top_k);
    return 1;
  }
  capacity room;
  for (auto const& op : operators)
    for (auto const& spread : spreads)
      for (int const t : tokens) {
        shape const s{op == "combine", spread == "skewed", set.ranks, t, hidden, experts, top_k};
        bool any = false;
        for (auto const& v : set.variants) {
          std::string const name = name_of(v, s);
          if ((v == "routed" && s.combines) || !selected(name)) continue;
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
