// A stencil with halo exchange: fused communication outside of neural networks. The kernel, with its figure and its
// argument, is in stencil.hpp. This program runs a small grid three times seven steps, and compares every value.
//
//   example_stencil [ranks]                       ranks are threads, which may share a GPU; default: 4
//   scripts/run-ranks -n 4 example_stencil        ranks are processes; torchrun --no-python does as well
#include "stencil.hpp"

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

namespace {

constexpr stencil::shape grid{.rows = 12, .cols = 70, .blocks = 4, .steps = 7};
constexpr int launches = 3;

float start_at(int row, int col) { return float((row * 7 + col * 3) % 17); }

/// The whole grid after all launches. Sums of few bits: exact, so == needs no tolerance.
std::vector<float> reference(int rows) {
  int const cols = grid.cols;
  std::vector<float> now(std::size_t(rows * cols)), next(now.size());
  for (int i = 0; i < rows * cols; ++i) now[std::size_t(i)] = start_at(i / cols, i % cols);
  auto const at = [&](int r, int c) {
    return r < 0 || r >= rows || c < 0 || c >= cols ? 0.0f : now[std::size_t(r * cols + c)];
  };
  for (int s = 0; s < grid.steps * launches; ++s) {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c)
        next[std::size_t(r * cols + c)] = 0.25f * (((at(r - 1, c) + at(r, c - 1)) + at(r, c + 1)) + at(r + 1, c));
    now.swap(next);
  }
  return now;
}

/// One rank: returns how many values are wrong.
int run_rank(world& w) {
  std::size_t const count = std::size_t(grid.rows * grid.cols);
  requirements const needs = stencil::needs_of(w.size(), grid) + 2 * requirements::of<float>(count);
  heap h(w, needs);
  channel ch(h, needs);
  auto const first = h.allocate<float>(count), second = h.allocate<float>(count);
  auto const sides = h.allocate<flag>(grid.flags());
  std::vector<float> values;
  for (int i = 0; i < grid.rows * grid.cols; ++i)
    values.push_back(start_at(w.rank() * grid.rows + i / grid.cols, i % grid.cols));
  h.upload(first, values);

  auto const as_grid = [&](sym<float> x) { return matrix<float>{h.here(x), grid.rows, grid.cols, grid.cols}; };
  for (int i = 0; i < launches; ++i) {  // an odd number of steps leaves the result in the other grid
    bool const swapped = i * grid.steps % 2;
    launch(w, w.stream(), {.blocks = grid.blocks, .threads = 128}, stencil::run_steps,
           ch.view(make_header("stencil", 0, grid.rows, grid.cols, grid.blocks, grid.steps)), grid,
           as_grid(swapped ? second : first), as_grid(swapped ? first : second), sides);
  }
  w.check(w.stream());  // waits, and throws if a rank did not come

  auto const found = h.download(launches * grid.steps % 2 ? second : first);
  auto const wanted = reference(w.size() * grid.rows);
  int wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += found[i] != wanted[std::size_t(w.rank()) * count + i];
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  run(ranks_of(argc, argv).value_or(4), [](world& w) {
    int const wrong = run_rank(w);
    std::printf("rank %d: %d launches of %d steps, %d x %d points: %d wrong\n", w.rank(), launches, grid.steps,
                grid.rows, grid.cols, wrong);
    if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " points are wrong"));
  });
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
