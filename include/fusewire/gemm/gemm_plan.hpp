// How a launch multiplies: the decisions of a plan, and the shape for which it is made. gemm/mainloop_dispatch.hpp
// chooses the mainloop of a plan.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/gemm/block_config.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// What a caller names of a plan; 0 is chosen by the shape. Tiles of the tuned mainloops: tuned_tiles (gfx942),
/// sm90_tiles (Hopper).
struct gemm_tile {
  int m = 0, n = 0;      // rows and columns
  int split_k = 0;       // blocks that share a tile; each has a slice of k
  bool generic = false;  // of block_mainloop, which multiplies everywhere; else of a tuned mainloop, if one can be
  /// A row's products are added in an order that does not depend on the number of rows, so a row's bits depend on no
  /// other row. Tiles with fewer rows, and blocks that share one, are left out: docs/operators.md has the cost
  bool fixed_order = false;

  /// Nothing is named.
  static gemm_tile const automatic;
  /// Nothing is named but the order: the same bits whatever the batch is.
  static gemm_tile const batch_invariant;
  /// The tiles for which block_mainloop is instantiated. small: small M, many blocks.
  static gemm_tile const small, large;

  /// Whether the caller names something that a tuned mainloop has to keep.
  constexpr bool names_tuned() const { return !generic && (m | n | split_k) != 0; }
  /// Whether a plan with this tile and split_k is what the caller names.
  constexpr bool allows(int tile_m, int tile_n, int tile_split_k) const {
    return (m == 0 || m == tile_m) && (n == 0 || n == tile_n) && (split_k == 0 || split_k == tile_split_k);
  }
  /// Whether two callers name the same.
  constexpr bool operator==(gemm_tile const&) const = default;
};
inline constexpr gemm_tile gemm_tile::automatic{};
inline constexpr gemm_tile gemm_tile::batch_invariant{.fixed_order = true};
inline constexpr gemm_tile gemm_tile::small{small_tile::config.block_m, small_tile::config.block_n, 1, true};
inline constexpr gemm_tile gemm_tile::large{large_tile::config.block_m, large_tile::config.block_n, 1, true};

/// How a product is multiplied: which mainloop, and how many blocks share a tile.
struct gemm_plan {
  bool tuned = false;  // a mainloop of the architecture's own; else block_mainloop, with small_tile or large_tile
  int tile_m = 0, tile_n = 0;           // of a tile
  int split_k = 1;                      // blocks that share a tile; each has a slice of k
  int group_m = 8;                      // M tiles that are in flight together
  int b_in_flight = 0;                  // sm90_stages; 0: as many as there are stages
  char const* why_not_tuned = nullptr;  // the reason, if it is not
};

/// C [shards x rows, n]. The rows of each shard are cut into tiles separately. k is multiplied in k_shards shards, one
/// after the other, each in whole steps.
struct gemm_shape {
  /// Rows of a shard; shards; columns of C; columns of A; shards of k
  int rows, shards, n, k, k_shards;
  layout b_layout;        // of B
  gemm_tile tile{};       // that the caller names
  double link_bytes = 0;  // of A that come over each link while it is multiplied
  int together = 1;       // steps along k that a block takes as a whole, where blocks share a large tile

  /// M tiles of all shards.
  int m_tiles(int tile_m) const { return shards * ceil_div(rows, tile_m); }
  /// Tiles of all shards.
  int tiles(int tile_m, int tile_n) const { return m_tiles(tile_m) * ceil_div(n, tile_n); }
  /// Steps along k of one shard of k.
  int steps_of_shard() const { return ceil_div(k / k_shards, k_step); }
  /// Floating-point operations: a multiplication and an addition each.
  double flops() const { return 2.0 * shards * rows * n * k; }
};

/// Rows of the last tile if `rows` rows are cut into tiles of tile_m rows.
constexpr int last_tile_rows(int rows, int tile_m) { return rows - (ceil_div(rows, tile_m) - 1) * tile_m; }

/// A plan for block_mainloop.
inline gemm_plan plain_gemm_plan(gemm_tile tile, int rows) {
  constexpr int small_m = 64;
  bool const few = !tile.generic && !tile.fixed_order && rows <= small_m;
  gemm_config const c = tile == gemm_tile::small || few ? small_tile::config : large_tile::config;
  return {.tile_m = c.block_m, .tile_n = c.block_n};
}

}  // namespace fusewire
