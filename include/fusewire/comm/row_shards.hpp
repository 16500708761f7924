// Which rank owns which rows of C, and a source whose tiles follow that order.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// How the rows of C are cut: rank r owns ceil_slice(M, W, r), R = ceil(M / W) rows; the last ranks may own fewer, or
/// none. All rows of a M tile have the same owner. M tiles are numbered round robin over the ranks that own some,
/// so that tiles that are multiplied at the same time go to different ranks, over different links:
///
///   M tile   0             1             2             3         ...
///   owner      rank 0, 1st   rank 1, 1st   rank 0, 2nd   rank 1, 2nd
struct row_shards {
  int m, per_rank, tile_m, m_tiles;  // rows of C; R; rows of a tile; M tiles of R rows
  int rest;                          // M tiles of the rank that owns fewer than R rows; 0: there is none
  divisor whole, all;                // ranks that own R rows; ranks that own any

  /// Cuts a C of m rows.
  __host__ __device__ constexpr row_shards(int m, int ranks, int tile_m)
      : m(m), per_rank(ceil_div(m, ranks)), tile_m(tile_m), m_tiles(ceil_div(per_rank, tile_m)),
        rest(ceil_div(m % per_rank, tile_m)), whole(m / per_rank), all(m / per_rank + (rest > 0)) {}

  /// The first row of rank r.
  __host__ __device__ constexpr int first_row(int r) const { return fixed_slice(m, per_rank, r).begin; }
  /// Rows of rank r.
  __host__ __device__ constexpr int rows(int r) const { return fixed_slice(m, per_rank, r).size(); }
  /// Ranks that own rows: the first ones.
  __host__ __device__ constexpr int owners() const { return all.value(); }
  /// M tiles of all ranks. None of them is empty.
  __host__ __device__ constexpr int all_m_tiles() const { return whole.value() * m_tiles + rest; }
  /// M tiles of rank r.
  __host__ __device__ constexpr int m_tiles_of(int r) const { return ceil_div(rows(r), tile_m); }
  /// The rank that owns a M tile.
  __host__ __device__ constexpr int owner(int m_tile) const {
    int const later = m_tile - rest * owners();  // when the rank with fewer rows has no more
    return later < 0 ? m_tile % all : later % whole;
  }
  /// The number of a M tile among those of its owner.
  __host__ __device__ constexpr int nth_of_owner(int m_tile) const {
    int const later = m_tile - rest * owners();
    return later < 0 ? m_tile / all : rest + later / whole;
  }
  /// The first row of a M tile, within its owner's rows.
  __host__ __device__ constexpr int row_in_shard(int m_tile) const { return nth_of_owner(m_tile) * tile_m; }
};

/// Arguments of kernels that reduce products, in addition to their operands.
template <class T>
struct sum_arguments {
  matrix<T> c;         // gemm_rs: [rows of this rank, N]; gemm_ar: [M, N]; gemm_all_scatter: [M, W n]
  row_shards shards;   // how tiles cut the rows of C
  divisor per_rank;    // R: rank r owns rows [r R, (r + 1) R) of the sum
  raster_order tiles;  // of all ranks' rows
  int k;               // A is [M, K], B [K, N]
};

/// A tile source: this rank's A [M, K], the launch's buffer 0, cut into the M tiles of row_shards.
class local_shards : public local_rows {
 public:
  /// k: columns of A; slice: of the tiles' k.
  __device__ local_shards(row_shards const& s, int k, k_slice const& slice)
      : local_rows(s.m, k, s.tile_m, slice), shards_(s) {}
  __device__ int begin(tile_coord t) {
    int const owner = shards_.owner(t.m), row = shards_.row_in_shard(t.m), left = shards_.rows(owner) - row;
    return begin_at(shards_.first_row(owner) + row, left);
  }

 private:
  row_shards const& shards_;
};
/// All of A is there from the start.
template <>
inline constexpr bool whole_segments<local_shards> = true;

}  // namespace fusewire
