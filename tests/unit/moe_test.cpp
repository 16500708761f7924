// moe_dispatch and moe_combine against routings on the host.
#include <fusewire/core/fp8.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "faults.hpp"
#include "moe_batch.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

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
        r.places.push_back(e < 0 ? -1 : expert_begins[std::size_t(e)] + positions.at(std::tuple{e, r.source, r.token}));
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
    if constexpr (Scaled) return std::bit_cast<element>(std::uint8_t(rank * 37 + t * 11 + c));
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
    std::vector<int> ends = e.expert_rows;
    for (std::size_t i = 0; i < ends.size(); ++i) ends[i] += e.expert_begins[i];
    r.found.equal(r.download(v.expert_ends, ends.size()), ends, said + "expert_ends");
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

void batches(int ranks, moe_layout layout, int max_tokens) {
  int const k = 1 + (ranks * 3 + int(layout)) % 8;
  moe_options const o{.max_tokens = max_tokens,
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
  batches(GENERATE(1, 2, 3, 4, 8), GENERATE(moe_layout::by_token, moe_layout::by_expert), 9);
}
TEST_CASE("moe: blocks that share the counting of tables", "[moe]") {
  batches(GENERATE(1, 3), GENERATE(moe_layout::by_token, moe_layout::by_expert), 257);  // two segments
}
TEST_CASE("moe: one routing is counted alone, one by all blocks", "[moe]") {
  auto const o = [](int max_tokens) {
    return moe_shape{.ranks = 2, .max_tokens = max_tokens, .experts = 128, .top_k = 8};
  };
  CHECK(o(128).counts_alone());
  CHECK_FALSE(o(129).counts_alone());
}

TEST_CASE("moe: f16, and 8 bits with scales", "[moe]") {
  auto const layout = GENERATE(moe_layout::by_token, moe_layout::by_expert);
  moe_options const o{.max_tokens = 7,
                      .experts = 6,
                      .top_k = 2,
                      .max_row_bytes = 128,
                      .layout = layout,
                      .alignment = 1 + 7 * int(layout)};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        moe_rank<f16> half(r, o, 24);
        moe_rank<bf16, true> scaled(r, o, 48);
        batch const b{o, 2, {7, 5}, spread::some_none};
        half.run(b), half.run_combine(b, layout == moe_layout::by_expert);
        scaled.run(b), scaled.run_combine(b, false);
      },
      heap_for(2, o));
}

TEST_CASE("moe: long rows, many segments, many chunks", "[moe]") {
  auto const layout = GENERATE(moe_layout::by_token, moe_layout::by_expert);
  moe_options const long_rows{.max_tokens = 3, .experts = 4, .top_k = 4, .max_row_bytes = 20000, .layout = layout},
      many{.max_tokens = 700, .experts = 70, .top_k = 3, .max_row_bytes = 16, .layout = layout, .alignment = 16};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        {
          moe_rank<bf16> m(r, long_rows, 9000);
          batch const b{long_rows, 2, {3, 2}};
          m.run(b), m.run_combine(b, false);
        }
        moe_rank<bf16> m(r, many, 8);
        for (unsigned const seed : {1u, 2u}) {
          batch const b{many, 2, {seed == 1 ? 700 : 257, seed == 1 ? 511 : 0}, spread::some_none, seed};
          m.run(b), m.run_combine(b, layout == moe_layout::by_expert);
        }
      },
      heap_for(2, many));
}

TEST_CASE("moe: an expert that a token has twice gets its row once", "[moe]") {
  moe_options const o{
      .max_tokens = 6, .experts = 4, .top_k = 5, .max_row_bytes = 32, .layout = moe_layout::by_expert, .alignment = 2};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 16);
        batch const b{o, 2, {6, 4}, spread::twice};
        m.run(b), m.run_combine(b, true);
      },
      heap_for(2, o));
}

