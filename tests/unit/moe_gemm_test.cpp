// dispatch_gemm and gemm_combine against moe_dispatch, grouped_gemm and moe_combine: the same bits.
#include <fusewire/ops/dispatch_gemm.hpp>
#include <fusewire/ops/gemm_combine.hpp>
#include <fusewire/ops/grouped_gemm.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <cmath>

#include "faults.hpp"
#include "moe_batch.hpp"
#include "simulator.hpp"

using namespace support;

namespace {

struct extents {
  int model, hidden;  // columns of x; of the experts' inner rows
};

requirements needs(int ranks, moe_options const& o) {
  return moe_dispatch::requirements(ranks, o) + moe_combine<bf16>::requirements(ranks, o) +
         dispatch_gemm<bf16>::requirements(ranks, o) + gemm_combine<bf16>::requirements(ranks, o);
}
heap_options heap_for(int ranks, moe_options const& o) {
  heap_options h = small_heap();
  h.bulk = needs(ranks, o).bulk() + 32_MiB, h.signal = needs(ranks, o).signal() + 64_KiB;
  return h;
}

/// One rank's memory: that of single operators, and that of fused ones.
struct experts_rank {
  struct layer {
    moe_routing routing;
    sym<bf16> rows, inner, made, sums;
  };
  rank_of_test& r;
  moe_options o;
  extents x;
  channel ch;
  moe_dispatch dispatch;
  grouped_gemm<bf16> gemm;
  moe_combine<bf16> combine;
  dispatch_gemm<bf16> fused_up;
  gemm_combine<bf16> fused_down;
  int max_rows, experts;
  sym<bf16> tokens, up, down;
  sym<std::int32_t> table;
  sym<float> weights;
  layer single, fused;

  experts_rank(rank_of_test& rank, moe_options const& options, extents const& of, gemm_tile const& tile,
               bool poisons = false)
      : r(rank), o(options), x(of), ch(r.heap, channel_of(r.size(), o, poisons)), dispatch(ch, o),
        gemm(r.world, {.tile = tile}), combine(ch, o), fused_up(ch, o, tile), fused_down(ch, o, tile), max_rows(0),
        experts(o.experts / r.size()), tokens(allocate<bf16>(o.max_tokens, x.model)),
        up(allocate<bf16>(experts * x.model, 2 * x.hidden)), down(allocate<bf16>(experts * x.hidden, x.model)),
        table(allocate<std::int32_t>(o.max_tokens, o.top_k)), weights(allocate<float>(o.max_tokens, o.top_k)),
        single(make_layer()), fused(make_layer()) {
    upload(up, experts * x.model, 2 * x.hidden,
           [&](int i, int j) { return float((i * 5 + j * 3 + r.rank() + i / x.model * 7) % 5 - 2) / 2; });
    upload(down, experts * x.hidden, x.model,
           [&](int i, int j) { return float((i * 3 + j * 2 + r.rank() + i / x.hidden * 5) % 7 - 3) / 4; });
  }
  static channel_options channel_of(int ranks, moe_options const& o, bool poisons) {
    channel_options c = channel_options::of(needs(ranks, o));
    c.poison = poisons;
    return c;
  }
  template <class U>
  sym<U> allocate(int rows, int cols) {
    return r.heap.allocate<U>(std::size_t(rows) * std::size_t(cols));
  }
  layer make_layer() {
    moe_routing routing(r.world, o);
    max_rows = routing.view().shape.max_rows;
    return {std::move(routing), allocate<bf16>(max_rows, x.model), allocate<bf16>(max_rows, x.hidden),
            allocate<bf16>(max_rows, x.model), allocate<bf16>(o.max_tokens, x.model)};
  }
  template <class Value>
  void upload(sym<bf16> to, int rows, int cols, Value value) {
    std::vector<bf16> v;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) v.push_back(bf16(value(i, j)));
    if (!v.empty()) r.upload(v, to);
  }
  matrix<bf16> matrix_of(sym<bf16> s, int rows, int cols) const { return {r.here(s), rows, cols, cols}; }

