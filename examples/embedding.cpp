// A sharded embedding table: looked up by all ranks, updated by its owners between lookups. The kernel, with its figure
// and its argument, is in embedding.hpp.
//
//   example_embedding [ranks]                       ranks are threads, which may share a GPU; default: 4
//   scripts/run-ranks -n 4 example_embedding        ranks are processes; torchrun --no-python does as well
#include "embedding.hpp"

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr embedding::shape lookup{.rows = 101, .dim = 40, .bags = 9, .ids = 6, .chunk = 4};
constexpr int launches = 4;

/// An element of the table: each launch sees another.
__host__ __device__ float element(int row, int col, int launch) { return float((row * 3 + col * 5 + launch * 7) % 31); }
int id_at(int rank, int bag, int i) { return (rank * 37 + bag * 23 + i * 41) % lookup.rows; }

/// An owner's rows, as they are for a launch.
__global__ void update(embedding::vec4* table, int rows, int rank, int ranks, int launch) {
  for (int i = int(threadIdx.x); i < rows * lookup.dim; i += int(blockDim.x))
    table[i / 4].x[i % 4] = element(i / lookup.dim * ranks + rank, i % lookup.dim, launch);
}

/// One rank: returns how many sums are wrong.
int run_rank(world& w) {
  int const own = lookup.rows_of(w.rank(), w.size()), most = lookup.rows_of(0, w.size());
  std::size_t const in_table = std::size_t(most * lookup.dim), in_sums = std::size_t(lookup.bags * lookup.dim);
  requirements const needs = channel::requirements(w.size(), lookup.needs(w.size())) +
                             requirements::of<embedding::vec4>(in_table / 4) +
                             launches * requirements::of<embedding::vec4>(in_sums / 4) +
                             requirements::of<std::int32_t>(lookup.bags * lookup.ids);
  heap h(w, needs);
  channel ch(h, needs);
  auto const table = h.allocate<embedding::vec4>(in_table / 4);
  auto const ids = h.allocate<std::int32_t>(lookup.bags * lookup.ids);
  std::vector<std::int32_t> mine;
  for (int i = 0; i < lookup.bags * lookup.ids; ++i) mine.push_back(id_at(w.rank(), i / lookup.ids, i % lookup.ids));
  h.upload(ids, mine);

  std::vector<sym<embedding::vec4>> sums;
  for (int i = 0; i < launches; ++i) sums.push_back(h.allocate<embedding::vec4>(in_sums / 4));
  for (int i = 0; i < launches; ++i) {  // queued without a look at the results in between
    update<<<1, 256, 0, w.stream()>>>(h.here(table), own, w.rank(), w.size(), i);
    launch(w, w.stream(), {.blocks = 3, .threads = 64}, embedding::sum_bags,
           ch.view(make_header("lookup", 0, lookup.rows, lookup.dim, lookup.bags, lookup.ids)), lookup,
           static_cast<embedding::vec4 const*>(h.here(table)), static_cast<std::int32_t const*>(h.here(ids)),
           h.here(sums[std::size_t(i)]));
  }
  w.check(w.stream());  // waits, and throws if a rank did not come

  int wrong = 0;
  for (int i = 0; i < launches; ++i) {
    auto const found = h.download(sums[std::size_t(i)]);
    for (int bag = 0; bag < lookup.bags; ++bag)
      for (int col = 0; col < lookup.dim; ++col) {
        float wanted = 0;
        for (int j = 0; j < lookup.ids; ++j) wanted += element(id_at(w.rank(), bag, j), col, i);
        wrong += found[std::size_t((bag * lookup.dim + col) / 4)].x[col % 4] != wanted;
      }
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: %d lookups of %d bags in a table that changes: %d sums wrong\n", w.rank(), launches,
                lookup.bags, wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " sums are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
