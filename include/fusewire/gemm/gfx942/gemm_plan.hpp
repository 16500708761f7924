// Chooses one of gfx942's mainloops for a shape.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include <fusewire/gemm/gfx942/tuned_mainloops.hpp>

namespace fusewire {

namespace detail {
/// What the plan's model knows of gfx942, as projected by fusewire-sim --time.
struct rates_gfx942 {
  // Bytes per us of: memory; all L2s, with small M and with large M; B and A into a block with small M; sums that go to
  // memory and back; a link to a peer. Multiply-adds per us of all matrix units
  static constexpr double memory = 4.6e6, caches_few_rows = 16e6, caches = 20e6, b_few_rows = 45e3, a_few_rows = 150e3,
                          of_sums = 3.2e6, link = 38e3, matrix_units = 1024 * 2100.0;
  // us for blocks that share a large tile to synchronise; for each that shares a small one, and where all wait for the
  // rows of all ranks
  static constexpr double barrier = 3, sharing = 0.3, sharing_rows = 1.6;
  static constexpr double ahead = 40e3;  // bytes of B that a block with small M has when a gathered A comes
  static constexpr int small_m = 64;
};
}  // namespace detail

/// The modelled time, in us, of a plan with this tile and split_k; at_once: groups of the blocks that share a tile
/// which are co-resident. None if the plan is not for the shape.
inline std::optional<double> modelled_us_gfx942(gemm_shape const& s, tile_config const& c, int split_k, int at_once) {
  using rate = detail::rates_gfx942;
  bool const few = c.for_few_rows();
  int const steps = s.steps_of_shard() * s.k_shards, tiles = s.tiles(c.block_m, c.block_n),
            area = c.block_m * c.block_n;
  if (at_once == 0 || c.b != s.b_layout) return std::nullopt;
  if (s.tile.fixed_order ? !c.fixed_order() || split_k > 1 : few != (s.rows <= rate::small_m)) return std::nullopt;
  // A tile has all rows; one with more than 16 is not for so few
  if (few && ((c.block_m < s.rows && c.block_m < rate::small_m) || (c.block_m > 16 && s.rows <= 16)))
    return std::nullopt;
  if (split_k > 1 && (split_k > (few ? 8 : 16) || split_k * (few ? 8 : 4) > steps || tiles > at_once ||
                      tiles * split_k > split_k_workspace::blocks ||
                      (!few && std::int64_t(tiles) * split_k * area > split_k_workspace::max_sums)))
    return std::nullopt;
  bool const gathered = s.link_bytes > 0;
  if (few) {
    int const waves = 8, most = std::min(ceil_div(steps, waves * split_k) * waves, steps);  // steps of one block
    double const ahead = gathered ? rate::ahead : 0, a = 2.0 * k_step * std::min(s.rows, c.block_m),
                 b = 2.0 * k_step * c.block_n,
                 read = std::max(0.0, 2.0 * s.k * s.n - tiles * split_k * ahead) / rate::memory,
                 operands = (a + b) * steps * tiles / rate::caches_few_rows,
                 block = std::max(0.0, b * most - ahead) / rate::b_few_rows + a * most / rate::a_few_rows;
    auto const round = [&](int of) { return std::max(std::max(read, operands) * of / tiles, block); };  // so many tiles
    int const full = (tiles - 1) / at_once;  // rounds ahead of the last one
    return full * round(at_once) + round(tiles - full * at_once) +
           (split_k > 1 ? rate::sharing * split_k + (gathered && s.k_shards == 1 ? rate::sharing_rows : 0) : 0);
  }
  int const chunks = ceil_div(s.steps_of_shard(), s.together) * s.k_shards,
            most = std::min(ceil_div(chunks, split_k) * s.together, steps);  // steps of one block
  double const read = 2.0 * s.k * (s.n + double(s.rows) * s.shards) / rate::memory,
               operands = 2.0 * s.k * (c.block_m + c.block_n) * tiles / rate::caches,
               multiply = ceil_div(tiles, at_once) * double(most) * k_step * area / (rate::matrix_units * c.busy);
  // B streams while blocks wait for a gathered A. When its last chunk has arrived, a part of the multiplication is
  // left: a fourth fits the projections
  double const come = gathered ? s.link_bytes / rate::link : read, left = gathered ? multiply / 4 : 0;
  return std::max({come, operands, multiply}) + left +
         (split_k > 1 ? rate::barrier + double(tiles) * split_k * area * sizeof(float) / rate::of_sums : 0);
}

/// A plan and its modelled time.
template <class Plan>
struct modelled {
  /// gemm_plan, or an operator's.
  Plan plan;
  /// Its time.
  double us = 0;
};
/// The plan with the shortest time, where that comes first.
template <class Plan>
std::optional<Plan> first_of(std::vector<modelled<Plan>> const& all) {
  if (all.empty()) return std::nullopt;
  return all.front().plan;
}

/// The plans for the shape that the caller's tile allows, the shortest modelled time first; none if no tuned mainloop
/// is for it. groups(plan): how many groups of plan.split_k blocks are co-resident.
template <class Groups>
std::vector<modelled<gemm_plan>> modelled_plans(gemm_shape const& s, Groups const& groups) {
  std::vector<modelled<gemm_plan>> all;
  if (std::int64_t(s.k) * s.n >= std::int64_t(1) << 30) return all;
  for (tile_config const c : tuned_tiles)
    for (int split_k = 1; split_k <= 16; ++split_k) {
      gemm_plan const p{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .split_k = split_k};
      if (!s.tile.allows(p.tile_m, p.tile_n, split_k)) continue;
      if (auto const us = modelled_us_gfx942(s, c, split_k, groups(p))) all.push_back({p, *us});
    }
  std::stable_sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.us < b.us; });
  return all;
}

/// The first of modelled_plans().
template <class Groups>
std::optional<gemm_plan> tuned_gemm_plan(gemm_shape const& s, Groups const& groups) {
  return first_of(modelled_plans(s, groups));
}

}  // namespace fusewire
