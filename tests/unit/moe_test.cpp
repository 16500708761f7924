// moe_dispatch and moe_combine against routings on the host.
#include <fusewire/core/fp8.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include "faults.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

enum class spread { even, skewed, one_expert, some_none, all_none, twice };

/// What the ranks of a call have: everybody can say all of it.
struct batch {
  moe_options o;
  int ranks;
  std::vector<int> tokens;  // of each rank
  spread how = spread::even;
  unsigned seed = 1;
  bool weighted = true;

  int per_rank() const { return o.experts / ranks; }
  std::size_t entries(int rank) const { return std::size_t(tokens[std::size_t(rank)]) * std::size_t(o.top_k); }

  std::vector<int> table(int rank) const {
    std::vector<int> x;
    lcg random{seed * 7919u + unsigned(rank) * 104729u};
    for (int t = 0; t < tokens[std::size_t(rank)]; ++t) {
      std::vector<int> chosen;
      while (int(chosen.size()) < o.top_k) {
        int e = random.below(o.experts);
        if (how == spread::skewed && random.below(2)) e = std::min(e, 1);
        if (how == spread::one_expert) e = o.experts - 1;
        bool const none = how == spread::all_none || (how == spread::some_none && random.below(3) == 0) ||
                          (how != spread::twice && std::ranges::find(chosen, e) != chosen.end());
        chosen.push_back(none ? -1 : e);
      }
      x.insert(x.end(), chosen.begin(), chosen.end());
    }
    return x;
  }
  float weight(int rank, std::size_t entry) const {
    return weighted ? float((unsigned(entry) * 5u + unsigned(rank) + seed) % 4u) / 2 : 1;
  }
  /// Element c of a token's row: its source, itself and its column in small integers.
  static float element(int rank, int t, int c) { return float((rank * 37 + t * 11 + c) % 251) - 125; }
  /// Element c of what an expert makes of a token.
  float result(int expert, int rank, int t, int c) const {
    return float((unsigned(expert) * 3u + unsigned(rank) * 7u + unsigned(t) * 5u + unsigned(c) + seed) % 5u) - 2;
  }
};

/// The routing of a rank, found on the host.
struct expected_routing {
  struct received {
    int source, token;
    std::vector<int> experts, places;
    std::vector<float> weights;
  };
  std::vector<int> source_rows{0}, expert_rows, expert_begins{0};
  std::vector<received> rows;

  expected_routing(batch const& x, int rank) : expert_rows(std::size_t(x.per_rank()), 0) {
    int const k = x.o.top_k;
    std::map<std::tuple<int, int, int>, int> positions;  // (expert, source, token)
    for (int s = 0; s < x.ranks; ++s) {
      auto const table = x.table(s);
      for (int t = 0; t < x.tokens[std::size_t(s)]; ++t) {
        received r{s, t, {}, {}, {}};
        bool any = false;
        for (int j = 0; j < k; ++j) {
          std::size_t const i = std::size_t(t * k + j);
          int const e = table[i] < 0 ? -1 : table[i] - rank * x.per_rank();
          bool const here = e >= 0 && e < x.per_rank();
          any |= here;
          r.experts.push_back(here ? e : -1);
          r.weights.push_back(here ? x.weight(s, i) : 0);
          if (here && positions.emplace(std::tuple{e, s, t}, expert_rows[std::size_t(e)]).second)
            ++expert_rows[std::size_t(e)];
        }
        if (any) rows.push_back(r);
      }
      source_rows.push_back(int(rows.size()));
    }
    for (int const n : expert_rows)
      expert_begins.push_back(expert_begins.back() + ceil_div(n, x.o.alignment) * x.o.alignment);
    for (received& r : rows)
      for (int const e : r.experts)
        r.places.push_back(e < 0 ? -1
                                 : expert_begins[std::size_t(e)] + positions.at(std::tuple{e, r.source, r.token}));
  }
};

/// How the heap and the channel are made for these options.
requirements needs(int ranks, moe_options const& o) {
  return moe_dispatch::requirements(ranks, o) + moe_combine<bf16>::requirements(ranks, o);
}
heap_options heap_for(int ranks, moe_options const& o) {
  heap_options h = small_heap();
  h.bulk = needs(ranks, o).bulk() + 8_MiB, h.signal = needs(ranks, o).signal() + 64_KiB;
  return h;
}

/// One rank's memory for calls with some options, and their comparison. Rows are of T; scaled: of 8 bits with scales.
template <class T, bool Scaled = false>
struct moe_rank {
  using element = std::conditional_t<Scaled, fp8_e4m3fn, T>;
  rank_of_test& r;
  moe_options o;
  int cols;
  channel ch;
  moe_dispatch dispatch;
  moe_combine<T> combine;
  moe_routing routing;
  moe_shape shape;
  sym<element> x, out;
  sym<float> scales, out_scales, weights;
  sym<std::int32_t> experts, tokens;
  sym<std::int64_t> wide;
  sym<T> results, sums;
  static constexpr int scale_cols = 3;

