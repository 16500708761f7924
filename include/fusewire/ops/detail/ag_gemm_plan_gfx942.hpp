// How gfx942 gathers A, apart from its choice of a mainloop.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include <fusewire/ops/detail/ag_gemm_plan.hpp>
#include <fusewire/ops/detail/gather_regimes_gfx942.hpp>
#include <fusewire/gemm/gfx942/gemm_plan.hpp>

namespace fusewire {

/// Whether to pull. Never on gfx942; pull and push have not been compared there by measurements.
constexpr bool pull_is_faster(int, int, int, int, gather) { return false; }

/// The plans of tuned mainloops of gfx942, the shortest modelled time first; none if no tile fits. groups(plan):
/// resident blocks of the plan's kernel, divided by the blocks that share a tile. pulls: also with one rank a block is
/// kept, which acknowledges. comm_blocks: as the caller names them.
template <class Groups>
std::vector<modelled<ag_gemm_plan>> modelled_ag_gemm_plans(gemm_shape const& s, int ranks, gather by, bool pulls,
                                                           int comm_blocks, Groups const& groups) {
  gather_regime const& regime = pulls ? pull_regime_gfx942 : gather_regime_gfx942(by, s.rows);
  int const rows = by == gather::k ? s.rows : ceil_div(s.rows, ranks), steps = s.steps_of_shard();  // of a shard
  auto const resident = [&](gemm_plan p) {
    p.split_k = 1;
    return groups(p);
  };
  auto const plan_of = [&](gemm_plan const& p) {
    int const blocks = s.tiles(p.tile_m, p.tile_n) * p.split_k,
              senders = senders_beside_tiles(regime.senders, inboxes_of_push(by, ranks), blocks, resident(p));
    return ag_gemm_plan{.gemm = p,
                        .chunk_k = chunk_steps(regime, rows, steps, senders) * k_step,
                        .senders_per_peer = senders,
                        .alternating = regime.alternating,
                        .chunks = regime.order};
  };
  auto const overlapped = [&](gemm_plan const& p) {
    int const moving = comm_blocks > 0 ? comm_blocks
                       : ranks == 1    ? int(pulls)
                                       : std::max(1, std::min(resident(p) / 4, plan_of(p).senders(by, ranks)));
    return std::max(0, resident(p) - moving) / p.split_k;
  };
  gemm_shape of_chunks = s;
  of_chunks.link_bytes = ranks > 1 ? 2.0 * s.rows * s.shards * s.k / ranks : 0;
  of_chunks.together = chunk_steps(regime, rows, steps, regime.senders);
  std::vector<modelled<ag_gemm_plan>> all;
  for (auto const& [gemm, us] : modelled_plans(of_chunks, overlapped)) all.push_back({plan_of(gemm), us});
  return all;
}

/// The first of modelled_ag_gemm_plans().
template <class Groups>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const& s, int ranks, gather by, bool pulls, int comm_blocks,
                                               Groups const& groups) {
  return first_of(modelled_ag_gemm_plans(s, ranks, by, pulls, comm_blocks, groups));
}

}  // namespace fusewire
