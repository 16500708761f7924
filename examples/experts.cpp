// A layer of experts that are spread over the ranks: each token's row goes to the ranks of its experts, which multiply
// it; the results come back and are added up with the token's weights. Two kernel launches beside the experts' own.
//
//   x [tokens, model] --moe_dispatch--> rows of my experts --my experts--> y --moe_combine--> out [tokens, model]
//
//   example_experts [ranks]                       ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_experts        ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int tokens = 24, model = 64, experts_each = 4, top_k = 3;

float x_at(int rank, int token, int j) { return float((token * 7 + j * 3 + rank * 5) % 9 - 4); }
int expert_at(int rank, int token, int i, int experts) { return (token * 5 + rank + i * 3) % experts; }
float weight_at(int token, int i) { return float(1 + (token + i) % 4) / 4; }
__host__ __device__ float factor_of(int expert) { return float(1 + expert % 3); }

/// Block e is this rank's expert e, which multiplies its rows. A grouped GEMM would find them in the same way.
__global__ void run_experts(moe_routing_view r, int first_expert, matrix<bf16> rows) {
  int const e = block{}.index(), begin = r.expert_begins[e], count = r.expert_rows[e];
  for (int i = block{}.rank(); i < count * rows.cols; i += block{}.size()) {
    bf16& x = rows(begin + i / rows.cols, i % rows.cols);
    x = bf16(float(x) * factor_of(first_expert + e));
  }
}

/// One rank: returns how many elements are wrong.
int run_rank(world& w) {
  int const experts = experts_each * w.size();
  moe_options const options{.max_tokens = tokens,
                            .experts = experts,
                            .top_k = top_k,
                            .max_row_bytes = model * int(sizeof(bf16)),
                            .layout = moe_layout::by_expert,
                            .alignment = 16};
  moe_routing const routing(w, options);  // for this layer, and for its backward pass
  int const max_rows = routing.view().shape.max_rows;
  requirements const needs =
      moe_dispatch::requirements(w.size(), options) + moe_combine<bf16>::requirements(w.size(), options) +
      2 * requirements::of<bf16>(tokens * model) + requirements::of<bf16>(std::size_t(max_rows) * model) +
      requirements::of<std::int32_t>(tokens * top_k) + requirements::of<float>(tokens * top_k);
  heap h(w, needs);
  channel ch(h, needs);
  moe_dispatch dispatch(ch, options);
  moe_combine<bf16> combine(ch, options);

  std::vector<bf16> x;
  std::vector<std::int32_t> table;
  std::vector<float> weights;
  for (int t = 0; t < tokens; ++t) {
    for (int j = 0; j < model; ++j) x.push_back(bf16(x_at(w.rank(), t, j)));
    for (int i = 0; i < top_k; ++i) table.push_back(expert_at(w.rank(), t, i, experts));
    for (int i = 0; i < top_k; ++i) weights.push_back(weight_at(t, i));
  }
  auto const upload = [&]<class T>(std::vector<T> const& values) {
    sym<T> const to = h.allocate<T>(values.size());
    h.upload(to, values);
    return h.here(to);
  };
  sym<bf16> const sums = h.allocate<bf16>(tokens * model), rows = h.allocate<bf16>(std::size_t(max_rows) * model);
  matrix<bf16> const received{h.here(rows), max_rows, model, model};

  dispatch(w.stream(), {.x = matrix<bf16>{upload(x), tokens, model, model},
                        .out = received,
                        .experts = upload(table),
                        .weights = upload(weights),
                        .tokens = tokens,
                        .routing = routing});
  run_experts<<<experts_each, 256, 0, w.stream()>>>(routing, w.rank() * experts_each, received);
  combine(w.stream(), {.in = received,
                       .out = {h.here(sums), tokens, model, model},
                       .weights = routing.view().row_weights,
                       .routing = routing});
  w.check(w.stream());  // waits, and throws if a rank did not come

  auto const found = h.download(sums);
  int wrong = 0;
  for (int t = 0; t < tokens; ++t)
    for (int j = 0; j < model; ++j) {
      float wanted = 0;
      for (int i = 0; i < top_k; ++i)
        wanted += weight_at(t, i) * factor_of(expert_at(w.rank(), t, i, experts)) * x_at(w.rank(), t, j);
      wrong += float(found[std::size_t(t * model + j)]) != wanted;
    }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: %d tokens of %d to %d of %d experts on %d ranks, and back: %d elements wrong\n", w.rank(),
                tokens, model, top_k, w.size() * experts_each, w.size(), wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