TEST_CASE("moe: a captured call sees the tokens of each replay", "[moe]") {
  auto const layout = GENERATE(moe_layout::by_token, moe_layout::by_expert);
  moe_options const o{.max_tokens = 12, .experts = 6, .top_k = 3, .max_row_bytes = 32, .layout = layout};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 16);
        batch b{o, 3, {12, 12, 12}};
        auto c = m.call(b);
        c.device_tokens = r.here(m.tokens);
        graph const dispatched(r, [&] { m.dispatch(r.stream, c); });
        r.found.expect(dispatched.nodes().size() == 1, "a call has ", dispatched.nodes().size(), " nodes");
        for (unsigned seed = 1; seed < 5; ++seed) {
          b.tokens = uneven(3, o.max_tokens, seed), b.seed = seed;
          m.upload(b);
          r.upload(std::vector{b.tokens[std::size_t(r.rank())]}, m.tokens);
          dispatched.launch(r.stream);
          r.world.check(r.stream);
          m.compare(b);
          m.run_combine(b, layout == moe_layout::by_expert);
        }
      },
      heap_for(3, o));
}

TEST_CASE("moe: a routing serves other rows of the same tokens", "[moe]") {
  auto const layout = GENERATE(moe_layout::by_token, moe_layout::by_expert);
  moe_options const o{.max_tokens = 10, .experts = 6, .top_k = 3, .max_row_bytes = 32, .layout = layout};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 16);
        moe_routing other(r.world, o);
        batch const b{o, 3, {10, 0, 7}, spread::some_none};
        m.run(b);
        auto different = m.call({o, 3, {10, 10, 10}, spread::even, 9});
        m.upload({o, 3, {10, 10, 10}, spread::even, 9});
        different.routing = other;
        m.dispatch(r.stream, different);  // a layer between
        m.upload(b);
        auto again = m.call(b);
        again.experts = nullptr, again.weights = nullptr, again.routed = true;
        m.dispatch(r.stream, again);
        r.world.check(r.stream);
        m.compare(b);
        m.run_combine(b, layout == moe_layout::by_expert);
      },
      heap_for(3, o));
}

TEST_CASE("moe: launches on both sides of 2^32", "[moe][channel]") {
  moe_options const o{.max_tokens = 5, .experts = 6, .top_k = 2, .max_row_bytes = 32, .layout = moe_layout::by_expert};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 16);
        on_both_sides_of_2_to_32(r, m.ch, [&](int i) {
          batch const b{o, 3, uneven(3, o.max_tokens, unsigned(i)), spread::even, unsigned(i)};
          if (i % 2) m.run(b), m.run_combine(b, true);
          else m.run(b);
        });
      },
      heap_for(3, o));
}

TEST_CASE("moe: few blocks, of ranks that share a device", "[moe]") {
  needs_threads("ranks share a device");
  moe_options const all{
      .max_tokens = 8, .experts = 4, .top_k = 2, .max_row_bytes = 32, .layout = moe_layout::by_expert};
  on_ranks(2,
           [&](rank_of_test& r) {
             moe_options o = all;
             o.reserved_cus = r.world.compute_units() - 2 * r.world.xcd_count();
             moe_rank<bf16> m(r, o, 16);
             batch const b{o, 2, {8, 6}};
             m.run(b), m.run_combine(b, true);
           },
           heap_for(2, all), {.devices = {0, 0}});
}

