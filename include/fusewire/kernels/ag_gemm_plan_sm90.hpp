// What the AG+GEMM operator launches for a shape on Hopper.
#pragma once
#include <algorithm>
#include <cmath>

#include <fusewire/kernels/gather_map.hpp>
#include <fusewire/tile/gemm_config_sm90.hpp>

namespace fusewire {

struct ag_gemm_sm90_plan {
  sm90_gemm_config tile = sm90_tiles[0];
  int parts = 1;        // blocks that share a tile, each with its part of k
  int b_in_flight = 0;  // stages of B that are asked for at a time; 0: all
  int b_at_first = 0;   // of the first ones; 0: as many
  int chunk_k = 64;     // columns of A per flag
  int band = 8;         // tile rows that are in flight together
  piece_order::nest pieces = piece_order::nest::by_band;
  bool starts_together = false;  // gather::m: tiles of own rows wait until those of a peer's can start
};

/// Whether to pull. A pull stands less in the way of the multiplications, and its answers and acknowledgements cost a few us: it pays
/// from about 70 us of multiplying on, 25 with one peer, where no tile needs several ranks' rows and the columns are so many that multiplying takes
/// longer than the link, with one peer several times as long. As measured.
constexpr bool pulls_on_sm90(int m, int n, int k, int ranks, gather by) { return by == gather::k && n >= (ranks > 2 ? 1024 : 3072) && 2.0 * m * n * k >= (ranks > 2 ? 45e9 : 15e9); }

/// The plan whose modelled time is least. `clusters(tile, blocks)` is how many clusters of that many blocks are resident at once.
/// The model of a block: it takes its tiles one after the other; it multiplies, B comes out of memory no faster than memory is and no faster to one
/// block than that can ask for it, and what takes longest takes a little longer for the others; sharing a tile costs the exchange of sums. Rates are
/// fitted to one H200: of 64 shapes with up to 15 measured configurations each, what is chosen is the fastest within 1 % in 61 and takes at most 5 %
/// longer in the others, all without turned tiles, whose rates come from some 15 shapes more. Communication is not in the model.
template <class Clusters>
ag_gemm_sm90_plan plan_ag_gemm_sm90(int m, int n, int k, int ranks, gather by, layout b_layout, Clusters clusters) {
  // Per us: of a block; bytes of all and of a block; bytes of a block; us.
  constexpr double flops = 6.5e6, memory = 3.8e6, memory_of_one = 45.6e3, exchange = 17e3, meeting = 1.9;
  int const shards = by == gather::k ? ranks : 1, in_shard = ceil_div(by == gather::k ? k / ranks : k, 64);
  ag_gemm_sm90_plan best;
  double least = 0;
  for (sm90_gemm_config const c : sm90_tiles)
    for (int parts = 1; parts <= 8 && parts <= in_shard; ++parts) {
      if ((c.block_m == 64) != (m <= 64) || !c.suits(b_layout)) continue;  // several rows of small tiles ask more of the L2 than it has
      int const m_tiles = ceil_div(m, c.block_m), tiles = m_tiles * ceil_div(n, c.block_n), at_once = clusters(c, parts);
      if (at_once == 0 || (parts > 1 && tiles > at_once) || !c.can_share(std::min(m, c.block_m), parts)) continue;
      double const steps = double(ceil_div(tiles, at_once)) * shards * ceil_div(in_shard, parts);
      // Narrow tiles multiply more slowly: of the narrowest the operands take all of the shared memory's bandwidth. Turned ones lose by it in long launches only,
      // which run at the power limit. As measured.
      double const turned = 2.0 * m * n * k < 2e11 ? 0.97 : 0.94;
      double const rate = flops * (c.block_m == 64 || c.width() >= 224 ? 1 : c.turned() ? turned : c.width() > 128 ? 0.95 : m_tiles <= 2 ? 0.91 : 0.865);
      bool const straddling = c.block_n % 64 != 0 && b_layout == layout::row_major && parts > 1;  // rows of boxes lie across two lines
      double const step = c.block_m * 64.0 * 2 * c.block_n / rate * (straddling ? 1.25 : 1);
      double const sums = parts == 1 ? 0 : meeting + 4.0 * std::min(m, c.block_m) * c.block_n * (parts - 1) / parts / exchange;
      double const multiplied = steps * step, read = 2.0 * k * n / memory, asked = steps * c.block_n * 128 / m_tiles / memory_of_one;
      double const time = std::pow(std::pow(multiplied, 8) + std::pow(read, 8) + std::pow(asked, 8), 1.0 / 8) + sums;
      if (least != 0 && time >= least) continue;
      least = time;
      best.tile = c;
      best.parts = parts;
      best.pieces = by == gather::k ? piece_order::nest::by_band : tiles <= at_once ? piece_order::nest::by_chunk : piece_order::nest::by_peer;
      double const rows_of_rank = double(m) / ranks / c.block_m;  // of tiles; one rank's after the other's
      best.band = by == gather::k || tiles <= at_once ? 8 : std::max(1, int(std::lround(rows_of_rank / std::ceil(rows_of_rank / 8))));
    }
  sm90_gemm_config const c = best.tile;
  // All tiles run at once. Own rows that start first leave the others a B that is no longer in the L2, if B is larger than that and passes fast (bytes, bytes per us; as measured).
  double const b_bytes = 2.0 * k * n;
  best.starts_together = by == gather::m && ranks > 1 && m / ranks >= c.block_m && best.pieces == piece_order::nest::by_chunk && b_bytes > 64e6 && b_bytes / least > 1.7e6;
  if (m <= 2 * c.block_m) best.b_in_flight = (56 * 1024 + c.b_bytes(b_layout) / 2) / c.b_bytes(b_layout);  // 56 KB of each block keep the memory busy
  // B holds back while the first pieces are read, published and looked for: nobody can multiply before, and they pass it sooner (as measured).
  if (by == gather::m && ranks > 1) best.b_at_first = best.b_in_flight / 2;
  // Pieces as small as their flags and the start of each copy allow: what is asked for first arrives first. Where shards' edges cut rows of tiles, pieces have
  // fewer rows, there are more of them, and a rank's own are among them: at least 128 columns where they have less than 64 rows, or B so few columns that moving
  // takes longer than multiplying; as measured.
  int const of_rank = ceil_div(m, ranks), rows = std::min(c.block_m, of_rank), bytes = ranks > 2 ? 8 * 1024 : 4 * 1024;
  bool const wide = ranks > 1 && (of_rank < 64 || n < (ranks > 2 ? 3072 : 1536)) && m > c.block_m && of_rank % c.block_m != 0 && c.block_m % of_rank != 0;
  best.chunk_k = by == gather::k ? 64 : std::min({std::max(bytes / (2 * rows * 64), wide ? 2 : 1), 4, in_shard}) * 64;
  return best;
}

}  // namespace fusewire
