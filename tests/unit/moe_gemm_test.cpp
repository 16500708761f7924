// dispatch_gemm and gemm_combine against moe_dispatch, grouped_gemm and moe_combine: the same bits.
#include <fusewire/ops/dispatch_gemm.hpp>
#include <fusewire/ops/gemm_combine.hpp>
#include <fusewire/ops/grouped_gemm.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <cstring>

#include "moe_batch.hpp"
#include "support.hpp"

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

  experts_rank(rank_of_test& rank, moe_options const& options, extents const& of, gemm_tile const& tile)
      : r(rank), o(options), x(of), ch(r.heap, channel_options::of(needs(r.size(), o))), dispatch(ch, o),
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
  grouped_gemm_call<bf16> up_of(layer const& l) const {
    moe_routing_view const v = l.routing;
    return {.a = matrix_of(l.rows, max_rows, x.model),
            .b = matrix_of(up, x.model, 2 * x.hidden),
            .b_group_stride = x.model * 2 * x.hidden,
            .c = matrix_of(l.inner, max_rows, x.hidden),
            .offsets = v.expert_begins,
            .ends = v.expert_ends,
            .groups = experts};
  }
  void run_up(batch const& b, bool routed = false) {
    dispatch(r.stream, call(b, single, routed));
    gemm(r.stream, up_of(single), swiglu{});
    fused_up(r.stream,
             {.dispatch = call(b, fused, routed),
              .b = matrix_of(up, x.model, 2 * x.hidden),
              .b_group_stride = x.model * 2 * x.hidden,
              .c = matrix_of(fused.inner, max_rows, x.hidden)},
             swiglu{});
    r.world.check(r.stream);
    equal("rows", b, single.rows, fused.rows, x.model);
    equal("inner", b, single.inner, fused.inner, x.hidden);
  }
  void run_down(batch const& b, bool weigh) {
    moe_routing_view const v = single.routing, u = fused.routing;
    int const n = b.tokens[std::size_t(r.rank())];
    matrix<bf16 const> const weights_of_0 = matrix_of(down, x.hidden, x.model);
    gemm(r.stream, {.a = matrix_of(single.inner, max_rows, x.hidden),
                    .b = weights_of_0,
                    .b_group_stride = x.hidden * x.model,
                    .c = matrix_of(single.made, max_rows, x.model),
                    .offsets = v.expert_begins,
                    .ends = v.expert_ends,
                    .groups = experts});
    combine(r.stream, {.in = matrix_of(single.made, max_rows, x.model),
                       .out = matrix_of(single.sums, n, x.model),
                       .weights = weigh ? v.row_weights : nullptr,
                       .routing = v});
    fused_down(r.stream, {.a = matrix_of(fused.inner, max_rows, x.hidden),
                          .b = weights_of_0,
                          .b_group_stride = x.hidden * x.model,
                          .y = matrix_of(fused.made, max_rows, x.model),
                          .out = matrix_of(fused.sums, n, x.model),
                          .weights = weigh ? u.row_weights : nullptr,
                          .routing = u});
    r.world.check(r.stream);
    equal("made", b, single.made, fused.made, x.model);
    equal("sums", b, single.sums, fused.sums, x.model);
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
          m.upload(b);
          m.run_up(b);
          m.run_up(b, true);
          m.run_down(b, seed % 3 != 0);
        }
      },
      heap_for(ranks, o));
}

}  // namespace

TEST_CASE("moe_gemm: fused operators make the bits of single ones", "[moe_gemm]") {
  batches(GENERATE(1, 2, 4), 19, {40, 24}, gemm_tile::automatic);
}
TEST_CASE("moe_gemm: blocks that share the counting of tables", "[moe_gemm]") {
  batches(2, 257, {16, 16}, gemm_tile::automatic);
}