  moe_rank(rank_of_test& rank, moe_options const& options, int columns)
      : r(rank), o(options), cols(columns), ch(r.heap, channel_options::of(needs(r.size(), o))), dispatch(ch, o),
        combine(ch, o), routing(r.world, o), shape(routing.view().shape), x(rows<element>(o.max_tokens, cols + pad)),
        out(rows<element>(shape.max_rows, cols)), scales(rows<float>(o.max_tokens, scale_cols)),
        out_scales(rows<float>(shape.max_rows, scale_cols)), weights(rows<float>(o.max_tokens, o.top_k)),
        experts(rows<std::int32_t>(o.max_tokens, o.top_k)), tokens(rows<std::int32_t>(1, 1)),
        wide(rows<std::int64_t>(o.max_tokens, o.top_k)), results(rows<T>(shape.max_rows, cols)),
        sums(rows<T>(o.max_tokens, cols + pad)) {}
  static constexpr int pad = 16;  // elements behind a row
  template <class U>
  sym<U> rows(int n, int per_row) {
    return r.heap.template allocate<U>(std::size_t(n) * std::size_t(per_row));
  }

  static element value(int rank, int t, int c) {
    if constexpr (Scaled) return element{std::uint8_t(rank * 37 + t * 11 + c)};
    else return T(batch::element(rank, t, c));
  }
  static float scale(int rank, int t, int c) { return float(rank * 100000 + t * 10 + c); }

  void upload(batch const& b, bool as_wide = false) {
    int const n = b.tokens[std::size_t(r.rank())];
    std::vector<element> vx(std::size_t(n * (cols + pad)));
    std::vector<float> vs, vw;
    for (int t = 0; t < n; ++t) {
      for (int c = 0; c < cols; ++c) vx[std::size_t(t * (cols + pad) + c)] = value(r.rank(), t, c);
      for (int c = 0; c < scale_cols; ++c) vs.push_back(scale(r.rank(), t, c));
    }
    for (std::size_t i = 0; i < b.entries(r.rank()); ++i) vw.push_back(b.weight(r.rank(), i));
    auto const table = b.table(r.rank());
    if (n > 0) {
      r.upload(vx, x), r.upload(vs, scales), r.upload(vw, weights);
      if (as_wide) r.upload(std::vector<std::int64_t>(table.begin(), table.end()), wide);
      else r.upload(table, experts);
    }
    r.fill(out, 0x7f), r.fill(out_scales, 0x7f);
  }
  moe_dispatch_call call(batch const& b, bool as_wide = false) {
    moe_dispatch_call c{.x = matrix<element const>{r.here(x), o.max_tokens, cols, cols + pad},
                        .out = matrix<element>{r.here(out), shape.max_rows, cols, cols},
                        .weights = b.weighted ? r.here(weights) : nullptr,
                        .tokens = b.tokens[std::size_t(r.rank())],
                        .routing = routing};
    if (Scaled) {
      c.scales = matrix<float const>{r.here(scales), o.max_tokens, scale_cols, scale_cols};
      c.out_scales = matrix<float>{r.here(out_scales), shape.max_rows, scale_cols, scale_cols};
    }
    if (as_wide) c.wide_experts = r.here(wide);
    else c.experts = r.here(experts);
    return c;
  }

  /// Uploads, dispatches, overwrites what was sent, and compares.
  void run(batch const& b, bool as_wide = false) {
    upload(b, as_wide);
    dispatch(r.stream, call(b, as_wide));
    check_hip(hipMemsetAsync(r.here(x), 0xff, x.count * sizeof(element), r.stream), "hipMemsetAsync");
    r.world.check(r.stream);
    compare(b);
  }
  void compare(batch const& b) {
    expected_routing const e(b, r.rank());
    moe_routing_view const v = routing;
    auto const n = e.rows.size(), k = std::size_t(o.top_k);
    auto const said = text("ranks ", r.size(), ", seed ", b.seed, ", spread ", int(b.how), ": ");
    r.found.equal(r.download(v.tokens, std::size_t(r.size())), b.tokens, said + "tokens");
    r.found.equal(r.download(v.source_rows, e.source_rows.size()), e.source_rows, said + "source_rows");
    r.found.equal(r.download(v.expert_rows, e.expert_rows.size()), e.expert_rows, said + "expert_rows");
    r.found.equal(r.download(v.expert_begins, e.expert_begins.size()), e.expert_begins, said + "expert_begins");
    std::vector<int> of_rows, row_experts, row_places;
    std::vector<float> row_weights;
    std::map<int, std::pair<int, int>> lies;  // row of out: (source, token)
    for (std::size_t i = 0; i < n; ++i) {
      auto const& row = e.rows[i];
      of_rows.push_back(row.source * o.max_tokens + row.token);
      row_experts.insert(row_experts.end(), row.experts.begin(), row.experts.end());
      row_places.insert(row_places.end(), row.places.begin(), row.places.end());
      row_weights.insert(row_weights.end(), row.weights.begin(), row.weights.end());
      if (o.layout == moe_layout::by_token) lies[int(i)] = {row.source, row.token};
      else
        for (int const place : row.places)
          if (place >= 0) lies[place] = {row.source, row.token};
    }
    r.found.equal(r.download(v.row_tokens, n), of_rows, said + "row_tokens");
    r.found.equal(r.download(v.row_experts, n * k), row_experts, said + "row_experts");
    r.found.equal(r.download(v.row_places, n * k), row_places, said + "row_places");
    r.found.equal(r.download(v.row_weights, n * k), row_weights, said + "row_weights");
    auto const found = r.download(out);
    auto const found_scales = r.download(out_scales);
    for (int i = 0; i < shape.max_rows; ++i)
      for (int c = 0; c < cols; ++c) {
        element wanted;
        std::memset(&wanted, 0x7f, sizeof wanted);
        if (auto const at = lies.find(i); at != lies.end()) wanted = value(at->second.first, at->second.second, c);
        r.found.expect(std::memcmp(&wanted, &found[std::size_t(i * cols + c)], sizeof wanted) == 0, said, "out(", i,
                       ", ", c, ") is wrong");
      }
    for (auto const& [i, at] : lies)
      for (int c = 0; c < scale_cols && Scaled; ++c)
        r.found.expect(found_scales[std::size_t(i * scale_cols + c)] == scale(at.first, at.second, c), said,
                       "out_scales(", i, ", ", c, ") is wrong");
  }

