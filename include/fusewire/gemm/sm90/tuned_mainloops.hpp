// The tuned mainloops of Hopper: gemm_sm90 with each of sm90_tiles.
#pragma once
#include <algorithm>

#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/gemm/sm90/tensor_map.hpp>
#include <fusewire/ranks/world.hpp>
#include <fusewire/gemm/sm90/gemm_sm90.hpp>

namespace fusewire {

/// The tuned mainloops of Hopper, as operators choose and launch them. gfx942/tuned_mainloops.hpp has the same names
/// for gfx942.
template <class T>
struct tuned_mainloops {
  static constexpr bool any = true;  // there are some
  /// Which threads of the mainloops communicate.
  static constexpr comm_placement comm = comm_placement::idle_warps;
  /// Those of the mainloops.
  static constexpr auto& tiles = sm90_tiles;
  /// Empty, because blocks that share a tile add up in shared memory.
  struct memory {
    /// With the signature of other mainloops' memory.
    memory(world const&, std::source_location) {}
  };

  /// Whether TMA can read B.
  static bool accepts(std::int64_t, b_operand<T> const& b, int) {
    return is_row_aligned<16>(b.data, b.ld) && b.group_stride % 8 == 0;
  }

  /// An upper bound of the k slices of all tiles of a C of `rows` rows and n columns. A tile has at most 8, and if
  /// tiles have several, each slice has an SM.
  static int max_slices(int rows, int n) {
    constexpr int units = 256;  // no device has more SMs
    int const tiles = ceil_div(rows, rows <= 64 ? 64 : 128) * ceil_div(n, 112);
    return std::max(tiles, std::min(8 * std::min(tiles, units), units));
  }

  /// Calls f.operator()<M>() with the plan's mainloop. I: the first tile to try.
  template <std::size_t I = 0, class F>
  static auto with(gemm_plan const& p, layout b, F f) {
    constexpr sm90_gemm_config tile = sm90_tiles[I];
    if constexpr (I + 1 < std::size(sm90_tiles))
      if (p.tile_m != tile.block_m || p.tile_n != tile.block_n) return with<I + 1>(p, b, f);
    if constexpr (tile.suits(layout::row_major))
      if (b == layout::row_major)
        return f.template operator()<gemm_sm90<T, tile.block_m, tile.block_n, layout::row_major>>();
    return f.template operator()<gemm_sm90<T, tile.block_m, tile.block_n, layout::column_major>>();
  }
  /// Calls f.operator()<M>() once for each mainloop that kernels are instantiated for.
  template <class F>
  static void for_each(F f) {
    for (sm90_gemm_config const tile : sm90_tiles)
      for (layout const b : {layout::row_major, layout::column_major})
        if (tile.suits(b)) with(gemm_plan{.tile_m = tile.block_m, .tile_n = tile.block_n}, b, f);
  }

  /// The operands of a launch of Mainloop with tiles of `rows` rows, the last of which have `last_rows` rows.
  /// Fails: bad_argument; runtime_failure if the driver makes no tensor map.
  template <class Mainloop, int Buffers>
  static sm90_operands<Buffers> operands(matrix<T const> const (&a)[Buffers], b_operand<T> const& b, int k,
                                         bool b_is_constant, gemm_plan const& plan, int rows, int last_rows,
                                         std::source_location where) {
    require(Mainloop::C.can_share(std::min(rows, Mainloop::traits.tile_m), plan.split_k), where, "split-k ",
            plan.split_k, " of a ", Mainloop::traits.tile_m, " x ", Mainloop::traits.tile_n,
            " tile do not fit in shared memory");
    sm90_operands<Buffers> x;
    x.columns = b.n;
    x.b_is_constant = b_is_constant;
    x.stages = Mainloop::stages(rows, last_rows, plan.split_k, plan.b_in_flight);
    x.blocks_of_tile = divisor(plan.split_k);
    for (int i = 0; i < Buffers; ++i) x.a[i] = make_box_maps(a[i], x.stages.rows, x.stages.last_rows, {}, where);
    matrix<T const> const lines =
        b.order == layout::row_major ? matrix<T const>{b.data, k, b.n, b.ld} : matrix<T const>{b.data, b.n, k, b.ld};
    x.b = make_box_maps(lines, Mainloop::b_box_rows, Mainloop::last_b_box_rows(b.n), {b.groups, b.group_stride}, where);
    return x;
  }
};

}  // namespace fusewire
