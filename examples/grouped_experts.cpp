// The experts of a mixture on one GPU in two kernel launches: y = (silu(x Wg) * (x Wu)) Wd, where every row of x
// belongs to one expert and has that expert's weights. Rows of an expert lie side by side. How many each has only the
// device knows: a kernel of a router would write the offsets.
//
//   grouped_gemm   x, rows by expert --> h = silu(x Wg) * (x Wu)     columns of Wg and Wu lie in turn in one matrix
//   grouped_gemm   h                 --> y = h Wd
//
//   example_grouped_experts [ranks]                   ranks are threads, each with its experts; default: one per GPU
//   scripts/run-ranks -n 4 example_grouped_experts    ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/grouped_gemm.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int experts = 6, max_rows = 160, model = 72, hidden = 40;

float x_at(int i, int j) { return float((i * 7 + j * 3) % 5 - 2) / 4; }
float gate_at(int e, int i, int j) { return float((i * 5 + j + e) % 7 - 3) / 8; }
float up_at(int e, int i, int j) { return float((i * 2 + j * 3 + e) % 5 - 2) / 8; }
float down_at(int e, int i, int j) { return float((i * 3 + j * 2 + e) % 7 - 3) / 16; }

/// Rows of an expert: none, some, or many.
__host__ __device__ constexpr int rows_of(int rank, int expert) {
  return (expert + rank) % 3 == 0 ? 0 : (expert * 11 + rank * 5) % 40;
}

/// What a router would do: offsets[e] = the first row of expert e.
__global__ void route(int rank, int* offsets) {
  if (!block{}.leader()) return;
  int row = 0;
  for (int e = 0; e < experts; ++e) {
    offsets[e] = row;
    row += rows_of(rank, e);
  }
  offsets[experts] = row;
}

/// Row i of y, of expert e.
std::vector<float> reference(int e, int i) {
  std::vector<float> h, y;
  for (int f = 0; f < hidden; ++f) {
    float gate = 0, up = 0;
    for (int j = 0; j < model; ++j) gate += x_at(i, j) * gate_at(e, j, f), up += x_at(i, j) * up_at(e, j, f);
    h.push_back(float(bf16(gate / (1 + std::exp(-gate)) * up)));
  }
  for (int j = 0; j < model; ++j) {
    float sum = 0;
    for (int f = 0; f < hidden; ++f) sum += h[std::size_t(f)] * down_at(e, f, j);
    y.push_back(sum);
  }
  return y;
}

/// One rank: returns how many elements of y are wrong.
int run_rank(world& w) {
  constexpr std::size_t of_x = max_rows * model, of_h = max_rows * hidden, of_up = experts * model * 2 * hidden,
                        of_down = experts * hidden * model;
  heap h(w, 2 * requirements::of<bf16>(of_x) + requirements::of<bf16>(of_h) + requirements::of<bf16>(of_up) +
                requirements::of<bf16>(of_down) + requirements::of<int>(experts + 1));
  auto const upload = [&](int rows, int cols, auto value) {
    std::vector<bf16> values;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) values.push_back(bf16(value(i, j)));
    sym<bf16> const x = h.allocate<bf16>(values.size());
    h.upload(x, values);
    return matrix<bf16>{h.here(x), rows, cols, cols};
  };
  auto const nothing = [](int, int) { return NAN; };
  matrix<bf16> const x = upload(max_rows, model, x_at), inner = upload(max_rows, hidden, nothing),
                     y = upload(max_rows, model, nothing);
  // Matrices of the experts one below the other; a gate's column, then an up's column
  matrix<bf16> const gate_and_up = upload(experts * model, 2 * hidden, [](int i, int j) {
    return j % 2 == 0 ? gate_at(i / model, i % model, j / 2) : up_at(i / model, i % model, j / 2);
  });
  matrix<bf16> const down =
      upload(experts * hidden, model, [](int i, int j) { return down_at(i / hidden, i % hidden, j); });
  int* const offsets = h.here(h.allocate<int>(experts + 1));
  grouped_gemm<bf16> op(w);

  launch(w, w.stream(), {.blocks = 1, .threads = 64}, route, w.rank(), offsets);
  op(w.stream(),
     {.a = x,
      .b = {gate_and_up.data, model, 2 * hidden, 2 * hidden},
      .b_group_stride = model * 2 * hidden,
      .c = inner,
      .offsets = offsets,
      .groups = experts},
     swiglu{});
  op(w.stream(), {.a = inner,
                  .b = {down.data, hidden, model, model},
                  .b_group_stride = hidden * model,
                  .c = y,
                  .offsets = offsets,
                  .groups = experts});
  w.check(w.stream());  // waits

  std::vector<bf16> found(of_x);
  check_hip(hipMemcpy(found.data(), y.data, found.size() * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  int wrong = 0, row = 0;
  for (int e = 0; e < experts; ++e)
    for (int const end = row + rows_of(w.rank(), e); row < end; ++row) {
      auto const wanted = reference(e, row);
      for (int j = 0; j < model; ++j)
        wrong += !(std::abs(float(found[std::size_t(row * model + j)]) - wanted[std::size_t(j)]) <=
                   0.02f + std::abs(wanted[std::size_t(j)]) / 64);
    }
  for (; row < max_rows; ++row)  // of no expert
    for (int j = 0; j < model; ++j) wrong += !std::isnan(float(found[std::size_t(row * model + j)]));
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(device_count()), [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: y = (silu(x Wg) * (x Wu)) Wd of %d experts, up to %d rows of %d: %d elements wrong\n",
                w.rank(), experts, max_rows, model, wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
