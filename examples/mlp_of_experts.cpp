// The MLP of experts that are spread over the ranks, in two kernel launches: each token's row goes to the ranks of its
// experts, each of which makes (silu(x Wg) * (x Wu)) Wd of it; these come back and are added up with the token's
// weights.
//
//   dispatch_gemm   x [tokens, model] --> rows of my experts --> h = silu(x Wg) * (x Wu)    a tile waits for its rows
//   gemm_combine    h --> y = h Wd --> the ranks of the tokens --> out [tokens, model]      a row waits for its tiles
//
//   example_mlp_of_experts [ranks]                    ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_mlp_of_experts     ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/dispatch_gemm.hpp>
#include <fusewire/ops/gemm_combine.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int tokens = 24, model = 64, hidden = 40, experts_each = 4, top_k = 3;

float x_at(int rank, int token, int j) { return float((token * 7 + j * 3 + rank * 5) % 5 - 2) / 4; }
int expert_at(int rank, int token, int i, int experts) { return (token * 5 + rank + i * 3) % experts; }
float weight_at(int token, int i) { return float(1 + (token + i) % 4) / 4; }
float gate_at(int e, int i, int j) { return float((i * 5 + j + e) % 7 - 3) / 8; }
float up_at(int e, int i, int j) { return float((i * 2 + j * 3 + e) % 5 - 2) / 8; }
float down_at(int e, int i, int j) { return float((i * 3 + j * 2 + e) % 7 - 3) / 16; }

/// What expert e makes of a token.
std::vector<float> reference(int e, int rank, int token) {
  std::vector<float> h, y;
  for (int f = 0; f < hidden; ++f) {
    float gate = 0, up = 0;
    for (int j = 0; j < model; ++j)
      gate += x_at(rank, token, j) * gate_at(e, j, f), up += x_at(rank, token, j) * up_at(e, j, f);
    h.push_back(float(bf16(gate / (1 + std::exp(-gate)) * up)));
  }
  for (int j = 0; j < model; ++j) {
    float sum = 0;
    for (int f = 0; f < hidden; ++f) sum += h[std::size_t(f)] * down_at(e, f, j);
    y.push_back(sum);
  }
  return y;
}

/// One rank: returns how many elements are wrong.
int run_rank(world& w) {
  int const experts = experts_each * w.size(), first = experts_each * w.rank();
  moe_options const options{.max_tokens = tokens,
                            .experts = experts,
                            .top_k = top_k,
                            .max_row_bytes = model * int(sizeof(bf16)),
                            .layout = moe_layout::by_expert};
  moe_routing const routing(w, options);
  int const max_rows = routing.view().shape.max_rows;
  requirements const needs =
      dispatch_gemm<bf16>::requirements(w.size(), options) + gemm_combine<bf16>::requirements(w.size(), options) +
      2 * requirements::of<bf16>(tokens * model) + 2 * requirements::of<bf16>(std::size_t(max_rows) * model) +
      requirements::of<bf16>(std::size_t(max_rows) * hidden) +
      requirements::of<bf16>(experts_each * model * 2 * hidden) +
      requirements::of<bf16>(experts_each * hidden * model) + requirements::of<std::int32_t>(tokens * top_k) +
      requirements::of<float>(tokens * top_k);
  heap h(w, needs);
  channel ch(h, needs);
  dispatch_gemm<bf16> up(ch, options);
  gemm_combine<bf16> down(ch, options);

  auto const upload = [&]<class T>(int rows, int cols, T, auto value) {
    std::vector<T> values;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) values.push_back(T(value(i, j)));
    sym<T> const to = h.allocate<T>(values.size());
    h.upload(to, values);
    return matrix<T>{h.here(to), rows, cols, cols};
  };
  auto const nothing = [](int, int) { return NAN; };
  auto const x = upload(tokens, model, bf16(), [&](int t, int j) { return x_at(w.rank(), t, j); }),
             received = upload(max_rows, model, bf16(), nothing), inner = upload(max_rows, hidden, bf16(), nothing),
             made = upload(max_rows, model, bf16(), nothing), out = upload(tokens, model, bf16(), nothing);
  auto const table =
      upload(tokens, top_k, std::int32_t(), [&](int t, int i) { return expert_at(w.rank(), t, i, experts); });
  auto const weights = upload(tokens, top_k, float(), weight_at);
  // Matrices of the experts one below the other; a gate's column, then an up's column
  auto const gate_and_up = upload(experts_each * model, 2 * hidden, bf16(), [&](int i, int j) {
    int const e = first + i / model;
    return j % 2 == 0 ? gate_at(e, i % model, j / 2) : up_at(e, i % model, j / 2);
  });
  auto const back = upload(experts_each * hidden, model, bf16(),
                           [&](int i, int j) { return down_at(first + i / hidden, i % hidden, j); });

  up(w.stream(),
     {.dispatch = {.x = x,
                   .out = received,
                   .experts = table.data,
                   .weights = weights.data,
                   .tokens = tokens,
                   .routing = routing},
      .b = {gate_and_up.data, model, 2 * hidden, 2 * hidden},
      .b_group_stride = model * 2 * hidden,
      .c = inner},
     swiglu{});
  down(w.stream(), {.a = inner,
                    .b = {back.data, hidden, model, model},
                    .b_group_stride = hidden * model,
                    .y = made,
                    .out = out,
                    .weights = routing.view().row_weights,
                    .routing = routing});
  w.check(w.stream());  // waits, and throws if a rank did not come

  std::vector<bf16> found(tokens * model);
  check_hip(hipMemcpy(found.data(), out.data, found.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  int wrong = 0;
  for (int t = 0; t < tokens; ++t) {
    std::vector<float> wanted(model);
    for (int i = 0; i < top_k; ++i) {
      auto const y = reference(expert_at(w.rank(), t, i, experts), w.rank(), t);
      for (int j = 0; j < model; ++j) wanted[std::size_t(j)] += weight_at(t, i) * y[std::size_t(j)];
    }
    for (int j = 0; j < model; ++j)
      wrong += !(std::abs(float(found[std::size_t(t * model + j)]) - wanted[std::size_t(j)]) <=
                 0.02f + std::abs(wanted[std::size_t(j)]) / 32);
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: %d tokens of %d through %d of %d experts on %d ranks in two launches: %d elements wrong\n",
                w.rank(), tokens, model, top_k, w.size() * experts_each, w.size(), wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
