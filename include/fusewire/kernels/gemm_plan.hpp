// How a launch multiplies: what a plan decides, and the shapes that it is for. kernels/mainloops.hpp leads from a plan
// to a mainloop.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/tile/gemm.hpp>

namespace fusewire {

/// Tiles that are instantiated everywhere. small: few rows, many blocks. automatic: the tuned mainloops of the
/// architecture where there are any.
enum class gemm_tile { automatic, small, large };

struct gemm_plan {
  bool tuned = false;  // a mainloop of the architecture's own; else block_mainloop, with small_tile or large_tile
  int tile_m = 0, tile_n = 0;
  int parts = 1;                        // blocks that share a tile, each with its part of k
  int band = 8;                         // tile rows that are in flight together
  int b_in_flight = 0;                  // sm90_stages; 0: as many as there are stages
  int b_at_first = 0;                   // 0: as b_in_flight
  char const* why_not_tuned = nullptr;  // where it is not
};

/// C [shards x rows, n]: every shard's rows are cut into tiles by themselves. k is multiplied in k_shards parts, one
/// after the other, each in whole steps.
struct gemm_shape {
  int rows, shards, n, k, k_shards;
  layout b_layout;

  int m_tiles(int tile_m) const { return shards * ceil_div(rows, tile_m); }
  int tiles(int tile_m, int tile_n) const { return m_tiles(tile_m) * ceil_div(n, tile_n); }
  int steps_of_shard() const { return ceil_div(k / k_shards, k_step); }
  double flops() const { return 2.0 * shards * rows * n * k; }
};

/// Rows of the last of the tiles that a matrix's rows are cut into.
constexpr int last_tile_rows(int rows, int tile_m) { return rows - (ceil_div(rows, tile_m) - 1) * tile_m; }

/// A plan for block_mainloop.
inline gemm_plan plain_gemm_plan(gemm_tile tile, int rows) {
  constexpr int few_rows = 64;
  gemm_config const c = tile == gemm_tile::small || (tile == gemm_tile::automatic && rows <= few_rows)
                            ? small_tile::config
                            : large_tile::config;
  return {.tile_m = c.block_m, .tile_n = c.block_n};
}

}  // namespace fusewire