  /// Uploads what the experts make of what has come, and combines.
  void run_combine(batch const& b, bool weigh) {
    expected_routing const e(b, r.rank());
    std::vector<T> y(std::size_t(shape.max_rows * cols), T(0.0f));
    for (std::size_t i = 0; i < e.rows.size(); ++i) {
      auto const& row = e.rows[i];
      for (int j = 0; j < o.top_k; ++j) {
        if (row.experts[std::size_t(j)] < 0) continue;
        int const expert = r.rank() * b.per_rank() + row.experts[std::size_t(j)];
        for (int c = 0; c < cols; ++c) {
          float const made = b.result(expert, row.source, row.token, c);
          if (o.layout == moe_layout::by_expert) y[std::size_t(row.places[std::size_t(j)] * cols + c)] = T(made);
          else {
            T& sum = y[i * std::size_t(cols) + std::size_t(c)];
            sum = T(float(sum) + made);
          }
        }
      }
    }
    r.upload(y, results);
    r.fill(sums, 0x7f);
    int const n = b.tokens[std::size_t(r.rank())];
    combine(r.stream, {.in = {r.here(results), shape.max_rows, cols, cols},
                       .out = {r.here(sums), n, cols, cols + pad},
                       .weights = weigh ? routing.view().row_weights : nullptr,
                       .routing = routing});
    r.world.check(r.stream);
    auto const found = r.download(sums);
    auto const table = b.table(r.rank());
    for (int t = 0; t < o.max_tokens; ++t)
      for (int c = 0; c < cols + pad; ++c) {
        T const x = found[std::size_t(t * (cols + pad) + c)];
        if (t >= n || c >= cols) {
          r.found.expect(x.bits == 0x7f7f, "sums(", t, ", ", c, ") was written");
          continue;
        }
        float wanted = 0;
        for (int j = 0; j < o.top_k; ++j) {
          std::size_t const i = std::size_t(t * o.top_k + j);
          if (table[i] >= 0) wanted += (weigh ? b.weight(r.rank(), i) : 1) * b.result(table[i], r.rank(), t, c);
        }
        r.found.expect(float(x) == wanted, "ranks ", r.size(), ", seed ", b.seed, ", spread ", int(b.how), ": sums(", t,
                       ", ", c, ") = ", float(x), ", wanted ", wanted);
      }
  }
};

/// Numbers of tokens of all ranks: one has none, one has all there is room for.
std::vector<int> uneven(int ranks, int max_tokens, unsigned seed) {
  std::vector<int> n;
  lcg random{seed};
  for (int r = 0; r < ranks; ++r) n.push_back(random.below(max_tokens + 1));
  n[seed % unsigned(ranks)] = max_tokens;
  if (ranks > 1) n[(seed + 1) % unsigned(ranks)] = 0;
  return n;
}

void batches(int ranks, moe_layout layout) {
  int const k = 1 + (ranks * 3 + int(layout)) % 8;
  moe_options const o{.max_tokens = 9,
                      .experts = ranks * 3,
                      .top_k = k,
                      .max_row_bytes = 128,
                      .layout = layout,
                      .alignment = layout == moe_layout::by_expert ? 4 : 1};
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 40);
        unsigned seed = 0;
        for (auto const how : {spread::even, spread::skewed, spread::one_expert, spread::some_none, spread::all_none}) {
          ++seed;
          batch const b{o, ranks, uneven(ranks, o.max_tokens, seed), how, seed, seed % 2 == 0};
          m.run(b, seed % 2 == 1);
          m.run_combine(b, layout == moe_layout::by_expert && seed % 3 != 0);
        }
      },
      heap_for(ranks, o));
}

}  // namespace

TEST_CASE("moe: dispatch and combine on 1 to 8 ranks, uneven, skewed, empty", "[moe]") {
  batches(GENERATE(1, 2, 3, 4, 8), GENERATE(moe_layout::by_token, moe_layout::by_expert));
}
