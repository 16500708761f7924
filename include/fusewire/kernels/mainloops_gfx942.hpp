// The tuned mainloops of gfx942: few_rows_gfx942 with each of few_rows_tiles, and split_gemm_gfx942.
#pragma once
#include <algorithm>
#include <iterator>
#include <memory>

#include <fusewire/kernels/gemm_plan.hpp>
#include <fusewire/runtime/world.hpp>
#include <fusewire/tile/few_rows_gfx942.hpp>
#include <fusewire/tile/split_gemm_gfx942.hpp>

namespace fusewire {

/// A tile that few_rows_gfx942 is instantiated for, and the layout of B that it reads.
struct few_rows_config {
  int block_m, block_n;
  layout b;
};
inline constexpr few_rows_config few_rows_tiles[] = {{16, 16, layout::column_major},
                                                     {32, 32, layout::column_major},
                                                     {64, 32, layout::column_major},
                                                     {16, 64, layout::row_major},
                                                     {64, 64, layout::row_major}};

/// Device memory in which blocks that share a tile add up, for one operator on one device: launches of it do not
/// overlap.
class split_memory {
 public:
  /// Blocks that share tiles, and sums of one of them.
  static constexpr int blocks = 304, sums_of_block = 128 * 128;

  explicit split_memory(std::source_location where) {
    constexpr std::size_t bytes = std::size_t(blocks) * (sums_of_block * sizeof(float) + sizeof(unsigned));
    void* p = nullptr;
    check_hip(hipMalloc(&p, bytes), "hipMalloc(sums of blocks that share a tile)", where);
    memory_.reset(p);
    check_hip(hipMemset(p, 0, bytes), "hipMemset(sums of blocks that share a tile)", where);
  }
  part_sums sums() const {
    auto* const words = static_cast<unsigned long long*>(memory_.get());
    return {words, reinterpret_cast<unsigned*>(words + blocks * (sums_of_block / 2))};
  }

 private:
  struct free_memory {
    void operator()(void* p) const { (void)hipFree(p); }
  };
  std::unique_ptr<void, free_memory> memory_;
};

template <class T>
struct tuned_mainloops {
  static constexpr bool any = true;
  using memory = split_memory;

  /// Whether lanes can load 16 bytes of B side by side, at an offset of 32 bits.
  static bool accepts(b_operand<T> const& b) {
    return (b.ld % 8 | std::int64_t(reinterpret_cast<std::uintptr_t>(b.data) & 15)) == 0 && b.ld < 1 << 22;
  }

  static int max_parts(int rows, int n) {
    return std::max(ceil_div(rows, rows <= 16 ? 16 : rows <= 32 ? 32 : 64) * ceil_div(n, 16), split_memory::blocks);
  }

  /// Calls f.operator()<M>() with the plan's mainloop, of the tiles from the I-th on.
  template <std::size_t I = 0, class F>
  static auto with(gemm_plan const& p, layout b, F f) {
    constexpr few_rows_config tile = few_rows_tiles[I];
    if (p.tile_m == large_tile::config.block_m) return f.template operator()<split_gemm_gfx942<T, large_tile>>();
    if constexpr (I + 1 < std::size(few_rows_tiles))
      if (p.tile_m != tile.block_m || p.tile_n != tile.block_n || b != tile.b) return with<I + 1>(p, b, f);
    return f.template operator()<few_rows_gfx942<T, tile.block_m, tile.block_n, tile.b>>();
  }
  template <class F>
  static void for_each(F f) {
    f.template operator()<split_gemm_gfx942<T, large_tile>>();
    for (few_rows_config const tile : few_rows_tiles)
      with(gemm_plan{.tile_m = tile.block_m, .tile_n = tile.block_n}, tile.b, f);
  }
};

}  // namespace fusewire