TEST_CASE("moe: rows are added in the order of a token's table, partial sums in the order of ranks", "[moe]") {
  moe_options const o{.max_tokens = 1, .experts = 9, .top_k = 9, .max_row_bytes = 16, .layout = moe_layout::by_expert};
  on_ranks(
      3,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 8);
        batch const b{o, 3, {1, 0, 0}};
        m.upload(b);
        if (r.rank() == 0) r.upload(std::vector{2, 0, 1, 5, 3, 4, 8, 6, 7}, m.experts);
        m.dispatch(r.stream, m.call(b));
        // 2^24 + 1 is 2^24 in fp32: in any other order a 1 is left
        float const large = float(1 << 24), in_order[] = {large, 1, -large};
        std::vector<bf16> y(3 * 8, bf16(0.0f));
        for (std::size_t c = 0; c < 8; ++c)
          if (c % 2) y[c] = bf16(in_order[r.rank()]);  // of one expert on each rank
          else if (r.rank() == 1)
            for (int j = 0; j < 3; ++j) y[std::size_t((j + 2) % 3) * 8 + c] = bf16(in_order[j]);
        r.upload(y, m.results);
        m.combine(r.stream, {.in = {r.here(m.results), m.shape.max_rows, 8, 8},
                             .out = {r.here(m.sums), r.rank() == 0, 8, 8},
                             .routing = m.routing});
        r.world.check(r.stream);
        if (r.rank() != 0) return;
        auto const sums = r.download(m.sums);
        for (std::size_t c = 0; c < 8; ++c)
          r.found.expect(float(sums[c]) == 0, "sum ", c, " is ", float(sums[c]), ", wanted 0");
      },
      heap_for(3, o));
}

TEST_CASE("moe: a token crosses a link once", "[moe]") {
  needs_threads("a process sees the bytes of its own waves only");
  if (auto const s = simulator_stats(); !s || s->gpus < 4) SKIP("four simulated GPUs are needed");
  moe_options const o{
      .max_tokens = 16, .experts = 16, .top_k = 8, .max_row_bytes = 2048, .layout = moe_layout::by_expert};
  on_ranks(
      4,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 1024);
        batch const b{o, 4, {16, 16, 16, 16}};
        auto const bytes = [&] {
          r.meet();
          auto const link = simulator_stats()->links[r.rank()][r.partner()].store_bytes;
          r.meet();
          return link;
        };
        m.upload(b);
        auto const before = bytes();
        m.dispatch(r.stream, m.call(b));
        r.world.check(r.stream);
        auto const between = bytes();
        m.run_combine(b, true);
        auto const after = bytes();
        auto const tokens_to = [&](int from, int to) {
          expected_routing const e(b, to);
          return std::uint64_t(e.source_rows[std::size_t(from) + 1] - e.source_rows[std::size_t(from)]);
        };
        std::uint64_t const there = tokens_to(r.rank(), r.partner()) * 2048,
                            back = tokens_to(r.partner(), r.rank()) * 2048;
        r.found.expect(between - before >= there && between - before < there + 4096, between - before,
                       " bytes were dispatched; wanted ", there, " and less than 4096 for a table and flags");
        r.found.expect(after - between >= back && after - between < back + 2560, after - between,
                       " bytes were combined; wanted ", back, " and less than 2560 for flags");
      },
      heap_for(4, o));
}

