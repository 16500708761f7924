// Which of gfx942's mainloops a shape takes.
#pragma once
#include <algorithm>
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
  for (few_rows_config const c : few_rows_tiles) {
    if (c.b != s.b_layout || (c.block_m < s.rows && c.block_m < few_rows) || (c.block_m > 16 && s.rows <= 16)) continue;
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

/// As many blocks for each tile as are resident at once, if that is more than one.
template <class Groups>
std::optional<gemm_plan> split_plan(gemm_shape const& s, Groups const& groups) {
  gemm_plan p{.tuned = true, .tile_m = large_tile::config.block_m, .tile_n = large_tile::config.block_n};
  int const tiles = s.tiles(p.tile_m, p.tile_n),
            most = std::min({16, split_memory::blocks / tiles, s.steps_of_shard() * s.k_shards / 4});
  for (p.parts = most; p.parts > 1; --p.parts)
    if (tiles <= groups(p)) return p;
  return std::nullopt;
}

/// None where no tuned mainloop is for the shape.
template <class Groups>
std::optional<gemm_plan> tuned_gemm_plan(gemm_shape const& s, Groups const& groups) {
  if (std::int64_t(s.k) * s.n >= std::int64_t(1) << 30) return std::nullopt;
  auto const p = few_rows_plan(s, groups);
  return p ? p : split_plan(s, groups);
}

}  // namespace fusewire