  void upload(batch const& b) {
    int const n = b.tokens[std::size_t(r.rank())];
    upload(tokens, n, x.model, [&](int t, int c) { return float((r.rank() * 37 + t * 11 + c + int(b.seed)) % 5 - 2); });
    std::vector<float> w;
    for (std::size_t i = 0; i < b.entries(r.rank()); ++i) w.push_back(b.weight(r.rank(), i));
    if (n > 0) r.upload(b.table(r.rank()), table), r.upload(w, weights);
    for (layer* l : {&single, &fused})
      r.fill(l->rows, 0x11), r.fill(l->inner, 0x11), r.fill(l->made, 0x11), r.fill(l->sums, 0x11);
  }
  moe_dispatch_call call(batch const& b, layer const& l, bool routed = false) const {
    return {.x = matrix<bf16 const>{r.here(tokens), o.max_tokens, x.model, x.model},
            .out = matrix_of(l.rows, max_rows, x.model),
            .experts = r.here(table),
            .weights = b.weighted ? r.here(weights) : nullptr,
            .tokens = b.tokens[std::size_t(r.rank())],
            .routing = l.routing,
            .routed = routed};
  }
  dispatch_gemm_call<bf16> up_call(batch const& b, bool routed) const {
    return {.dispatch = call(b, fused, routed),
            .b = matrix_of(up, x.model, 2 * x.hidden),
            .b_group_stride = x.model * 2 * x.hidden,
            .c = matrix_of(fused.inner, max_rows, x.hidden)};
  }
  gemm_combine_call<bf16> down_call(int n, bool weigh) const {
    moe_routing_view const v = fused.routing;
    return {.a = matrix_of(fused.inner, max_rows, x.hidden),
            .b = matrix_of(down, x.hidden, x.model),
            .b_group_stride = x.hidden * x.model,
            .y = matrix_of(fused.made, max_rows, x.model),
            .out = matrix_of(fused.sums, n, x.model),
            .weights = weigh ? v.row_weights : nullptr,
            .routing = v};
  }
  void up_fused(batch const& b, bool routed) { fused_up(r.stream, up_call(b, routed), swiglu{}); }
  void down_fused(int n, bool weigh) { fused_down(r.stream, down_call(n, weigh)); }
  void up_single(batch const& b, bool routed) {
    moe_routing_view const v = single.routing;
    dispatch(r.stream, call(b, single, routed));
    gemm(r.stream,
         {.a = matrix_of(single.rows, max_rows, x.model),
          .b = matrix_of(up, x.model, 2 * x.hidden),
          .b_group_stride = x.model * 2 * x.hidden,
          .c = matrix_of(single.inner, max_rows, x.hidden),
          .offsets = v.expert_begins,
          .ends = v.expert_ends,
          .groups = experts},
         swiglu{});
  }
  void down_single(int n, bool weigh) {
    moe_routing_view const v = single.routing;
    gemm(r.stream, {.a = matrix_of(single.inner, max_rows, x.hidden),
                    .b = matrix_of(down, x.hidden, x.model),
                    .b_group_stride = x.hidden * x.model,
                    .c = matrix_of(single.made, max_rows, x.model),
                    .offsets = v.expert_begins,
                    .ends = v.expert_ends,
                    .groups = experts});
    combine(r.stream, {.in = matrix_of(single.made, max_rows, x.model),
                       .out = matrix_of(single.sums, n, x.model),
                       .weights = weigh ? v.row_weights : nullptr,
                       .routing = v});
  }
  void compare(batch const& b) {
    r.world.check(r.stream);
    equal("rows", b, single.rows, fused.rows, x.model);
    equal("inner", b, single.inner, fused.inner, x.hidden);
    equal("made", b, single.made, fused.made, x.model);
    equal("sums", b, single.sums, fused.sums, x.model);
  }
  /// Uploads, calls all operators, and compares.
  void run(batch const& b, bool routed, bool weigh) {
    int const n = b.tokens[std::size_t(r.rank())];
    if (!routed) upload(b);
    up_single(b, routed), up_fused(b, routed);
    down_single(n, weigh), down_fused(n, weigh);
    compare(b);
  }
  void equal(char const* what, batch const& b, sym<bf16> wanted, sym<bf16> found, int cols) {
    auto const w = r.download(wanted), f = r.download(found);
    for (std::size_t i = 0; i < w.size(); ++i)
      if (!r.found.expect(w[i].bits == f[i].bits, "ranks ", r.size(), ", seed ", b.seed, ", spread ", int(b.how), ": ",
                          what, "(", i / std::size_t(cols), ", ", i % std::size_t(cols), ") = ", float(f[i]),
                          ", wanted ", float(w[i])))
        return;
  }
};

