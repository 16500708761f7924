// Which of gfx942's mainloops a shape takes.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <fusewire/kernels/mainloops_gfx942.hpp>

namespace fusewire {

/// The plan for few rows whose modelled time is least. `groups(plan)`: how many groups of plan.parts blocks are
/// resident at once.
template <class Groups>
std::optional<gemm_plan> few_rows_plan(gemm_shape const& s, Groups const& groups) {
  constexpr int few_rows = 64;
  if (s.rows > few_rows) return std::nullopt;
  // Bytes per us: of memory, of all L2s, of a block; us of split-k.
  constexpr double memory = 4.6e6, caches = 16e6, of_one = 60e3, meeting = 3;
  std::optional<gemm_plan> best;
  double best_us = 0;
  int const steps = s.steps_of_shard() * s.k_shards;
  for (tile_config const c : tuned_tiles) {
    if (!c.for_few_rows() || c.b != s.b_layout || (c.block_m < s.rows && c.block_m < few_rows) || (c.block_m > 16 && s.rows <= 16)) continue;
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

/// The plan for many rows whose modelled time is least.
template <class Groups>
std::optional<gemm_plan> many_rows_plan(gemm_shape const& s, Groups const& groups) {
  // Bytes per us: of memory, of all L2s; us of a step of 64 on matrix units; of split-k.
  constexpr double memory = 4.6e6, caches = 16e6, of_sums = 8e6, meeting = 4;
  std::optional<gemm_plan> best;
  double best_us = 0;
  int const steps = s.steps_of_shard() * s.k_shards;
  int fm = 0, fn = 0, fp = 0;
  if (char const* f = getenv("FW_TILE")) sscanf(f, "%dx%dx%d", &fm, &fn, &fp);
  for (tile_config const c : tuned_tiles) {
    if (c.for_few_rows() || c.b != s.b_layout) continue;
    if (fm && (c.block_m != fm || c.block_n != fn)) continue;
    int const tiles = s.tiles(c.block_m, c.block_n);
    for (int parts = 1; parts == 1 || (parts <= 16 && parts * 4 <= steps); ++parts) {
      if (fm && parts != fp) continue;
      gemm_plan const p{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .parts = parts};
      int const at_once = groups(p);
      if (at_once == 0 || (parts > 1 && (tiles > at_once || tiles * parts > split_memory::blocks ||
                                         std::int64_t(tiles) * parts * c.block_m * c.block_n > split_memory::max_sums)))
        continue;
      double const step_us = c.block_m * c.block_n * 64 / 1024.0 / 2100 / (c.block_n == 128 ? c.block_m == 128 ? 0.5 : 0.8 : 0.9);
      double const operands = 2.0 * s.k * (c.block_m + c.block_n) * tiles;
      double const us =
          std::max({2.0 * s.k * (s.n + s.rows * s.shards) / memory, operands / caches,
                    ceil_div(tiles, at_once) * ceil_div(steps, parts) * step_us}) +
          (parts > 1 ? meeting + 8.0 * tiles * parts * c.block_m * c.block_n / of_sums : 0);
      if (!best || us < best_us) best = p, best_us = us;
    }
  }
  return best;
}

/// None where no tuned mainloop is for the shape.
template <class Groups>
std::optional<gemm_plan> tuned_gemm_plan(gemm_shape const& s, Groups const& groups) {
  if (std::int64_t(s.k) * s.n >= std::int64_t(1) << 30) return std::nullopt;
  auto const p = few_rows_plan(s, groups);
  return p ? p : many_rows_plan(s, groups);
}

}  // namespace fusewire
