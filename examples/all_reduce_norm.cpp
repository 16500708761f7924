// The seam between two layers of a tensor-parallel model in one kernel launch: every rank has a part of each token's
// activation; their sum is added to the residual and normalised, on every rank, and once more in 8 bits.
//
//   part [tokens, model] of every rank --all_reduce--> h = residual + sum --rms_norm--> y = h / rms(h) * gamma
//                                                                          and y in int8 with a scale for each token
//
//   example_all_reduce_norm [ranks]                       ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_all_reduce_norm        ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/all_reduce.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int tokens = 24, model = 320;

float part_at(int rank, int token, int j) { return float((token * 7 + j * 3 + rank * 5) % 9 - 4) / 8; }
float residual_at(int token, int j) { return float((token * 5 + j) % 7 - 3) / 4; }
float gamma_at(int j) { return 1 + float(j % 5 - 2) / 8; }

/// One rank: returns how many elements are wrong.
int run_rank(world& w) {
  all_reduce_options const options{.max_rows = tokens, .max_cols = model};
  constexpr std::size_t elements = std::size_t(tokens) * model;
  requirements const needs = all_reduce<bf16>::requirements(w.size(), options) + 3 * requirements::of<bf16>(elements) +
                             requirements::of<bf16>(model) + requirements::of<std::int8_t>(elements) +
                             requirements::of<float>(tokens);
  heap h(w, needs);
  channel ch(h, needs);
  all_reduce<bf16> op(ch, options);
  op.prepare<rms_norm<bf16, std::int8_t>>();

  auto const upload = [&](int rows, auto value) {
    std::vector<bf16> values;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < model; ++j) values.push_back(bf16(value(i, j)));
    sym<bf16> const x = h.allocate<bf16>(values.size());
    h.upload(x, values);
    return matrix<bf16>{h.here(x), rows, model, model};
  };
  matrix<bf16> const part = upload(tokens, [&](int i, int j) { return part_at(w.rank(), i, j); }),
                     residual = upload(tokens, residual_at), y = upload(tokens, [](int, int) { return NAN; }),
                     gamma = upload(1, [](int, int j) { return gamma_at(j); });
  sym<std::int8_t> const quantised = h.allocate<std::int8_t>(elements);
  sym<float> const scales = h.allocate<float>(tokens);

  op(w.stream(), part,
     rms_norm<bf16, std::int8_t>{.residual = residual,
                                 .gamma = gamma.data,
                                 .residual_out = residual,  // in place
                                 .norm_out = y,
                                 .quantised_out = {h.here(quantised), tokens, model, model},
                                 .row_scales = h.here(scales)});
  w.check(w.stream());  // waits, and throws if a rank did not come

  std::vector<bf16> found(elements);
  check_hip(hipMemcpy(found.data(), y.data, elements * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  auto const eighths = h.download(quantised);
  auto const scale = h.download(scales);
  int wrong = 0;
  for (int i = 0; i < tokens; ++i) {
    std::vector<float> sum(model);
    float squares = 0;
    for (int j = 0; j < model; ++j) {
      for (int r = 0; r < w.size(); ++r) sum[std::size_t(j)] += part_at(r, i, j);
      sum[std::size_t(j)] = float(bf16(float(bf16(sum[std::size_t(j)])) + residual_at(i, j)));
      squares += sum[std::size_t(j)] * sum[std::size_t(j)];
    }
    for (int j = 0; j < model; ++j) {
      std::size_t const at = std::size_t(i * model + j);
      float const wanted = sum[std::size_t(j)] / std::sqrt(squares / model + 1e-6f) * gamma_at(j),
                  of_int8 = float(eighths[at]) * scale[std::size_t(i)];
      wrong += !(std::abs(float(found[at]) - wanted) <= 0.001f + std::abs(wanted) / 128);
      wrong += !(std::abs(of_int8 - wanted) <= scale[std::size_t(i)] * 0.51f);
    }
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: y = rms_norm(residual + sum over %d ranks), %d tokens of %d: %d elements wrong\n", w.rank(),
                w.size(), tokens, model, wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