void batches(int ranks, int max_tokens, extents const& x, gemm_tile const& tile) {
  moe_options const o{.max_tokens = max_tokens,
                      .experts = ranks * 3,
                      .top_k = 1 + (ranks * 3 + max_tokens) % 4,
                      .max_row_bytes = x.model * int(sizeof(bf16)),
                      .layout = moe_layout::by_expert,
                      .alignment = 1 + max_tokens % 3};
  on_ranks(
      ranks,
      [&](rank_of_test& r) {
        experts_rank m(r, o, x, tile);
        unsigned seed = 0;
        for (auto const how :
             {spread::even, spread::skewed, spread::one_expert, spread::some_none, spread::all_none, spread::twice}) {
          ++seed;
          batch const b{o, ranks, uneven(ranks, o.max_tokens, seed), how, seed, seed % 2 == 0};
          m.run(b, false, seed % 3 != 0);
          m.run(b, true, true);
        }
      },
      heap_for(ranks, o));
}

}  // namespace

TEST_CASE("moe_gemm: fused operators make the bits of single ones", "[moe_gemm]") {
  batches(GENERATE(1, 2, 3, 4, 8), 19, {40, 24}, gemm_tile::automatic);
}
TEST_CASE("moe_gemm: blocks that share the counting of tables", "[moe_gemm]") {
  batches(GENERATE(1, 2), 257, {16, 16}, gemm_tile::automatic);
}
TEST_CASE("moe_gemm: generic tiles", "[moe_gemm]") {
  batches(2, 40, {40, 24}, GENERATE(gemm_tile::small, gemm_tile::large));
}

TEST_CASE("moe_gemm: a captured call sees the tokens of each replay", "[moe_gemm]") {
  moe_options const o{.max_tokens = 12, .experts = 6, .top_k = 3, .max_row_bytes = 64, .layout = moe_layout::by_expert};
  on_ranks(
      2,
      [&](rank_of_test& r) {
        experts_rank m(r, o, {32, 16}, gemm_tile::automatic);
        batch b{o, 2, {12, 12}};
        graph const up(r, [&] { m.up_fused(b, false); });
        graph const down(r, [&] { m.down_fused(o.max_tokens, true); });
        r.found.expect(up.nodes().size() == 1 && down.nodes().size() == 1, "a call has several nodes");
        for (unsigned seed = 1; seed < 4; ++seed) {
          b.seed = seed;
          m.upload(b);
          up.launch(r.stream), down.launch(r.stream);
          m.up_single(b, false), m.down_single(o.max_tokens, true);
          m.compare(b);
        }
      },
      heap_for(2, o));
}

namespace {
__global__ void send_nothing(channel_view ch) {
  block const b;
  ch.begin(b).end(b);
}
}  // namespace

TEST_CASE("moe_gemm: a rank that sends nothing is named, and reset() brings it back", "[moe_gemm][faults]") {
  if (reports_races()) SKIP("a missing signal is a race");
  bool const combines = GENERATE(false, true);
  moe_options const o{.max_tokens = 8, .experts = 4, .top_k = 2, .max_row_bytes = 64, .layout = moe_layout::by_expert};
  heap_options h = heap_for(2, o);
  h.wait_limit = std::chrono::milliseconds(500);
  on_ranks(
      2,
      [&](rank_of_test& r) {
        experts_rank m(r, o, {32, 16}, gemm_tile::automatic, true);
        load_kernel(r.world, send_nothing, 64);
        batch const b{o, 2, {8, 8}};
        m.run(b, false, true);
        m.upload(b);
        r.meet();
        if (r.rank() == 0) {
          r.found.throws<error>("a rank sends nothing", {combines ? "gemm_combine" : "dispatch_gemm", "rank 1"}, [&] {
            if (combines) m.down_fused(8, true);
            else m.up_fused(b, false);
            r.world.check(r.stream);
          });
          auto const sums = r.download(combines ? m.fused.sums : m.fused.inner);
          bool any = false;
          for (bf16 const x : sums) any |= std::isnan(float(x));
          r.found.expect(any, "nothing is NaN");
        } else {
          r.launch({1, 64}, send_nothing, m.ch.view(make_header(combines ? "gemmcomb" : "dispgemm", 0)));
          r.synchronize();
          try {
            r.world.check(r.stream);
          } catch (error const&) {}
        }
        r.meet();
        m.ch.reset();
        m.run(b, false, true);
      },
      h);
}

