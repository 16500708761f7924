// Shared parts of operators that add up the products of all ranks: which rank owns which rows, the inbox of fp32 sums,
// and how these are added up.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/tile/store_quad.hpp>
#include <fusewire/tile/tiles.hpp>

namespace fusewire {

/// How the rows of C are cut: rank r owns rows [r R, (r + 1) R), R = ceil(M / W); the last ranks may own fewer rows, or
/// none. All rows of a tile row have the same owner. Tile rows are numbered in turns over the ranks that own some, so
/// that tiles that are multiplied at the same time go to different ranks, over different links:
///
///   tile row   0             1             2             3         ...
///   owner      rank 0, 1st   rank 1, 1st   rank 0, 2nd   rank 1, 2nd
struct row_shards {
  int m, per_rank, tile_m, tile_rows;  // rows of C; R; rows of a tile; tile rows of R rows
  int rest;                            // tile rows of the rank that owns fewer than R rows; 0: there is none
  divisor whole, all;                  // ranks that own R rows; ranks that own any

  /// Cuts a C of m rows.
  __host__ __device__ constexpr row_shards(int m, int ranks, int tile_m)
      : m(m), per_rank(ceil_div(m, ranks)), tile_m(tile_m), tile_rows(ceil_div(per_rank, tile_m)),
        rest(ceil_div(m % per_rank, tile_m)), whole(m / per_rank), all(m / per_rank + (rest > 0)) {}

  /// The first row of rank r.
  __host__ __device__ constexpr int first_row(int r) const { return std::int64_t(r) * per_rank < m ? r * per_rank : m; }
  /// Rows of rank r.
  __host__ __device__ constexpr int rows(int r) const {
    return m - first_row(r) < per_rank ? m - first_row(r) : per_rank;
  }
  /// Ranks that own rows: the first ones.
  __host__ __device__ constexpr int owners() const { return all.value(); }
  /// Tile rows of all ranks. None of them is empty.
  __host__ __device__ constexpr int all_tile_rows() const { return whole.value() * tile_rows + rest; }
  /// Tile rows of rank r.
  __host__ __device__ constexpr int tile_rows_of(int r) const { return ceil_div(rows(r), tile_m); }
  /// The rank that owns a tile row.
  __host__ __device__ constexpr int owner(int tile_row) const {
    int const later = tile_row - rest * owners();  // when the rank with fewer rows has no more
    return later < 0 ? tile_row % all : later % whole;
  }
  /// The number of a tile row among those of its owner.
  __host__ __device__ constexpr int nth_of_owner(int tile_row) const {
    int const later = tile_row - rest * owners();
    return later < 0 ? tile_row / all : rest + later / whole;
  }
  /// The first row of a tile row, within its owner's rows.
  __host__ __device__ constexpr int row_in_shard(int tile_row) const { return nth_of_owner(tile_row) * tile_m; }
};

/// Arguments of kernels that add up products, beside their operands.
template <class T>
struct sum_arguments {
  matrix<T> c;        // gemm_rs: [rows of this rank, N]; gemm_ar: [M, N]; gemm_all_scatter: [M, W n]
  row_shards shards;  // which rank owns which rows
  tile_order tiles;   // of all ranks' rows
  int k;              // A is [M, K], B [K, N]
};

/// A tile source: this rank's A [M, K], the launch's buffer 0, cut into the tile rows of row_shards.
class local_shards : public local_rows {
 public:
  /// The block is number `part` of `parts` that share a tile.
  __device__ local_shards(row_shards const& s, int k, int part, divisor const& parts)
      : local_rows(s.m, k, s.tile_m, part, parts), shards_(s) {}
  __device__ int begin(int tile_row) {
    int const owner = shards_.owner(tile_row), row = shards_.row_in_shard(tile_row), left = shards_.rows(owner) - row;
    return begin_at(shards_.first_row(owner) + row, left);
  }

 private:
  row_shards const& shards_;
};
/// All of A is there from the start.
template <>
inline constexpr bool waits_for_all_left<local_shards> = true;

/// A tile sink: the inbox of the rank that owns the tile's rows; this rank is told. An inbox holds [source][rows][N]
/// sums in fp32, in rows of whole 16 bytes. If blocks share a tile, each stores some of its rows and has a flag of its
/// own.
struct owners_inbox {
  channel_epoch const& e;    // of this launch
  row_shards const& shards;  // which rank owns which rows
  int rank, n, n_tiles;      // this rank; columns of C; tiles of a tile row
  int part, parts;           // this block's number; blocks that share a tile

  /// Elements from one row of sums to the next.
  __host__ __device__ static constexpr std::int64_t pitch(int n) { return ceil_div(n, 4) * std::int64_t(4); }

  /// The sums of `source` in the inbox of `owner`.
  __device__ matrix<float> from(int source, int owner) const {
    return {e.inbox<float>(owner) + source * shards.per_rank * pitch(n), shards.rows(owner), n, pitch(n)};
  }
  __device__ matrix<float> at(tile_at t) const {
    // So that the owner's rows have the numbers that they have in the grid of tiles
    int const above = t.m * shards.tile_m - shards.row_in_shard(t.m);
    matrix<float> const c = from(rank, shards.owner(t.m));
    return {c.data - above * c.ld, above + c.rows, n, c.ld};
  }
  /// The first of the `parts` flags, of each source, of a tile in its owner's nth tile row.
  __device__ int flag(int nth, int tile_n) const { return (nth * n_tiles + tile_n) * parts; }
  template <group Group>
  __device__ void stored(Group g, tile_at t) const {
    e.signal(g, shards.owner(t.m), flag(shards.nth_of_owner(t.m), t.n) + part);
  }
  /// Waits for the sums of all sources for a tile in this rank's nth tile row. Called by: every thread of the group.
  template <group Group>
  __device__ void wait(Group g, int ranks, int nth, int tile_n) const {
    for (int p = 0; p < parts; ++p) e.wait(g, 0, ranks - 1, flag(nth, tile_n) + p);
  }
};

namespace detail {

/// Calls visit(r, col) for the first of each 4 neighbouring elements of a tile that begins at (m0, n0). The tile has at
/// most tile_m x tile_n elements, and only those inside rows x cols.
template <group Group, class Visit>
__device__ void for_each_quad(Group g, int m0, int n0, int tile_m, int tile_n, int rows, int cols, Visit const& visit) {
  int const quads = tile_n / 4;
  for (int i = g.rank(); i < tile_m * quads; i += g.size()) {
    int const r = m0 + i / quads, col = n0 + i % quads * 4;
    if (r < rows && col < cols) visit(r, col);
  }
}

/// Sets four elements, from (r, col) on, to epilogue(the sum over sources, in their order), or to NaN if `poisoned`.
/// from(s) is the matrix of source s; cols: columns of C, beyond which elements are zero.
template <class T, class From, class Epilogue>
__device__ void add_sources(T (&four)[4], int sources, From const& from, int r, int col, int cols, bool poisoned,
                            Epilogue const& epilogue) {
  float sum[4] = {};
#pragma unroll 4
  for (int s = 0; s < sources; ++s) {
    float4 const part = *reinterpret_cast<float4 const*>(from(s).at(r, col));
    sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    four[j] = col + j < cols ? T(poisoned ? __builtin_nanf("") : epilogue(sum[j], r, col + j)) : T(0.0f);
}

}  // namespace detail

}  // namespace fusewire
