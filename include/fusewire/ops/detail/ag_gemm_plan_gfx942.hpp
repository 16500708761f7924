// How gfx942 gathers A, beside its choice of a mainloop.
#pragma once
#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include <fusewire/ops/detail/ag_gemm_plan.hpp>
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
  int const rows = by == gather::k ? s.rows : ceil_div(s.rows, ranks);  // of a shard
  bool const by_rows = by == gather::m;
  // With gather::k and 64 rows a wave waits for one rank after the other: all waves together bring the first earlier
  auto const in_turns = [&](int tile_m) { return !pulls && (tile_m > 64 || (tile_m == 64 && by_rows)); };
  auto const fit = [&](gemm_plan p) {  // resident blocks
    p.parts = 1;
    return groups(p);
  };
  constexpr int piece = 32 * 1024;  // bytes that a block loads at once
  int const of_shard = s.steps_of_shard(), step = 2 * rows * k_step;
  // Blocks that move pieces for each peer. Where groups of waves take turns, one keeps a link busy. With gather::m two
  // or three raise flags earlier: with few rows up to 16 of a rank; with large tiles where ranks share tile rows or
  // there is one link. Without turns: with few rows up to eight, or with gather::k and pushes up to sixteen, one for
  // each piece; fewer if that leaves room for all tiles at once
  auto const senders_per_peer = [&](gemm_plan const& p) {
    bool const large = p.tile_m > 64;
    if (in_turns(p.tile_m)) {
      if (!by_rows) return 1;
      if (!large) return rows <= 16 ? 3 : 1;
      bool const own_tile_rows = rows % p.tile_m == 0;
      return own_tile_rows && ranks > 2 ? 1 : rows <= 32 ? 3 : 2;
    }
    if (large) return 4;
    int const left = (fit(p) - s.tiles(p.tile_m, p.tile_n) * p.parts) / std::max(1, ranks - 1),
              most = by_rows || pulls ? 8 : std::clamp(ceil_div(of_shard, std::max(1, piece / step)), 8, 16);
    return left > 0 ? std::min(left, most) : most;
  };
  // Steps along k of a chunk. Small pieces raise their flags earlier, as long as each has a moving block of its own, or
  // groups of waves push them in turns. With gather::k and two ranks smaller ones are slower
  auto const steps_of_chunk = [&](gemm_plan const& p) {
    bool const few = p.tile_m <= 64,
               own_block = few && !pulls && !in_turns(p.tile_m) && (by_rows || (rows > 32 && ranks > 2));
    int const bytes = pulls                              ? piece
                      : !by_rows                         ? piece / (own_block ? 2 : 1)
                      : few && (rows <= 16 || own_block) ? piece / 4
                                                         : piece / 2,
              ping_pong = 4;  // steps that ping_pong_gfx942 loads side by side
    int const least = own_block ? ceil_div(of_shard, senders_per_peer(p))
                      : few     ? 1
                                : ping_pong,
              most = !own_block ? of_shard
                     : by_rows  ? ceil_div(of_shard, ceil_div(senders_per_peer(p), 2))
                                : std::max(1, piece / step),
              steps = std::min(std::max(bytes / step, least), most);
    // In turns, a power of two of threads has a row of a piece, and idles in part with other chunks. If k is a power of
    // two, so are the steps that a wave multiplies: these are then whole chunks
    return few && by_rows && in_turns(p.tile_m) ? int(std::bit_floor(unsigned(steps))) : steps;
  };
  auto const plan_of = [&](gemm_plan const& p) {
    // The own inbox has senders, too, where ranks share tile rows
    return ag_gemm_plan{.gemm = p,
                        .chunk_k = steps_of_chunk(p) * k_step,
                        .senders_per_peer = senders_per_peer(p),
                        .senders_for_local = in_turns(p.tile_m) && by_rows,
                        .in_turns = in_turns(p.tile_m),
                        .pieces = p.tile_m > 64 ? piece_order::nest::by_row : piece_order::nest::by_chunk};
  };
  auto const beside = [&](gemm_plan const& p) {
    int const small_m_moving = 48, moving = comm_blocks > 0 ? comm_blocks
                                            : ranks == 1    ? int(pulls)
                                            : p.parts > 1 && p.tile_m <= 64 && !in_turns(p.tile_m)
                                                ? small_m_moving
                                                : std::max(1, std::min(fit(p) / 4, plan_of(p).senders(ranks)));
    return std::max(0, fit(p) - moving) / p.parts;
  };
  gemm_shape of_pieces = s;
  of_pieces.link_bytes = ranks > 1 ? 2.0 * s.rows * s.shards * s.k / ranks : 0;
  of_pieces.together = steps_of_chunk({.tile_m = 128, .tile_n = 128});
  std::vector<modelled<ag_gemm_plan>> all;
  for (auto const& [gemm, us] : modelled_plans(of_pieces, beside)) all.push_back({plan_of(gemm), us});
  return all;
}

/// The first of modelled_ag_gemm_plans().
template <class Groups>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const& s, int ranks, gather by, bool pulls, int comm_blocks,
                                               Groups const& groups) {
  return first_of(modelled_ag_gemm_plans(s, ranks, by, pulls, comm_blocks, groups));
}

}  // namespace fusewire