TEST_CASE("moe: what the device's numbers exceed is named", "[moe][errors]") {
  if (reports_races()) SKIP("blocks go on without what an abandoned launch lacks");
  enum class fault { tokens, negative, expert, wide, rows, expert_rows };
  auto const how =
      GENERATE(fault::tokens, fault::negative, fault::expert, fault::wide, fault::rows, fault::expert_rows);
  auto const layout = how == fault::expert_rows ? moe_layout::by_expert : moe_layout::by_token;
  moe_options o{.max_tokens = 8, .experts = 4, .top_k = 2, .max_row_bytes = 32, .layout = layout};
  o.max_rows = how == fault::rows ? 9 : how == fault::expert_rows ? 10 : 0;
  CAPTURE(int(how));
  auto const said = on_ranks(
      2,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 16);
        batch const small{o, 2, {2, 2}};
        m.run(small), m.run_combine(small, false);
        batch b{o, 2, {8, 8}};
        if (how == fault::rows || how == fault::expert_rows) b.how = spread::one_expert;
        m.upload(b, how == fault::wide);
        r.upload(std::vector{how == fault::tokens ? 9 : -1}, m.tokens);
        auto c = m.call(b, how == fault::wide);
        if (r.rank() == 1) {
          if (how == fault::tokens || how == fault::negative) c.device_tokens = r.here(m.tokens);
          if (how == fault::expert) r.upload(std::vector{4}, r.here(m.experts) + 7);
          if (how == fault::wide) r.upload(std::vector{std::int64_t(-2)}, r.here(m.wide) + 6);
        }
        r.meet();
        try {
          m.dispatch(r.stream, c);
          r.world.check(r.stream);
        } catch (error const& e) {
          r.note = e.what();
        }
        r.meet();
        m.ch.reset();
        m.run(small), m.run_combine(small, false);
      },
      heap_for(2, o));
  char const* const wanted[] = {
      "dispatch: *device_tokens = 9; expected 0 to tokens = 8",
      "dispatch: *device_tokens = -1; expected 0 to tokens = 8",
      "dispatch: token 3 has expert 4; expected -1 to 3",
      "dispatch: token 3 has expert -2; expected -1 to 3",
      "dispatch: 16 rows come to this rank; expected 0 to max_rows = 9",
      "dispatch: 16 rows come to this rank; expected 0 to max_rows = 10",
  };
  INFO(said[1]);
  CHECK(said[1].find(wanted[int(how)]) != std::string::npos);
}

namespace {
__global__ void send_nothing(channel_view ch) {
  block const b;
  ch.begin(b).end(b);
}
}  // namespace

TEST_CASE("moe: a rank that sends nothing is named, and reset() brings it back", "[moe][faults]") {
  if (reports_races()) SKIP("a missing signal is a race");
  bool const combines = GENERATE(false, true);
  moe_options const o{.max_tokens = 8, .experts = 4, .top_k = 2, .max_row_bytes = 32};
  heap_options h = heap_for(2, o);
  h.wait_limit = std::chrono::milliseconds(500);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        moe_rank<bf16> m(r, o, 16);
        load_kernel(r.world, send_nothing, 64);
        batch const b{o, 2, {8, 8}};
        m.run(b);
        m.upload(b);
        r.meet();
        if (r.rank() == 0) {
          r.found.throws<error>("a rank sends nothing", {combines ? "moe_combine" : "moe_dispatch", "rank 1"}, [&] {
            if (combines) m.run_combine(b, false);
            else m.dispatch(r.stream, m.call(b));
            r.world.check(r.stream);
          });
        } else {
          r.launch({1, 64}, send_nothing, m.ch.view(make_header(combines ? "moe_comb" : "moe_disp", 0)));
          r.synchronize();
          try {
            r.world.check(r.stream);
          } catch (error const&) {}
        }
        r.meet();
        m.ch.reset();
        m.run(b), m.run_combine(b, false);
      },
      h);
}

