// How Hopper gathers, on top of which mainloop it takes.
#pragma once
#include <fusewire/kernels/ag_gemm_plan.hpp>
#include <fusewire/kernels/gemm_plan_sm90.hpp>

namespace fusewire {

/// Whether to pull. A pull stands less in the way of the multiplications, and its answers and acknowledgements cost a
/// few us: it pays from about 70 us of multiplying on, 25 with one peer, where no tile needs several ranks' rows and
/// the columns are so many that multiplying takes longer than the link, with one peer several times as long. As
/// measured.
constexpr bool pull_is_faster(int m, int n, int k, int ranks, gather by) {
  return by == gather::k && n >= (ranks > 2 ? 1024 : 3072) && 2.0 * m * n * k >= (ranks > 2 ? 45e9 : 15e9);
}

template <class Clusters>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const& s, int ranks, gather by, Clusters const& clusters) {
  gemm_plan_sm90 gemm = plan_gemm_sm90(s, [&](sm90_gemm_config c, int parts) {
    return clusters(gemm_plan{.tuned = true, .tile_m = c.block_m, .tile_n = c.block_n, .parts = parts});
  });
  ag_gemm_plan best;
  int const m = s.rows, n = s.n, tile_m = gemm.tile_m, of_rank = ceil_div(m, ranks);
  if (by == gather::m) {
    best.pieces = gemm.all_at_once ? piece_order::nest::by_chunk : piece_order::nest::by_peer;
    double const rows_of_rank = double(m) / ranks / tile_m;  // of tiles; one rank's after the other's
    if (!gemm.all_at_once) gemm.band = std::max(1, int(std::lround(rows_of_rank / std::ceil(rows_of_rank / 8))));
    // All tiles run at once. Own rows that start first leave the others a B that is no longer in the L2, if B is larger
    // than that and passes fast (bytes, bytes per us; as measured).
    double const b_bytes = 2.0 * s.k * n;
    best.starts_together =
        ranks > 1 && m / ranks >= tile_m && gemm.all_at_once && b_bytes > 64e6 && b_bytes / gemm.us > 1.7e6;
    // B holds back while the first pieces are read, published and looked for: nobody can multiply before, and they pass
    // it sooner (as measured).
    if (ranks > 1) gemm.b_at_first = gemm.b_in_flight / 2;
  }
  // Pieces as small as their flags and the start of each copy allow: what is asked for first arrives first. Where
  // shards' edges cut rows of tiles, pieces have fewer rows, there are more of them, and a rank's own are among them:
  // at least 128 columns where they have less than 64 rows, or B so few columns that moving takes longer than
  // multiplying; as measured.
  int const rows = std::min(tile_m, of_rank), bytes = ranks > 2 ? 8 * 1024 : 4 * 1024;
  bool const wide = ranks > 1 && (of_rank < 64 || n < (ranks > 2 ? 3072 : 1536)) && m > tile_m &&
                    of_rank % tile_m != 0 && tile_m % of_rank != 0;
  best.chunk_k = by == gather::k
                     ? k_step
                     : std::min({std::max(bytes / (2 * rows * k_step), wide ? 2 : 1), 4, s.steps_of_shard()}) * k_step;
  best.gemm = gemm;
  return best;
}

}  // namespace fusewire