TEST_CASE("moe_gemm: refuses what it cannot do, with the numbers that it can", "[moe_gemm]") {
  on_ranks(1, [&](rank_of_test& r) {
    moe_options const o{
        .max_tokens = 4, .experts = 2, .top_k = 2, .max_row_bytes = 80, .layout = moe_layout::by_expert};
    experts_rank m(r, o, {32, 16}, gemm_tile::automatic);
    channel small(r.heap, {.max_bytes = 16, .flags_per_source = 1});
    moe_options by_token = o;
    by_token.layout = moe_layout::by_token;
    for (auto const* name : {"dispatch_gemm", "gemm_combine"}) {
      auto const make = [&](channel& ch, moe_options const& x, gemm_tile const& tile = {}) {
        if (name[0] == 'd') dispatch_gemm<bf16> op(ch, x, tile);
        else gemm_combine<bf16> op(ch, x, tile);
      };
      std::string const begin = text(name, ": ");
      r.found.throws<bad_argument>("by token", {begin + "layout = by_token; expected by_expert"},
                                   [&] { make(m.ch, by_token); });
      r.found.throws<bad_argument>("split-k", {begin + "tile = any x any, split-k 2", "expected split-k 1 or any"},
                                   [&] { make(m.ch, o, {.split_k = 2}); });
      r.found.throws<out_of_space>("few flags", {begin + "needs ", " flags per source; the channel has 1"}, [&] {
        channel few(r.heap, {.max_bytes = 64_KiB, .flags_per_source = 1});
        make(few, o);
      });
    }
    r.found.throws<out_of_space>("a small channel", {"dispatch_gemm: what 1 ranks send", "max_bytes is 16"},
                                 [&] { dispatch_gemm<bf16> op(small, o); });
    batch const b{o, 1, {3}};
    m.run(b, false, true);
    auto const fails = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = m.up_call(b, false);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { m.fused_up(r.stream, c, swiglu{}); });
    };
    fails("tokens", {"dispatch_gemm: tokens = 5", "max_tokens = 4"}, [](auto& c) { c.dispatch.tokens = 5; });
    fails("out", {"dispatch_gemm: out is null"}, [](auto& c) { c.dispatch.out.data = nullptr; });
    fails("b", {"dispatch_gemm: b is [8, 32]"}, [](auto& c) { c.b.rows = 8; });
    fails("c", {"dispatch_gemm: c is [3, 16]", "expected [8"}, [](auto& c) { c.c.rows = 3; });
    fails("stride", {"dispatch_gemm: b_group_stride = 8", "expected at least"}, [](auto& c) { c.b_group_stride = 8; });
    fails("scales", {"dispatch_gemm: scales are given"}, [&](auto& c) {
      c.dispatch.scales = matrix<float const>{r.here(m.weights), 4, 1, 1};
      c.dispatch.out_scales = matrix<float>{r.here(m.weights), 8, 1, 1};
    });
    fails("overlap", {"dispatch_gemm: c = ", "overlaps x"},
          [&](auto& c) { c.c.data = reinterpret_cast<bf16*>(const_cast<std::byte*>(c.dispatch.x.data)); });
    auto const stops = [&](char const* what, std::vector<std::string> const& pieces, auto change) {
      auto c = m.down_call(3, true);
      change(c);
      r.found.throws<bad_argument>(what, pieces, [&] { m.fused_down(r.stream, c); });
    };
    stops("rows", {"gemm_combine: a has 3 rows; expected max_rows = 8"}, [](auto& c) { c.a.rows = 3; });
    stops("y", {"gemm_combine: in has 5 rows"}, [](auto& c) { c.y.rows = 5; });
    stops("out", {"gemm_combine: out is [5, 32]"}, [](auto& c) { c.out.rows = 5; });
    stops("routing", {"gemm_combine: routing is empty"}, [](auto& c) { c.routing = {}; });
    stops("overlap", {"gemm_combine: out = ", "overlaps a"}, [](auto& c) { c.out.data = const_cast<bf16*>(c.a.data); });
  });
}
