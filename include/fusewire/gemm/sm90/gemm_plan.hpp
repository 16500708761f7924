// Which of Hopper's mainloops a shape takes.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>

#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/gemm/sm90/gemm_config.hpp>

namespace fusewire {

/// A plan for gemm_sm90.
struct gemm_plan_sm90 : gemm_plan {
  double us = 0;            // as modelled
  bool all_at_once = true;  // every tile has its own blocks

  /// The tile as the mainloop takes it.
  sm90_gemm_config config() const { return {tile_m, tile_n}; }
};

namespace detail {
/// What the plan's model knows of a block on one H200, as measured.
struct rates_sm90 {
  /// Per us: floating-point operations of a block; bytes from memory of all blocks, and of one; bytes of sums that a
  /// block sends to another. us: for blocks that share a tile to synchronise.
  static constexpr double flops = 6.5e6, memory = 3.8e6, memory_of_one = 45.6e3, exchange = 17e3, barrier = 1.9;
  /// Factors of `flops`. Narrow tiles multiply more slowly: those of the narrowest take all of the shared memory's
  /// bandwidth. A launch with few M tiles loses less.
  static constexpr double narrow = 0.95, narrowest = 0.865, narrowest_in_few_rows = 0.91;
  static constexpr int wide_columns = 224, narrowest_columns = 128, few_tile_rows = 2;
  /// Factors of `flops`. Swap-AB tiles lose by the width in long launches only, which run at the power limit.
  static constexpr double swapped = 0.97, swapped_in_long = 0.94, long_flops = 2e11;
  /// How much longer a step takes whose rows of boxes lie across two lines.
  static constexpr double straddling = 1.25;
  static constexpr int in_flight = 56 * 1024;  // bytes of B of each block that keep the memory busy
};

/// Per us, of a block with this tile.
inline double flops_of_block(gemm_shape const& s, sm90_gemm_config c, int m_tiles) {
  using rates = rates_sm90;
  if (c.block_m == 64 || c.width() >= rates::wide_columns) return rates::flops;
  if (c.swap_ab()) return rates::flops * (s.flops() < rates::long_flops ? rates::swapped : rates::swapped_in_long);
  if (c.width() > rates::narrowest_columns) return rates::flops * rates::narrow;
  return rates::flops * (m_tiles <= rates::few_tile_rows ? rates::narrowest_in_few_rows : rates::narrowest);
}
}  // namespace detail

/// The plan whose modelled time is least. `clusters(tile, blocks)` is how many clusters of that many blocks are
/// co-resident. The time of a block is the 8-norm of three times (to multiply its tiles, to read all of B from
/// memory, to ask for its slice of B), plus, with split-k, the exchange of partial sums. Rates are fitted to one
/// H200: of 64 shapes with up to 15 measured configurations each, what is chosen is the fastest within 1 % in 61 and
/// takes at most 5 % longer in the others, all without swap-AB tiles, whose rates come from some 15 shapes more.
/// Communication is not in the model.
template <class Clusters>
gemm_plan_sm90 plan_gemm_sm90(gemm_shape const& s, Clusters const& clusters) {
  using rate_of = detail::rates_sm90;
  int const in_shard = s.steps_of_shard();
  /// Where none fits, which the launch says
  gemm_plan_sm90 best{{.tuned = true, .tile_m = sm90_tiles[0].block_m, .tile_n = sm90_tiles[0].block_n}};
  for (sm90_gemm_config const c : sm90_tiles)
    for (int split_k = 1; split_k <= 8 && split_k <= in_shard; ++split_k) {
      // Several rows of small tiles ask more of the L2 than it has
      if ((c.block_m == 64) != (s.rows <= 64) || !c.suits(s.b_layout)) continue;
      if (!s.tile.allows(c.block_m, c.block_n, split_k)) continue;
      // Whether an instruction adds as with its operands swapped, no document says
      if (s.tile.fixed_order && (split_k > 1 || c.swap_ab())) continue;
      int const m_tiles = s.m_tiles(c.block_m), tiles = s.tiles(c.block_m, c.block_n), at_once = clusters(c, split_k);
      if (at_once == 0 || (split_k > 1 && tiles > at_once) || !c.can_share(std::min(s.rows, c.block_m), split_k))
        continue;
      double const steps = double(ceil_div(tiles, at_once)) * s.k_shards * ceil_div(in_shard, split_k);
      double const rate = detail::flops_of_block(s, c, m_tiles);
      bool const straddles = c.block_n % 64 != 0 && s.b_layout == layout::row_major && split_k > 1;
      double const step = c.block_m * 64.0 * 2 * c.block_n / rate * (straddles ? rate_of::straddling : 1);
      double const sums = split_k == 1 ? 0
                                       : rate_of::barrier + 4.0 * std::min(s.rows, c.block_m) * c.block_n *
                                                                (split_k - 1) / split_k / rate_of::exchange;
      double const multiplied = steps * step, read = 2.0 * s.k * s.n / rate_of::memory,
                   asked = steps * c.block_n * 128 / m_tiles / rate_of::memory_of_one;
      double const us = std::pow(std::pow(multiplied, 8) + std::pow(read, 8) + std::pow(asked, 8), 1.0 / 8) + sums;
      if (best.us != 0 && us >= best.us) continue;
      best = {{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .split_k = split_k}, us, tiles <= at_once};
    }
  int const b_bytes = best.config().b_bytes(s.b_layout);
  if (s.m_tiles(best.tile_m) <= 2) best.b_in_flight = (rate_of::in_flight + b_bytes / 2) / b_bytes;
  return best;
}

/// The plan of gemm_sm90 as operators ask for it. `clusters(plan)`: resident clusters of the plan's kernel.
template <class Clusters>
std::optional<gemm_plan> tuned_gemm_plan(gemm_shape const& s, Clusters const& clusters) {
  gemm_plan_sm90 const p = plan_gemm_sm90(s, [&](sm90_gemm_config c, int split_k) {
    return clusters(gemm_plan{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .split_k = split_k});
  });
  if (s.tile.names_tuned() && p.us == 0) return std::nullopt;
  return p;
}

}  // namespace fusewire
