// A five-point stencil over a grid that is spread over the ranks by rows: all steps in one launch. Each block owns a
// band of rows. Rows that a neighbour needs travel as soon as they are computed, while the rest of the band is.
//
//   block b, step s                        the block above                     the block below
//   wait for both neighbours' edges of s
//   first and last row of step s + 1 ----> edge, flag to s + 1                 edge, flag to s + 1
//   the rows between                       wait for s + 1 ...                  wait for s + 1 ...
//
// A neighbour may be a block of this rank or of the next one: the code is the same.
//
// Deadlock: launch() accepts only grids whose blocks are all resident. A block waits for edges of step s alone, which
// its neighbours send before they wait for step s themselves. Reuse of an edge's place: two places, by parity of s. A
// neighbour stores s + 2 after it has seen this block's s + 1, which this block sends after it has read s. The next
// launch uses the channel's other slot. The flags: one for each side of each band, raised to number() * (steps + 1) +
// s. Every launch raises it further, so it needs no reset; steps must be the same in all launches.
#pragma once
#include <fusewire/fusewire.hpp>

namespace stencil {

using namespace fusewire;

/// A grid's extents on one rank. All ranks pass the same.
struct shape {
  int rows = 0, cols = 0;  // of this rank; rows a multiple of blocks
  int blocks = 0;          // bands
  int steps = 0;           // of one launch

  /// Of a launch: an edge of each side of each band, for both parities.
  std::size_t inbox_bytes() const { return 4 * std::size_t(blocks) * std::size_t(cols) * sizeof(float); }
  std::size_t flags() const { return 2 * std::size_t(blocks); }
};

/// A fixed border of zeros surrounds the grid.
__device__ inline float point(float up, float left, float right, float down) {
  return 0.25f * (((up + left) + right) + down);
}

/// `steps` steps from grid[0], alternately in both grids; the result is in grid[steps % 2]. Each is [rows, cols].
/// sides: shape::flags() flags of every rank, allocated for this kernel alone.
__global__ void __launch_bounds__(512)
    run_steps(channel_view ch, shape g, matrix<float> first, matrix<float> second, sym<flag> sides) {
  block const b;
  world_view const& w = ch.world;
  // Before begin(): behind it the compiler takes the rank for a value of each lane, and the branches for divergent ones
  int const height = g.rows / g.blocks, band = w.rank() * g.blocks + b.index(), bands = w.size() * g.blocks,
            row0 = b.index() * height;
  channel_epoch const e = ch.begin(b);
  epoch_t const base = e.number() * epoch_t(g.steps + 1);
  // Of any band: where its edge of step s lies, side 0 above and 1 below, and the flag that says so
  auto const edge = [&](int of, int side, int s) {
    return e.inbox<float>(of / g.blocks) + std::int64_t((of % g.blocks * 2 + side) * 2 + s % 2) * g.cols;
  };
  auto const raised = [&](int of, int side) { return w.on(of / g.blocks, sides) + of % g.blocks * 2 + side; };
  // Row i of this rank in step s. Both addresses are values, from which one is chosen: the address of one of two
  // arguments would put the arguments into scratch memory
  auto const stored = [&](int s, int i) {
    float* const even = first.at(i, 0);
    float* const odd = second.at(i, 0);
    return s % 2 ? +odd : +even;
  };

  // Row i of the band in step s: where it lies, or null outside of the grid, where all is zero
  auto const row = [&](int s, int i) -> float const* {
    if (i >= 0 && i < height) return stored(s, row0 + i);
    int const side = i < 0 ? 0 : 1;
    return band == (side ? bands - 1 : 0) ? nullptr : edge(band, side, s);
  };
  // Stores row i of step s + 1, also where the neighbours read it. After the last step nobody does
  auto const compute = [&](int s, int i) {
    bool const travels = s + 1 < g.steps;
    float const *up = row(s, i - 1), *here = row(s, i), *down = row(s, i + 1);
    float* const to = stored(s + 1, row0 + i);
    float* const above = travels && i == 0 && band > 0 ? edge(band - 1, 1, s + 1) : nullptr;
    float* const below = travels && i == height - 1 && band < bands - 1 ? edge(band + 1, 0, s + 1) : nullptr;
    for (int c = b.rank(); c < g.cols; c += b.size()) {
      float const x =
          point(up ? up[c] : 0, c > 0 ? here[c - 1] : 0, c + 1 < g.cols ? here[c + 1] : 0, down ? down[c] : 0);
      to[c] = x;
      if (above) above[c] = x;
      if (below) below[c] = x;
    }
  };
  auto const tell = [&](int s) {
    if (band > 0) signal(b, raised(band - 1, 1), base + s);
    if (band < bands - 1) signal(b, raised(band + 1, 0), base + s);
  };

  for (int c = b.rank(); c < g.cols; c += b.size()) {
    if (band > 0) edge(band - 1, 1, 0)[c] = first(row0, c);
    if (band < bands - 1) edge(band + 1, 0, 0)[c] = first(row0 + height - 1, c);
  }
  tell(0);
  for (int s = 0; s < g.steps; ++s) {
    if (band > 0) wait<until::at_least>(b, w, raised(band, 0), base + s, (band - 1) / g.blocks);
    if (band < bands - 1) wait<until::at_least>(b, w, raised(band, 1), base + s, (band + 1) / g.blocks);
    compute(s, 0);
    if (height > 1) compute(s, height - 1);
    if (s + 1 < g.steps) tell(s + 1);
    for (int i = 1; i < height - 1; ++i) compute(s, i);
    b.sync();  // the band's rows are there for its own threads
  }
  e.end(b);
}

/// What run_steps() needs of a heap.
inline requirements needs_of(int ranks, shape const& g) {
  return channel::requirements(ranks, {.max_bytes = g.inbox_bytes(), .flags_per_source = 1}) +
         requirements::of<flag>(g.flags());
}

}  // namespace stencil
