// The configuration of a launch of the Hopper mainloop: the size of its tiles and the stages in its shared memory.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Elements along k of a step, and of a stage: the 128 bytes of a swizzled row.
inline constexpr int sm90_step = 64;

/// Everything tunable about the mainloop.
struct sm90_gemm_config {
  /// Size of a block's tile: 64 rows for each of one or two multiplying warpgroups; in swap-AB 64 columns for each of
  /// two
  int block_m = 128, block_n = 256;

  bool operator==(sm90_gemm_config const&) const = default;

  /// The most stages of A, and of B: the barriers have room for as many.
  static constexpr int max_stages = 16;
  /// Epilogue staging of one warp: 16 rows of 64 columns, of 16 bits each.
  static constexpr int warp_staging_bytes = 16 * 64 * 2;
  /// Whether a warpgroup multiplies 64 of the tile's columns instead of 64 rows. The tile then has 128 columns, and its
  /// rows are a multiple of 16.
  __host__ __device__ constexpr bool swap_ab() const { return block_m > 128; }
  /// Warpgroups that multiply, 64 rows or columns each.
  __host__ __device__ constexpr int warpgroups() const { return (swap_ab() ? block_n : block_m) / 64; }
  /// The side of the tile that one instruction covers completely; the other is cut into 64 for each warpgroup.
  __host__ __device__ constexpr int width() const { return swap_ab() ? block_m : block_n; }
  /// Epilogue staging of all multiplying warps.
  __host__ __device__ constexpr int staging_bytes() const { return warpgroups() * 4 * warp_staging_bytes; }
  /// Bytes of a stage of B. A row-major B comes in boxes of 64 columns, and of the last one a part may be unused.
  __host__ __device__ constexpr int b_bytes(layout b) const {
    return (b == layout::row_major ? ceil_div(block_n, 64) * 64 : block_n) * 128;
  }
  /// Whether kernels are instantiated for this tile and layout. Not for a row-major B, in boxes of 64 columns, and
  /// tiles of 112, 144 or 176 columns: they are slower than others.
  __host__ __device__ constexpr bool suits(layout b) const { return b == layout::column_major || block_n % 32 == 0; }
  /// Threads of a block: a warpgroup that loads, and those that multiply.
  __host__ __device__ constexpr int threads() const { return 128 + warpgroups() * 128; }
  /// Bytes for stages: shared memory without staging, barriers and alignment.
  __host__ __device__ constexpr int stage_bytes() const {
    return platform::max_shared_bytes - 1008 - staging_bytes() - (max_stages * 3 + 2) * 8;
  }
  /// Shared memory of a block, in bytes: all that there is.
  __host__ __device__ constexpr int shared_bytes() const { return platform::max_shared_bytes; }
  /// Floats from one row of partial sums to the next, so that rows begin in different banks.
  __host__ __device__ constexpr int sum_pitch() const { return block_n + (swap_ab() ? 4 : 8); }
  __host__ __device__ constexpr int row_bytes() const { return sum_pitch() * 4; }  // of a row of sums
  /// Whether `split_k` blocks can share a tile of `rows` rows: a block's sums, and those that others send it, must fit
  /// in place of the stages.
  __host__ __device__ constexpr bool can_share(int rows, int split_k) const {
    return split_k == 1 || (rows + (split_k - 1) * ceil_slice(rows, split_k, 0).size()) * row_bytes() <= stage_bytes();
  }
};

/// Tiles for which kernels are instantiated. Wide tiles use loaded data most often; other sizes are for shapes in which
/// they leave fewer blocks idle.
inline constexpr sm90_gemm_config sm90_tiles[] = {{128, 256}, {128, 224}, {128, 192}, {128, 176}, {128, 144},
                                                  {128, 128}, {128, 112}, {64, 128},  {64, 112},  {160, 128}};

/// The stages of a launch. If the matrix has fewer rows than a tile, stages of A are smaller, and there are more of
/// them. Multiplications read block_m rows of every stage all the same; behind the last stage of A lies B. The part of
/// a stage that the last tile's smaller boxes do not fill may hold anything: it is multiplied into sums of rows and
/// columns that C does not have, and these are not stored.
struct sm90_stages {
  int rows;       // rows of A that TMA loads: a multiple of 8, at most block_m
  int last_rows;  // the same for tiles with fewer rows: the last ones of a matrix, or of a shard
  int of_a;       // stages of A; A comes from the L2 and needs no more than B
  int of_b;       // stages of B
  /// Loads of B in flight at a time: more would not arrive sooner while B comes from memory, and A would queue behind
  /// them. Not 0: warp 1 would wait for a load that was never issued.
  int b_in_flight;
};

/// Rows of a tile's boxes if the matrix has `left` more rows: at most as many, rounded up to the 8 rows of a swizzle.
__host__ __device__ constexpr int box_rows(int left, int m_tiles) {
  return left < m_tiles ? ceil_div(left, 8) * 8 : m_tiles;
}
/// Rows of the boxes of the last tile of `extent` rows.
__host__ __device__ constexpr int last_box_rows(int extent, int m_tiles) {
  return box_rows(extent - (ceil_div(extent, m_tiles) - 1) * m_tiles, m_tiles);
}

}  // namespace fusewire