TEST_CASE("moe: refuses what it cannot do, with the numbers that it can", "[moe]") {
  on_ranks(1, [&](rank_of_test& r) {
    moe_options const o{.max_tokens = 4, .experts = 2, .top_k = 2, .max_row_bytes = 64};
    moe_rank<bf16> m(r, o, 16);
    channel small(r.heap, {.max_bytes = 16, .flags_per_source = 1});
    auto const refuses = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      moe_options x = o;
      change(x);
      r.found.throws<bad_argument>(what, pieces, [&] { moe_dispatch op(m.ch, x); });
      r.found.throws<bad_argument>(what, pieces, [&] { moe_combine<bf16> op(m.ch, x); });
    };
    refuses("no tokens", {"max_tokens = 0", "expected 1 to 131072"}, [](auto& x) { x.max_tokens = 0; });
    refuses("no experts", {"experts = 0"}, [](auto& x) { x.experts = 0; });
    refuses("too many of a token", {"top_k = 17", "expected 1 to 16"}, [](auto& x) { x.top_k = 17; });
    refuses("no bytes", {"max_row_bytes = 8", "expected 16 to"}, [](auto& x) { x.max_row_bytes = 8; });
    refuses("no such layout", {"layout = 2"}, [](auto& x) { x.layout = moe_layout(2); });
    refuses("alignment", {"alignment = 0"}, [](auto& x) { x.alignment = 0; });
    refuses("rows", {"max_rows = 5", "expected 0 to 4"}, [](auto& x) { x.max_rows = 5; });
    r.found.throws<out_of_space>("a small channel", {"moe_dispatch: what 1 ranks send", "max_bytes is 16"},
                                 [&] { moe_dispatch op(small, o); });
    r.found.throws<out_of_space>("few flags", {"moe_combine: needs 4 flags", "the channel has 1"},
                                 [&] { moe_combine<bf16> op(small, o); });
    batch const b{o, 1, {3}};
    m.run(b);
    auto const fails = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      moe_dispatch_call c = m.call(b);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { m.dispatch(r.stream, c); });
    };
    fails("too many", {"tokens = 5", "max_tokens = 4"}, [](auto& c) { c.tokens = 5; });
    fails("null", {"x is null"}, [](auto& c) { c.x.data = nullptr; });
    fails("out null", {"out is null"}, [](auto& c) { c.out.data = nullptr; });
    fails("bytes", {"x has rows of 24 bytes", "multiple of 16"}, [](auto& c) { c.x.bytes = 24; });
    fails("large", {"take 80 bytes", "max_row_bytes is 64"}, [](auto& c) { c.x.bytes = 80; });
    fails("other bytes", {"out has rows of 16 bytes", "expected 32"}, [](auto& c) { c.out.bytes = 16; });
    fails("pitch", {"rows of x are 24 bytes apart"}, [](auto& c) { c.x.pitch = 24; });
    fails("no table", {"experts is null"}, [](auto& c) { c.experts = nullptr; });
    fails("two tables", {"both experts and wide_experts"}, [&](auto& c) { c.wide_experts = r.here(m.wide); });
    fails("no routing", {"routing is empty"}, [](auto& c) { c.routing = {}; });
    fails("overlap", {"out = ", "overlaps x"},
          [](auto& c) { c.out.data = const_cast<std::byte*>(c.x.data), c.out.pitch = c.x.pitch; });
    moe_routing other(r.world, {.max_tokens = 5, .experts = 2, .top_k = 2});
    fails("another routing", {"routing was made with other options"}, [&](auto& c) { c.routing = other; });
    moe_combine_call<bf16> const good{
        .in = {r.here(m.results), m.shape.max_rows, 16, 16}, .out = {r.here(m.sums), 3, 16, 32}, .routing = m.routing};
    auto const stops = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      moe_combine_call<bf16> c = good;
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { m.combine(r.stream, c); });
    };
    stops("columns", {"in has 12 columns", "multiple of 8, up to 32"}, [](auto& c) { c.in.cols = 12; });
    stops("rows", {"in has 3 rows", "expected max_rows = 4"}, [](auto& c) { c.in.rows = 3; });
    stops("out", {"out is [5, 16]", "expected [up to 4, 16]"}, [](auto& c) { c.out.rows = 5; });
    stops("ld", {"in has ld = 15", "multiple of 8"}, [](auto& c) { c.in.ld = 15; });
    stops("null", {"out is null"}, [](auto& c) { c.out.data = nullptr; });
    stops("weights", {"weights are given, and rows are by_token"},
          [&](auto& c) { c.weights = m.routing.view().row_weights; });
    stops("overlap", {"out = ", "overlaps in"}, [](auto& c) { c.out.data = const_cast<bf16*>(c.in.data); });
    stops("another routing", {"routing was made with other options"}, [&](auto& c) { c.routing = other; });
  });
}
