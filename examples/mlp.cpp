// A tensor-parallel SwiGLU MLP with sequence parallelism in two kernel launches: y = x + (silu(x Wg) * (x Wu)) Wd.
// Every rank holds some rows of x and y, some columns of Wg and Wu and the same rows of Wd. Columns of Wg and Wu lie in
// turn in one matrix, so that gate and up leave one GEMM as one matrix.
//
//   all-gather + GEMM        x: rows of all ranks --> h = silu(x Wg) * (x Wu), this rank's columns
//   GEMM + reduce-scatter    h Wd, summed over ranks --> y = x + sum, this rank's rows
//
//   example_mlp [ranks]                       ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_mlp        ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/gemm_rs.hpp>
#include <fusewire/ops/interleave_columns.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int tokens = 96, model = 72, hidden_per_rank = 48;

float x_at(int i, int j) { return float((i * 7 + j * 3) % 5 - 2) / 4; }
float gate_at(int i, int j) { return float((i * 5 + j) % 7 - 3) / 8; }
float up_at(int i, int j) { return float((i * 2 + j * 3) % 5 - 2) / 8; }
float down_at(int i, int j) { return float((i * 3 + j * 2) % 7 - 3) / 16; }

/// An epilogue: adds what the MLP's input has in this place.
struct residual {
  matrix<bf16 const> x;  // [rows of this rank, model]
  __device__ float operator()(float sum, int row, int column) const { return sum + float(x(row, column)); }
};

/// y(i, j), with h rounded as the ranks do.
std::vector<float> reference(int hidden) {
  std::vector<float> y(tokens * model), h(static_cast<std::size_t>(hidden));
  for (int i = 0; i < tokens; ++i) {
    for (int f = 0; f < hidden; ++f) {
      float gate = 0, up = 0;
      for (int j = 0; j < model; ++j) gate += x_at(i, j) * gate_at(j, f), up += x_at(i, j) * up_at(j, f);
      h[std::size_t(f)] = float(bf16(gate / (1 + std::exp(-gate)) * up));
    }
    for (int j = 0; j < model; ++j) {
      float sum = x_at(i, j);
      for (int f = 0; f < hidden; ++f) sum += h[std::size_t(f)] * down_at(f, j);
      y[std::size_t(i * model + j)] = sum;
    }
  }
  return y;
}

/// One rank: returns how many elements of its rows of y are wrong.
int run_rank(world& w) {
  ag_gemm_options const up_options{.max_m = tokens, .k = model, .gather = gather::m};
  gemm_rs_options const down_options{.max_m = tokens, .max_n = model, .k = hidden_per_rank};
  int const most_rows = ceil_div(tokens, w.size());  // of a rank
  // Two operators share a channel
  requirements const needs =
      ag_gemm<bf16>::requirements(w.size(), up_options) + gemm_rs<bf16>::requirements(w.size(), down_options) +
      2 * requirements::of<bf16>(most_rows * model) + 3 * requirements::of<bf16>(model * hidden_per_rank) +
      requirements::of<bf16>(model * 2 * hidden_per_rank) + requirements::of<bf16>(tokens * hidden_per_rank);
  heap h(w, needs);
  channel ch(h, needs);
  ag_gemm<bf16> first(ch, up_options);
  gemm_rs<bf16> second(ch, down_options);

  int const rows = second.rows(tokens), row0 = w.rank() * most_rows, f0 = w.rank() * hidden_per_rank;
  // What all ranks allocate is of one size, also where the last one has fewer rows
  auto const upload = [&](int r, int c, auto value, int allocated_rows) {
    std::vector<bf16> values;
    for (int i = 0; i < r; ++i)
      for (int j = 0; j < c; ++j) values.push_back(bf16(value(i, j)));
    matrix<bf16> const m{h.view().here(h.allocate<bf16>(std::size_t(allocated_rows * c))), r, c, c};
    check_hip(hipMemcpy(m.data, values.data(), values.size() * sizeof(bf16), hipMemcpyHostToDevice), "hipMemcpy");
    return m;
  };
  auto const nothing = [](int, int) { return NAN; };
  matrix<bf16> const x = upload(rows, model, [&](int i, int j) { return x_at(row0 + i, j); }, most_rows);
  matrix<bf16> const gate = upload(model, hidden_per_rank, [&](int i, int j) { return gate_at(i, f0 + j); }, model);
  matrix<bf16> const up = upload(model, hidden_per_rank, [&](int i, int j) { return up_at(i, f0 + j); }, model);
  matrix<bf16> const gate_and_up = upload(model, 2 * hidden_per_rank, nothing, model);
  matrix<bf16> const down =
      upload(hidden_per_rank, model, [&](int i, int j) { return down_at(f0 + i, j); }, hidden_per_rank);
  matrix<bf16> const hidden = upload(tokens, hidden_per_rank, nothing, tokens),
                     y = upload(rows, model, nothing, most_rows);

  interleave_columns<bf16>(w, w.stream(), gate, up, gate_and_up, layout::row_major);  // once, with the weights

  first(w.stream(), {.a = x, .b = gate_and_up, .c = hidden, .m = tokens}, swiglu{});
  second(w.stream(), {.a = hidden, .b = down, .c = y, .m = tokens}, residual{x});
  w.check(w.stream());  // waits, and throws if a rank did not come

  std::vector<bf16> found(std::size_t(rows * model));
  check_hip(hipMemcpy(found.data(), y.data, found.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  auto const wanted = reference(hidden_per_rank * w.size());
  int wrong = 0;
  for (int i = 0; i < rows * model; ++i)
    wrong += !(std::abs(float(found[std::size_t(i)]) - wanted[std::size_t(row0 * model + i)]) <=
               0.02f + std::abs(wanted[std::size_t(row0 * model + i)]) / 64);
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: y = x + (silu(x Wg) * (x Wu)) Wd, %d tokens of %d, %d hidden: %d elements of this rank's "
                "rows wrong\n",
                w.rank(), tokens, model, hidden_per_rank * w.size(), wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
