// What the AG+GEMM operator launches for a shape on Hopper.
#pragma once
#include <algorithm>

#include <fusewire/kernels/gather_map.hpp>
#include <fusewire/tile/gemm_sm90.hpp>

namespace fusewire {

enum class sm90_tile { wide, narrow, square, small };

constexpr sm90_gemm_config config_of(sm90_tile t) {
  switch (t) {
    case sm90_tile::wide: return sm90_wide_tile::config;
    case sm90_tile::narrow: return sm90_narrow_tile::config;
    case sm90_tile::square: return sm90_square_tile::config;
    case sm90_tile::small: return sm90_small_tile::config;
  }
  return {};
}

struct ag_gemm_sm90_plan {
  sm90_tile tile = sm90_tile::wide;
  int parts = 1;        // blocks that share a tile, each with its part of k
  int chunk_k = 64;     // columns of A per flag
  int band = 8;         // tile rows that are in flight together
  piece_order::nest pieces = piece_order::nest::by_band;
};

/// The plan whose modelled time is least. `clusters(tile, blocks)` is how many clusters of that many blocks are resident at once.
/// The model of a block: it takes its tiles one after the other; a step takes the longer of multiplying and loading; all blocks together are
/// no faster than B comes out of memory; and sharing a tile costs the exchange of sums. Rates are fitted to one H200 without
/// communication; it is not in the model yet.
template <class Clusters>
ag_gemm_sm90_plan plan_ag_gemm_sm90(int m, int n, int k, int ranks, gather by, layout b_layout, Clusters clusters) {
  constexpr double flops = 6.2e6, load = 105e3, memory = 4.0e6, exchange = 13e3, meeting = 1;  // per us: of a block, bytes, bytes, bytes; us
  int const shards = by == gather::k ? ranks : 1, in_shard = ceil_div(by == gather::k ? k / ranks : k, 64);
  ag_gemm_sm90_plan best;
  double least = 0;
  for (sm90_tile const tile : {sm90_tile::wide, sm90_tile::narrow, sm90_tile::square, sm90_tile::small})
    for (int parts = 1; parts <= 8 && parts <= in_shard; ++parts) {
      sm90_gemm_config const c = config_of(tile);
      int const tiles = ceil_div(m, c.block_m) * ceil_div(n, c.block_n), at_once = clusters(tile, parts);
      if (at_once == 0 || (parts > 1 && tiles > at_once)) continue;
      double const steps = double(ceil_div(tiles, at_once)) * shards * ceil_div(in_shard, parts);
      bool const straddling = tile == sm90_tile::narrow && b_layout == layout::row_major && parts > 1;  // rows of boxes lie across two lines
      double const step = std::max(c.block_m * 64.0 * 2 * c.block_n / flops, (c.a_bytes() + c.b_bytes(b_layout)) / load) * (straddling ? 1.25 : 1);
      double const sums = parts == 1 ? 0 : meeting + 4.0 * std::min(m, c.block_m) * c.block_n * (parts - 1) / parts / exchange;
      double const time = std::max(steps * step, 2.0 * k * n / memory) + sums;
      if (least != 0 && time >= least) continue;
      least = time;
      best.tile = tile;
      best.parts = parts;
      best.pieces = by == gather::k ? piece_order::nest::by_band : tiles <= at_once ? piece_order::nest::by_chunk : piece_order::nest::by_peer;
    }
  // About as many pieces per peer as there are blocks, so that the first peer's go out before the second's.
  int const block_m = config_of(best.tile).block_m, rows = ceil_div(by == gather::k ? m : ceil_div(m, ranks), block_m);
  // gather::m asks several owners for each: not too many for the lanes that look.
  best.chunk_k = std::clamp(in_shard * rows / 128, by == gather::m && m <= 512 ? std::min(4, in_shard) : 1, in_shard) * 64;
  return best;
}

}  // namespace fusewire
