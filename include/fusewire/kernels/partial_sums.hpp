// What operators that add up the products of all ranks share: who owns which rows, the inbox of fp32 sums, and how they
// are added.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/tile/tiles.hpp>

namespace fusewire {

/// How the rows of C are cut: rank r owns rows [r R, (r + 1) R), R = ceil(M / W); the last ranks may own fewer rows, or
/// none. A tile row is one rank's.
struct row_shards {
  int m, per_rank, tile_m, tile_rows;  // tile_rows: of R rows

  __host__ __device__ constexpr row_shards(int m, int ranks, int tile_m)
      : m(m), per_rank(ceil_div(m, ranks)), tile_m(tile_m), tile_rows(ceil_div(per_rank, tile_m)) {}

  __host__ __device__ constexpr int first_row(int r) const { return std::int64_t(r) * per_rank < m ? r * per_rank : m; }
  __host__ __device__ constexpr int rows(int r) const {
    return m - first_row(r) < per_rank ? m - first_row(r) : per_rank;
  }
  /// Of all ranks, and of one. Tile rows are numbered rank after rank, and none has no rows.
  __host__ __device__ constexpr int all_tile_rows() const {
    return m / per_rank * tile_rows + ceil_div(m % per_rank, tile_m);
  }
  __host__ __device__ constexpr int tile_rows_of(int r) const { return ceil_div(rows(r), tile_m); }
  __host__ __device__ constexpr int owner(int tile_row) const { return tile_row / tile_rows; }
  /// Within its owner's rows.
  __host__ __device__ constexpr int row_in_shard(int tile_row) const { return tile_row % tile_rows * tile_m; }
};

template <class T>
struct sum_arguments {
  matrix<T> c;  // of gemm_rs [rows of this rank, N], of gemm_ar [M, N]
  row_shards shards;
  tile_order tiles;  // of all ranks' rows
  int k;             // A is [M, K], B [K, N]
};

/// A tile source: this rank's A [M, K], the launch's buffer 0, by the tile rows of row_shards.
class local_shards : public local_rows {
 public:
  __device__ local_shards(row_shards const& s, int k, int part, divisor const& parts)
      : local_rows(s.m, k, s.tile_m, part, parts), shards_(s) {}
  __device__ int begin(int tile_row) {
    int const owner = shards_.owner(tile_row), row = shards_.row_in_shard(tile_row), left = shards_.rows(owner) - row;
    return begin_at(shards_.first_row(owner) + row, left);
  }

 private:
  row_shards const& shards_;
};

/// A tile sink: the inbox of the rank that owns the tile's rows, which is told. Holds [source][rows][N] sums in fp32,
/// rows of whole 16 bytes. Each block of those that share a tile stores some of its rows, and has a flag of its own.
struct owners_inbox {
  channel_epoch const& e;
  row_shards const& shards;
  int rank, n, n_tiles;
  int part, parts;  // this block, of those that share a tile

  __host__ __device__ static constexpr std::int64_t pitch(int n) { return ceil_div(n, 4) * std::int64_t(4); }

  __device__ matrix<float> from(int source, int owner) const {
    return {e.inbox<float>(owner) + source * shards.per_rank * pitch(n), shards.rows(owner), n, pitch(n)};
  }
  __device__ matrix<float> at(tile_at t) const {
    // As the grid of tiles numbers the owner's rows
    int const owner = shards.owner(t.m), first = owner * shards.tile_rows * shards.tile_m;
    matrix<float> const c = from(rank, owner);
    return {c.data - first * c.ld, first + c.rows, n, c.ld};
  }
  /// The first of the tile's `parts` flags, of each source.
  __device__ int flag(int tile_row, int tile_n) const {
    return (tile_row % shards.tile_rows * n_tiles + tile_n) * parts;
  }
  template <group Group>
  __device__ void stored(Group g, tile_at t) const {
    e.signal(g, shards.owner(t.m), flag(t.m, t.n) + part);
  }
  /// Waits for all sources' sums of one of this rank's tiles.
  template <group Group>
  __device__ void wait(Group g, int ranks, int tile_row, int tile_n) const {
    for (int p = 0; p < parts; ++p) e.wait(g, 0, ranks - 1, flag(tile_row, tile_n) + p);
  }
};

namespace detail {

/// 4 neighbouring elements of c, from (r, col) on; those that c does not have are left out. `whole`:
/// has_whole_quads(c).
template <class T>
__device__ void store_quad(matrix<T> c, int r, int col, T const (&four)[4], bool whole) {
  if (whole && col + 4 <= c.cols) *reinterpret_cast<uint2*>(c.at(r, col)) = *reinterpret_cast<uint2 const*>(four);
  else
    for (int j = 0; j < 4 && col + j < c.cols; ++j) c(r, col + j) = four[j];
}
template <class T>
__device__ bool has_whole_quads(matrix<T> c) {
  return (c.ld % 4 | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) & 7)) == 0;
}

/// visit(r, col) for the first of each 4 neighbouring elements of a tile of at most tile_m x tile_n elements from (m0,
/// n0) on.
template <group Group, class Visit>
__device__ void for_each_quad(Group g, int m0, int n0, int tile_m, int tile_n, int rows, int cols, Visit const& visit) {
  int const quads = tile_n / 4;
  for (int i = g.rank(); i < tile_m * quads; i += g.size()) {
    int const r = m0 + i / quads, col = n0 + i % quads * 4;
    if (r < rows && col < cols) visit(r, col);
  }
}

/// Four elements of T = epilogue(the sum over sources, in their order) from (r, col) on, `cols` the number of columns.
/// from(s) is the matrix of source s. NaN if `poisoned`.
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
