// What a launch of the Hopper mainloop is made of: the sizes of its tiles and the stages in its shared memory.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Everything tunable about the mainloop. A step along k is 64 elements, which is what 128-byte swizzling holds.
struct sm90_gemm_config {
  /// A block's tile, at most: 64 rows for each of one or two multiplying warpgroups; in swap-AB, 64 columns for each of
  /// two
  int block_m = 128, block_n = 256;

  bool operator==(sm90_gemm_config const&) const = default;

  static constexpr int max_stages = 16;
  static constexpr int b_start = 8;  // stages of B that count as the first; see sm90_stages
  static constexpr int warp_staging_bytes = 16 * 64 * 2;
  /// Whether a warpgroup has 64 of its columns; then there are 128, and the rows are a multiple of 16.
  __host__ __device__ constexpr bool swap_ab() const { return block_m > 128; }
  // That multiply, 64 rows or columns each
  __host__ __device__ constexpr int warpgroups() const { return (swap_ab() ? block_n : block_m) / 64; }
  // Of what a warpgroup multiplies 64 rows or columns with
  __host__ __device__ constexpr int width() const { return swap_ab() ? block_m : block_n; }
  __host__ __device__ constexpr int staging_bytes() const { return warpgroups() * 4 * warp_staging_bytes; }
  /// A row-major B comes in pieces of 64 columns, the last of which may be needed in part only.
  __host__ __device__ constexpr int b_bytes(layout b) const {
    return (b == layout::row_major ? ceil_div(block_n, 64) * 64 : block_n) * 128;
  }  // of a stage
  /// Whether kernels are instantiated for it: of a row-major B, which comes in boxes of 64 columns, tiles of 112, 144
  /// and 176 are slower than others.
  __host__ __device__ constexpr bool suits(layout b) const { return b == layout::column_major || block_n % 32 == 0; }
  __host__ __device__ constexpr int threads() const { return 128 + warpgroups() * 128; }
  __host__ __device__ constexpr int stage_bytes() const {
    return platform::max_shared_bytes - 1008 - staging_bytes() - (max_stages * 3 + 2) * 8;
  }
  __host__ __device__ constexpr int shared_bytes() const { return platform::max_shared_bytes; }
  // Floats: rows of sums begin in different banks
  __host__ __device__ constexpr int sum_pitch() const { return block_n + (swap_ab() ? 4 : 8); }
  __host__ __device__ constexpr int row_bytes() const { return sum_pitch() * 4; }  // of a row of sums
  /// Whether a tile of that many rows can be shared by that many parts: a block's sums, and what others send it, lie in
  /// place of the stages.
  __host__ __device__ constexpr bool can_share(int rows, int parts) const {
    return parts == 1 || (rows + (parts - 1) * ceil_div(rows, parts)) * sum_pitch() * 4 <= stage_bytes();
  }
};

/// What kernels are instantiated for. Many columns make the most of what is loaded; other sizes where they leave fewer
/// blocks idle.
inline constexpr sm90_gemm_config sm90_tiles[] = {{128, 256}, {128, 224}, {128, 192}, {128, 176}, {128, 144},
                                                  {128, 128}, {128, 112}, {64, 128},  {64, 112},  {160, 128}};

/// The stages of a launch: where there are fewer rows than a tile has, they are smaller, and more. Multiplications read
/// block_m rows of every stage all the same; what lies behind the last is B. What the last tile's boxes leave of a
/// stage may be anything: it is multiplied into sums of rows and columns that C does not have, which nobody stores.
struct sm90_stages {
  int rows;       // of A, that TMA loads: a multiple of 8, at most block_m
  int last_rows;  // the same of tiles that have no more: the last ones of a matrix, or of a shard
  int of_a;       // how many; A comes from the L2 and needs no more than B
  int of_b;
  /// Of B at a time: what more is asked for while B comes from memory is not there sooner, and A must queue behind it
  int b_in_flight;
  /// The same for the first b_start stages, so that the first pieces of A do not queue behind B. Not 0: warp 1 would
  /// wait for a load that was never issued.
  int b_at_first;
};

/// Rows of a tile's boxes where `left` rows of the matrix are left: as many as there are, rounded up to the 8 that
/// swizzling goes by.
__host__ __device__ constexpr int box_rows(int left, int tile_rows) {
  return left < tile_rows ? ceil_div(left, 8) * 8 : tile_rows;
}
__host__ __device__ constexpr int last_box_rows(int extent, int tile_rows) {
  return box_rows(extent - (ceil_div(extent, tile_rows) - 1) * tile_rows, tile_rows);
}

}  // namespace fusewire
