// Chooses one of gfx942's mainloops for a shape.
#pragma once
#include <algorithm>
#include <optional>

#include <fusewire/kernels/mainloops_gfx942.hpp>

namespace fusewire {

/// The plan for few rows with the shortest modelled time. groups(plan): how many groups of plan.parts blocks are
/// resident at once. None if the shape has more rows, or if no kernel fits.
template <class Groups>
std::optional<gemm_plan> few_rows_plan(gemm_shape const& s, Groups const& groups) {
  constexpr int few_rows = 64;
  if (s.rows > few_rows) return std::nullopt;
  // memory, caches, of_one: bytes per us of memory, of all L2s, and of one block; meeting: us that split-k takes.
  constexpr double memory = 4.6e6, caches = 16e6, of_one = 60e3, meeting = 3;
  std::optional<gemm_plan> best;
  double best_us = 0;
  int const steps = s.steps_of_shard() * s.k_shards;
  for (tile_config const c : tuned_tiles) {
    if (!c.for_few_rows() || c.b != s.b_layout || (c.block_m < s.rows && c.block_m < few_rows) ||
        (c.block_m > 16 && s.rows <= 16))
      continue;
    int const tiles = s.tiles(c.block_m, c.block_n);
    for (int parts = 1; parts == 1 || (parts <= 8 && parts * 8 <= steps); ++parts) {
      gemm_plan const p{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .parts = parts};
      int const at_once = groups(p);
      if (at_once == 0 || (parts > 1 && (tiles > at_once || tiles * parts > split_memory::blocks))) continue;
      double const a = 2.0 * s.k * std::min(s.rows, c.block_m), b = 2.0 * s.k * c.block_n, read = 2.0 * s.k * s.n;
      double const us =
          std::max({read / memory, (a + b) * tiles / caches, ceil_div(tiles, at_once) * (a + b) / parts / of_one}) +
          (parts > 1 ? meeting : 0);
      if (!best || us < best_us) best = p, best_us = us;
    }
  }
  return best;
}

/// The plan for more rows with the shortest modelled time; none if no kernel fits.
template <class Groups>
std::optional<gemm_plan> many_rows_plan(gemm_shape const& s, Groups const& groups) {
  // memory, caches, of_sums: bytes per us of memory, of all L2s, and of sums that go to memory and back; meeting: us
  // that split-k takes; matrix_units: multiply-adds per us.
  constexpr double memory = 4.6e6, caches = 20e6, of_sums = 3.2e6, meeting = 3, matrix_units = 1024 * 2100.0;
  std::optional<gemm_plan> best;
  double best_us = 0;
  int const steps = s.steps_of_shard() * s.k_shards;
  for (tile_config const c : tuned_tiles) {
    if (c.for_few_rows() || c.b != s.b_layout) continue;
    int const tiles = s.tiles(c.block_m, c.block_n), area = c.block_m * c.block_n;
    for (int parts = 1; parts == 1 || (parts <= 16 && parts * 4 <= steps); ++parts) {
      gemm_plan const p{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .parts = parts};
      int const at_once = groups(p);
      bool const fits = tiles <= at_once && tiles * parts <= split_memory::blocks &&
                        std::int64_t(tiles) * parts * area <= split_memory::max_sums;
      if (at_once == 0 || (parts > 1 && !fits)) continue;
      double const operands = 2.0 * s.k * (c.block_m + c.block_n) * tiles,
                   read = 2.0 * s.k * (s.n + double(s.rows) * s.shards),
                   multiply = ceil_div(tiles, at_once) * double(ceil_div(steps, parts)) * k_step * area /
                              (matrix_units * c.busy);
      double const us = std::max({read / memory, operands / caches, multiply}) +
                        (parts > 1 ? meeting + double(tiles) * parts * area * sizeof(float) / of_sums : 0);
      if (!best || us < best_us) best = p, best_us = us;
    }
  }
  return best;
}

/// The plan for a shape; none if no tuned mainloop is for it.
template <class Groups>
std::optional<gemm_plan> tuned_gemm_plan(gemm_shape const& s, Groups const& groups) {
  if (std::int64_t(s.k) * s.n >= std::int64_t(1) << 30) return std::nullopt;
  auto const p = few_rows_plan(s, groups);
  return p ? p : many_rows_plan(s, groups);
}

}  // namespace fusewire
