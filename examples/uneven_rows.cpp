// Ranks whose numbers of rows differ, and change between replays of one graph: data-parallel tokens go through a
// tensor-parallel layer. Each rank has room for `room` tokens; how many it has in a step lies in its GPU's memory.
//
//   graph, captured once:  arrive --> ag_gemm over m --> gemm_rs --> leave
//                          tokens     W x room rows     room rows    tokens
//
// Every rank passes all of its room. Rows without a token hold NaN here, to show that they disturb nobody: row i of a
// product depends on row i of A alone. They cost their multiplications, so `room` is the largest number of a step.
//
//   example_uneven_rows [ranks]                       ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_uneven_rows        ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/gemm_rs.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int room = 5, model = 48, hidden_per_rank = 40, steps = 6;

/// Tokens of a rank in a step: none, some, or as many as there is room for.
int tokens(int rank, int step) { return step == 3 ? 0 : (rank * 3 + step * 2) % (room + 1); }
__host__ __device__ float x_at(int rank, int step, int i, int j) {
  return float((rank * 5 + step * 3 + i * 7 + j) % 5 - 2);
}
float w1_at(int i, int j) { return float((i + j * 3) % 3 - 1); }
float w2_at(int i, int j) { return float((i * 2 + j) % 3 - 1) / 16; }

/// A step's tokens, as another part of a model would leave them. Rows without a token become NaN.
__global__ void arrive(matrix<bf16> x, int const* count, int const* step, int rank) {
  int const i = int(blockIdx.x), j = int(threadIdx.x);
  x(i, j) = bf16(i < *count ? x_at(rank, *step, i, j) : NAN);
}

/// Takes the tokens' rows, and no others.
__global__ void leave(matrix<bf16 const> y, int const* count, float* out) {
  int const i = int(blockIdx.x), j = int(threadIdx.x);
  out[i * model + j] = i < *count ? float(y(i, j)) : 0;
}

/// Row i of rank r: x W1 W2, with x W1 rounded as the ranks do.
std::vector<float> reference(int rank, int step, int i, int hidden) {
  std::vector<float> y(model);
  for (int f = 0; f < hidden; ++f) {
    float h = 0;
    for (int j = 0; j < model; ++j) h += x_at(rank, step, i, j) * w1_at(j, f);
    for (int j = 0; j < model; ++j) y[std::size_t(j)] += float(bf16(h)) * w2_at(f, j);
  }
  return y;
}

template <class F>
matrix<bf16> filled(heap& h, int rows, int cols, F at) {
  std::vector<bf16> values;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) values.push_back(bf16(at(i, j)));
  auto const memory = h.allocate<bf16>(values.size());
  h.upload(memory, values);
  return {h.here(memory), rows, cols, cols};
}

/// One rank: returns how many elements are wrong.
int run_rank(world& w) {
  int const m = w.size() * room, hidden = w.size() * hidden_per_rank, f0 = w.rank() * hidden_per_rank;
  ag_gemm_options const up_options{.max_m = m, .k = model, .gather = gather::m};
  gemm_rs_options const down_options{.max_m = m, .max_n = model, .k = hidden_per_rank};
  requirements const needs =
      ag_gemm<bf16>::requirements(w.size(), up_options) + gemm_rs<bf16>::requirements(w.size(), down_options) +
      2 * requirements::of<bf16>(room * model) + requirements::of<bf16>(std::size_t(m * hidden_per_rank)) +
      2 * requirements::of<bf16>(model * hidden_per_rank) + 2 * requirements::of<int>(1) +
      requirements::of<float>(room * model);
  heap h(w, needs);
  channel ch(h, needs);
  ag_gemm<bf16> up(ch, up_options);
  gemm_rs<bf16> down(ch, down_options);

  auto const nothing = [](int, int) { return 0; };
  matrix<bf16> const x = filled(h, room, model, nothing), y = filled(h, room, model, nothing),
                     middle = filled(h, m, hidden_per_rank, nothing),
                     w1 = filled(h, model, hidden_per_rank, [&](int i, int j) { return w1_at(i, f0 + j); }),
                     w2 = filled(h, hidden_per_rank, model, [&](int i, int j) { return w2_at(f0 + i, j); });
  auto const count = h.allocate<int>(1), step = h.allocate<int>(1);
  auto const out = h.allocate<float>(std::size_t(room) * model);

  w.barrier();  // ranks that are threads synchronise before the first captures, and after the last has done so
  hipGraph_t graph;
  hipGraphExec_t layer;
  check_hip(hipStreamBeginCapture(w.stream(), hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
  // [begin: graph]
  arrive<<<room, model, 0, w.stream()>>>(x, h.here(count), h.here(step), w.rank());
  up(w.stream(), {.a = x, .b = w1, .c = middle, .m = m});
  down(w.stream(), {.a = middle, .b = w2, .c = y, .m = m});
  leave<<<room, model, 0, w.stream()>>>(y, h.here(count), h.here(out));
  // [end: graph]
  check_hip(hipStreamEndCapture(w.stream(), &graph), "hipStreamEndCapture");
  check_hip(hipGraphInstantiate(&layer, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
  w.barrier();

  int wrong = 0;
  for (int s = 0; s < steps; ++s) {
    int const mine = tokens(w.rank(), s);
    h.upload(count, std::vector{mine});
    h.upload(step, std::vector{s});
    check_hip(hipGraphLaunch(layer, w.stream()), "hipGraphLaunch");
    w.check(w.stream());  // waits, and throws if a rank did not come
    auto const found = h.download(out);
    for (int i = 0; i < room; ++i) {
      std::vector<float> const wanted = i < mine ? reference(w.rank(), s, i, hidden) : std::vector<float>(model);
      for (int j = 0; j < model; ++j)
        wrong += !(std::abs(found[std::size_t(i * model + j)] - wanted[std::size_t(j)]) <=
                   std::abs(wanted[std::size_t(j)]) / 128);
    }
  }
  check_hip(hipGraphExecDestroy(layer), "hipGraphExecDestroy");
  check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: %d replays of one graph, 0 to %d tokens: %d elements wrong\n", w.rank(), steps, room, wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
