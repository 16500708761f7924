// Tokens to the ranks that have their experts, and back, where only the device knows how many go where: two launches of
// all_to_all_v, the second with what the first has counted.
//
//   tokens, sorted by destination --all_to_all_v--> what came for this rank --+ 1--> --all_to_all_v--> where they came
//                                                    counts, offsets -------------------> counts, offsets   from
//
//   example_exchange_rows [ranks]                       ranks are threads; default: one per GPU, at least 2
//   scripts/run-ranks -n 4 example_exchange_rows        ranks are processes; torchrun --no-python does as well
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/all_to_all_v.hpp>

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr int tokens = 40, model = 96;

/// Where a token goes: few ranks have many of them.
__host__ __device__ int destination_of(int rank, int token, int ranks) {
  return (rank + token * token % (2 * ranks) / 2) % ranks;
}

/// The router's part: counts tokens by destination, and writes them in this order. Token i is all i and its rank.
__global__ void sort_tokens(float* x, std::int64_t* counts, int rank, int ranks) {
  block const b;
  int at = 0;
  for (int p = 0; p < ranks; ++p) {
    int const first = at;
    for (int i = 0; i < tokens; ++i) {
      if (destination_of(rank, i, ranks) != p) continue;
      for (int j = b.rank(); j < model; j += b.size()) x[at * model + j] = float(100 * i + rank);
      ++at;
    }
    if (b.leader()) counts[p] = at - first;
  }
}
/// The experts' part.
__global__ void add_one(float* x, std::int64_t const* counts, int ranks) {
  block const b;
  std::int64_t rows = 0;
  for (int s = 0; s < ranks; ++s) rows += counts[s];
  for (std::int64_t i = b.rank(); i < rows * model; i += b.size()) x[i] += 1;
}

/// One rank: returns how many elements are wrong.
int run_rank(world& w) {
  int const ranks = w.size();
  all_to_all_v_options const options{.max_count = tokens * model};
  std::size_t const most = std::size_t(tokens) * std::size_t(ranks) * model;  // all tokens may come to one rank
  requirements const needs = all_to_all_v<float>::requirements(ranks, options) + 3 * requirements::of<float>(most) +
                             2 * requirements::of<std::int64_t>(std::size_t(ranks));
  heap h(w, needs);
  channel ch(h, needs);
  all_to_all_v<float> op(ch, options);
  float *const x = h.here(h.allocate<float>(most)), *const expert = h.here(h.allocate<float>(most));
  sym<float> const back = h.allocate<float>(most);
  auto* const counts = h.here(h.allocate<std::int64_t>(std::size_t(ranks)));
  auto* const received = h.here(h.allocate<std::int64_t>(std::size_t(ranks)));

  sort_tokens<<<dim3(1), dim3(64), 0, w.stream()>>>(x, counts, w.rank(), ranks);
  op(w.stream(), all_to_all_v_call<float>{.in = x,
                                          .in_rows = tokens,
                                          .out = expert,
                                          .out_rows = tokens * ranks,
                                          .cols = model,
                                          .in_counts = counts,
                                          .out_counts = received});
  add_one<<<dim3(1), dim3(64), 0, w.stream()>>>(expert, received, ranks);
  op(w.stream(), all_to_all_v_call<float>{.in = expert,
                                          .in_rows = tokens * ranks,
                                          .out = h.here(back),
                                          .out_rows = tokens,
                                          .cols = model,
                                          .in_counts = received});
  w.check(w.stream());  // waits, and throws if a rank did not come

  auto const found = h.download(back);
  int wrong = 0, at = 0;
  for (int p = 0; p < ranks; ++p)
    for (int i = 0; i < tokens; ++i) {
      if (destination_of(w.rank(), i, ranks) != p) continue;
      for (int j = 0; j < model; ++j) wrong += found[std::size_t(at * model + j)] != float(100 * i + w.rank() + 1);
      ++at;
    }
  return wrong + (at != tokens);
}

}  // namespace

int main(int argc, char** argv) try {
  int const ranks = ranks_of(argc, argv).value_or(std::max(2, device_count()));
  run(ranks, [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: %d tokens of %d went to their experts on %d ranks and came back: %d elements wrong\n",
                w.rank(), tokens, model, w.size(), wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " elements are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
