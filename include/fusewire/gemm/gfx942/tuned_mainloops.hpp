// The tuned mainloops of gfx942: small_m_gfx942 and ping_pong_gfx942, with each of tuned_tiles.
#pragma once
#include <algorithm>
#include <iterator>

#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/launch/operator_memory.hpp>
#include <fusewire/gemm/gfx942/small_m_gfx942.hpp>
#include <fusewire/gemm/gfx942/ping_pong_gfx942.hpp>

namespace fusewire {

/// A tile, and the layout of B that its mainloop reads.
struct tile_config {
  int block_m, block_n;  // rows and columns
  layout b;              // of B
  double busy = 0;       // tiles for many rows: share of the loop's time in which matrix units work, projected

  /// Whether the tile is for small_m_gfx942; else it is for ping_pong_gfx942.
  constexpr bool for_few_rows() const { return block_m <= 64; }
  /// Whether a row's products are added as with any other such tile: each half of a block's waves has one slice of
  /// every step. Tiles for small M divide k among the waves, larger ones do not divide it.
  constexpr bool fixed_order() const { return !for_few_rows() && has_room_for_two_steps(block_m, block_n); }
  /// Whether the mainloop reads a B that lies so.
  constexpr bool suits(layout order) const { return b == order; }
};
/// Tiles for which kernels are instantiated: those for small M, then those for large M.
inline constexpr tile_config tuned_tiles[] = {{16, 16, layout::column_major},
                                              {32, 32, layout::column_major},
                                              {64, 32, layout::column_major},
                                              {16, 64, layout::row_major},
                                              {64, 64, layout::row_major},
                                              {128, 96, layout::column_major, 0.75},
                                              {128, 112, layout::column_major, 0.76},
                                              {128, 128, layout::column_major, 0.8},
                                              {256, 128, layout::column_major, 0.7},
                                              {256, 192, layout::column_major, 0.84},
                                              {128, 128, layout::row_major, 0.75},
                                              {256, 128, layout::row_major, 0.7}};

/// Device memory in which blocks that share a tile add up. It is for one operator on one device, whose launches do not
/// overlap.
class split_memory {
 public:
  /// Allocates and clears on the world's device. Fails: runtime_failure; bad_argument where the world's stream is being
  /// captured.
  split_memory(world const& w, std::source_location where)
      : memory_(w, split_k_workspace::bytes, "sums of shared tiles", where) {
    w.fill(sums().words(), 0xff, split_k_workspace::word_bytes, "words of shared tiles", where);
    w.fill(sums().tickets, 0, split_k_workspace::ticket_bytes, "tickets of shared tiles", where);
  }
  /// The memory as kernels take it.
  split_k_workspace sums() const { return split_k_workspace::in(memory_.get()); }

 private:
  operator_memory memory_;
};

/// The tuned mainloops of gfx942, as operators choose and launch them. sm90/tuned_mainloops.hpp has the same names for
/// Hopper.
template <class T>
struct tuned_mainloops {
  static constexpr bool any = true;  // there are some
  /// Which threads of the mainloops communicate.
  static constexpr comm_placement comm = comm_placement::leading_blocks;
  /// Those of the mainloops.
  static constexpr auto& tiles = tuned_tiles;
  using memory = split_memory;  // of blocks that share a tile

  /// Whether the mainloops can load A and B [k, n] in aligned words of 16 bytes, at offsets of 32 bits. Those of
  /// detail::pusher, in A and in an inbox, are of up to 4096 rows.
  static bool accepts(std::int64_t a_ld, b_operand<T> const& b, int k) {
    constexpr int max_ld = 1 << 22, max_a_ld = 1 << 18;
    return is_row_aligned<16>(b.data, b.ld) && b.group_stride % 8 == 0 && a_ld < max_a_ld && b.ld < max_ld &&
           k < max_a_ld && (b.order == layout::column_major || k * b.ld < 1 << 30);
  }

  /// An upper bound of the k slices of all tiles of a C of `rows` rows and n columns.
  static int max_slices(int rows, int n) {
    return std::max(ceil_div(rows, rows <= 16   ? 16
                                   : rows <= 32 ? 32
                                                : 64) *
                        ceil_div(n, 16),
                    split_k_workspace::blocks);
  }

  /// Calls f.operator()<M>() with the plan's mainloop. I: the first tile to try.
  template <std::size_t I = 0, class F>
  static auto with(gemm_plan const& p, layout b, F f) {
    constexpr tile_config tile = tuned_tiles[I];
    if constexpr (I + 1 < std::size(tuned_tiles))
      if (p.tile_m != tile.block_m || p.tile_n != tile.block_n || b != tile.b) return with<I + 1>(p, b, f);
    if constexpr (tile.for_few_rows())
      return f.template operator()<small_m_gfx942<T, tile.block_m, tile.block_n, tile.b>>();
    else return f.template operator()<ping_pong_gfx942<T, tile.block_m, tile.block_n, tile.b>>();
  }
  /// Calls f.operator()<M>() once for each mainloop that kernels are instantiated for.
  template <class F>
  static void for_each(F f) {
    for (tile_config const tile : tuned_tiles)
      with(gemm_plan{.tile_m = tile.block_m, .tile_n = tile.block_n}, tile.b, f);
  }
};

}  // namespace fusewire
