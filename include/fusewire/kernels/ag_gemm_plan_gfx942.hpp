// How gfx942 gathers, on top of which mainloop it takes.
#pragma once
#include <algorithm>

#include <fusewire/kernels/ag_gemm_plan.hpp>
#include <fusewire/kernels/gemm_plan_gfx942.hpp>

namespace fusewire {

constexpr bool pull_is_faster(int, int, int, int, gather) { return false; }

template <class Groups>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const& s, int ranks, gather by, Groups const& groups) {
  constexpr int piece = 32 * 1024;  // bytes that a block loads at once
  auto const beside = [&](gemm_plan const& p) {
    gemm_plan one = p;
    one.parts = 1;
    int const fit = groups(one), moving = ranks == 1 ? 0 : p.parts > 1 ? 48 : std::min(fit / 4, 8 * ranks);
    return std::max(0, fit - moving) / p.parts;
  };
  auto const gemm = tuned_gemm_plan(s, beside);
  if (!gemm) return std::nullopt;
  ag_gemm_plan best{.gemm = *gemm, .pieces = piece_order::nest::by_chunk};
  int const rows = by == gather::k ? s.rows : ceil_div(s.rows, ranks);
  int const least = gemm->tile_m > 64 ? 8 : 1;  // steps: a block waits for each chunk with nothing else to do
  best.chunk_k = std::min(std::max(piece / (2 * rows * k_step), least), s.steps_of_shard()) * k_step;
  return best;
}

}  // namespace fusewire
