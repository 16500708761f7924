// How Hopper gathers, on top of which mainloop it takes.
#pragma once
#include <fusewire/ops/detail/ag_gemm_plan.hpp>
#include <fusewire/gemm/sm90/gemm_plan.hpp>

namespace fusewire {

namespace detail {
/// What the plan of a gather knows of H200s, as measured; `pair`: of a world of two ranks.
struct gather_rates_sm90 {
  /// Floating-point operations, and columns of B, from which on a pull pays: about 70 us of multiplying, 25 with one
  /// peer, and longer than the link takes.
  static constexpr double pull_flops = 45e9, pull_flops_of_pair = 15e9;
  static constexpr int pull_columns = 1024, pull_columns_of_pair = 3072;
  static constexpr int chunk_bytes = 8 * 1024,
                       chunk_bytes_of_pair = 4 * 1024;  // bytes: smaller ones do not arrive sooner
  static constexpr int max_steps_of_chunk = 4;
  /// Fewer columns of B are multiplied sooner than A is moved; chunks with fewer rows cost too many flags.
  static constexpr int few_columns = 3072, few_columns_of_pair = 1536, few_rows_of_chunk = 64;
  static constexpr int max_group_m = 8;  // M tiles of one rank, where not all tiles run concurrently
};
}  // namespace detail

/// Whether to pull. A pull stands less in the way of the multiplications, and its answers and acknowledgements cost a
/// few us: it pays where no tile needs several ranks' rows, and multiplying takes long enough.
constexpr bool pull_is_faster(int m, int n, int k, int ranks, gather by) {
  using at = detail::gather_rates_sm90;
  return by == gather::k && n >= (ranks > 2 ? at::pull_columns : at::pull_columns_of_pair) &&
         2.0 * m * n * k >= (ranks > 2 ? at::pull_flops : at::pull_flops_of_pair);
}

/// The plan of gemm_sm90, none where no tile fits. `clusters(plan)`: resident clusters of the plan's kernel.
template <class Clusters>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const& s, int ranks, gather by, bool, int,
                                               Clusters const& clusters) {
  gemm_plan_sm90 gemm = plan_gemm_sm90(s, [&](sm90_gemm_config c, int split_k) {
    return clusters(gemm_plan{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .split_k = split_k});
  });
  if (s.tile.names_tuned() && gemm.us == 0) return std::nullopt;
  using at = detail::gather_rates_sm90;
  ag_gemm_plan best;
  int const m = s.rows, n = s.n, tile_m = gemm.tile_m, of_rank = ceil_div(m, ranks);
  if (by == gather::m) {
    best.chunks = gemm.all_at_once ? chunk_order::nest::by_k_chunk : chunk_order::nest::by_peer;
    double const rows_of_rank = double(m) / ranks / tile_m;  // of tiles; one rank's after the other's
    if (!gemm.all_at_once)
      gemm.group_m = std::max(1, int(std::lround(rows_of_rank / std::ceil(rows_of_rank / at::max_group_m))));
  }
  // Chunks as small as their flags and the start of each copy allow: what is issued first arrives first. Where
  // shards' edges cut rows of tiles, chunks have fewer rows, there are more of them, and a rank's own are among them:
  // at least 128 columns where they have less than 64 rows, or B so few columns that moving takes longer than
  // multiplying; as measured.
  int const rows = std::min(tile_m, of_rank), bytes = ranks > 2 ? at::chunk_bytes : at::chunk_bytes_of_pair,
            few_columns = ranks > 2 ? at::few_columns : at::few_columns_of_pair;
  bool const wide = ranks > 1 && (of_rank < at::few_rows_of_chunk || n < few_columns) && m > tile_m &&
                    of_rank % tile_m != 0 && tile_m % of_rank != 0;
  best.chunk_k = by == gather::k ? k_step
                                 : std::min({std::max(bytes / (2 * rows * k_step), wide ? 2 : 1),
                                             at::max_steps_of_chunk, s.steps_of_shard()}) *
                                       k_step;
  best.gemm = gemm;
  return best;
}

}  // namespace fusewire
