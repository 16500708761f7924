// How gfx942 gathers A, beside its choice of a mainloop.
#pragma once
#include <algorithm>

#include <fusewire/kernels/ag_gemm_plan.hpp>
#include <fusewire/kernels/gemm_plan_gfx942.hpp>

namespace fusewire {

/// Whether to pull. Never on gfx942; pull and push have not been compared there by measurements.
constexpr bool pull_is_faster(int, int, int, int, gather) { return false; }

/// The plan of a tuned mainloop of gfx942; none if no tile fits. groups(plan): resident blocks of the plan's kernel,
/// divided by the blocks that share a tile. pulls: also with one rank a block is kept, which acknowledges. comm_blocks:
/// as the caller names them.
template <class Groups>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const& s, int ranks, gather by, bool pulls, int comm_blocks,
                                               Groups const& groups) {
  constexpr int piece = 32 * 1024;                                      // bytes that a block loads at once
  int const rows = by == gather::k ? s.rows : ceil_div(s.rows, ranks);  // of a shard
  // Large tiles. If blocks share them, as many moving blocks for each peer as A has tile rows. With gather::k they move
  // one chunk of all rows together, so that a chunk is there before the next one is on its way. With gather::m a tile
  // row has small pieces of several ranks, and four blocks are faster than two. If every tile has a block of its own, A
  // has more rows: then the eight waves of one block for each peer push as much together
  int const least_movers = by == gather::k ? 2 : 4;
  auto const plan_of = [&](gemm_plan const& p) {
    bool const large = p.tile_m > 64, by_waves = large && p.parts == 1 && !pulls;
    return ag_gemm_plan{.gemm = p,
                        .movers_per_peer = by_waves ? 1
                                           : large && p.parts > 1
                                               ? std::clamp(ceil_div(s.rows, p.tile_m), least_movers, 8)
                                               : 8,
                        .by_waves = by_waves,
                        .pieces = piece_order::nest::by_chunk};
  };
  auto const beside = [&](gemm_plan const& p) {
    gemm_plan one = p;
    one.parts = 1;
    int const fit = groups(one), few_rows_moving = 48,
              moving = comm_blocks > 0                 ? comm_blocks
                       : ranks == 1                    ? int(pulls)
                       : p.parts > 1 && p.tile_m <= 64 ? few_rows_moving
                                                       : std::max(1, std::min(fit / 4, plan_of(p).movers(ranks)));
    return std::max(0, fit - moving) / p.parts;
  };
  auto const gemm = tuned_gemm_plan(s, beside);
  if (!gemm) return std::nullopt;
  ag_gemm_plan best = plan_of(*gemm);
  int const least = gemm->tile_m > 64 ? 4 : 1;  // steps that ping_pong_gfx942 loads side by side
  best.chunk_k = std::min(std::max(piece / (2 * rows * k_step), least), s.steps_of_shard()) * k_step;
  return best;
}

}  // namespace fusewire
