// GEMM + reduce-scatter in one kernel: C of a rank = its rows of the sum over ranks of A * B. The operator is in gemm_rs.hpp.
//
//   all blocks, first   A, B --mainloop--> fp32 sums --> inbox [source][rows][N] of the rank that owns the rows --signal--> flag (source, tile)
//   all blocks, then    wait for a tile's flag of every source --> add up in the order of ranks --> epilogue --> C
//
// Every rank begins with the rows of the rank after it and ends with its own, so at any time each rank sends to one peer and receives from one.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing, and a block adds up only when all of its rank's have been
// handed out, to blocks that are at them. Block 0's last wait (credit) comes after its own work.
// Reuse: the inbox by the channel's argument. A and B are read by this launch alone.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/tile/epilogue.hpp>
#include <fusewire/tile/gemm.hpp>

namespace fusewire {

/// How the rows of C are cut: rank r owns rows [r R, (r + 1) R), R = ceil(M / W); the last ranks may own fewer rows, or none. A tile row is one rank's.
struct row_shards {
  int m, per_rank, tile_m, tile_rows;  // tile_rows: of R rows

  __host__ __device__ constexpr row_shards(int m, int ranks, int tile_m) : m(m), per_rank(ceil_div(m, ranks)), tile_m(tile_m), tile_rows(ceil_div(per_rank, tile_m)) {}

  __host__ __device__ constexpr int first_row(int r) const { return std::int64_t(r) * per_rank < m ? r * per_rank : m; }
  __host__ __device__ constexpr int rows(int r) const { return m - first_row(r) < per_rank ? m - first_row(r) : per_rank; }
  /// Of all ranks, and of one. Tile rows are numbered rank after rank, and none has no rows.
  __host__ __device__ constexpr int all_tile_rows() const { return m / per_rank * tile_rows + ceil_div(m % per_rank, tile_m); }
  __host__ __device__ constexpr int tile_rows_of(int r) const { return ceil_div(rows(r), tile_m); }
  __host__ __device__ constexpr int owner(int tile_row) const { return tile_row / tile_rows; }
  /// Within its owner's rows.
  __host__ __device__ constexpr int row_in_shard(int tile_row) const { return tile_row % tile_rows * tile_m; }
};

/// A tile source: this rank's A [M, K], the launch's buffer 0, by the tile rows of row_shards.
class local_shards : public local_rows {
 public:
  __device__ local_shards(row_shards const& s, int k) : local_rows(s.m, k, s.tile_m), shards_(s) {}
  __device__ int begin(int tile_row) {
    int const owner = shards_.owner(tile_row), row = shards_.row_in_shard(tile_row), left = shards_.rows(owner) - row;
    return begin_at(shards_.first_row(owner) + row, left);
  }

 private:
  row_shards const& shards_;
};

/// A tile sink: the inbox of the rank that owns the tile's rows, which is told. Holds [source][rows][N] sums in fp32, rows of whole 16 bytes.
struct owners_inbox {
  channel_epoch const& e;
  row_shards const& shards;
  int rank, n, n_tiles;

  __host__ __device__ static constexpr std::int64_t pitch(int n) { return ceil_div(n, 4) * std::int64_t(4); }

  __device__ matrix<float> from(int source, int owner) const {
    return {e.inbox<float>(owner) + source * shards.per_rank * pitch(n), shards.rows(owner), n, pitch(n)};
  }
  __device__ matrix<float> at(tile_at t) const {
    int const owner = shards.owner(t.m), first = owner * shards.tile_rows * shards.tile_m;  // as the grid of tiles numbers the owner's rows
    matrix<float> const c = from(rank, owner);
    return {c.data - first * c.ld, first + c.rows, n, c.ld};
  }
  __device__ int flag(int tile_row, int tile_n) const { return tile_row % shards.tile_rows * n_tiles + tile_n; }
  template <group Group>
  __device__ void stored(Group g, tile_at t) const {
    e.signal(g, shards.owner(t.m), flag(t.m, t.n));
  }
};

template <class T>
struct gemm_rs_arguments {
  gemm_operands<T, 1> x;  // A is [M, K], B [K, N]
  matrix<T> c;            // [rows of this rank, N]
  row_shards shards;
  tile_order tiles;       // of all ranks' rows
};

namespace detail {

/// c's rows and columns from (m0, n0) on, at most tile_m x tile_n of them = epilogue(the sum over sources, in their order). The sums are there.
template <class T, group Group, class Epilogue>
__device__ void add_sources(Group g, owners_inbox const& inbox, int sources, matrix<T> c, int m0, int n0, int tile_m, int tile_n, Epilogue const& epilogue) {
  bool const whole = (c.ld % 4 | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) & 7)) == 0;
  int const quads = tile_n / 4;
  for (int i = g.rank(); i < tile_m * quads; i += g.size()) {
    int const r = m0 + i / quads, col = n0 + i % quads * 4;
    if (r >= c.rows || col >= c.cols) continue;
    float sum[4] = {};
#pragma unroll 4
    for (int s = 0; s < sources; ++s) {
      float4 const part = *reinterpret_cast<float4 const*>(inbox.from(s, inbox.rank).at(r, col));
      sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
    }
    alignas(8) T four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = col + j < c.cols ? T(epilogue(sum[j], r, col + j)) : T(0.0f);
    if (whole && col + 4 <= c.cols) *reinterpret_cast<uint2*>(c.at(r, col)) = *reinterpret_cast<uint2 const*>(four);
    else
      for (int j = 0; j < 4 && col + j < c.cols; ++j) c(r, col + j) = four[j];
  }
}

}  // namespace detail

template <class T, class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads()) gemm_rs_kernel(channel_view ch, gemm_rs_arguments<T> g, Epilogue epilogue) {
  constexpr gemm_config C = Tile::config;
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  int const rank = ch.world.rank, ranks = ch.world.size, n_tiles = ceil_div(g.c.cols, C.block_n);
  owners_inbox const inbox{e, g.shards, rank, g.c.cols, n_tiles};

  int i = 0;
  auto const next = [&] { return i = e.next(b, reinterpret_cast<int*>(shared)); };
  local_shards source(g.shards, g.x.a[0].cols);
  block_gemm<T, C>::run_tiles(shared, g.x, g.tiles, next, source, inbox, identity{});

  for (int const mine = g.shards.tile_rows_of(rank) * n_tiles; i - g.tiles.count() < mine; next()) {
    int const t = i - g.tiles.count(), m = t / n_tiles, n = t % n_tiles;
    e.wait(b, 0, ranks - 1, inbox.flag(m, n));
    detail::add_sources(b, inbox, ranks, g.c, m * C.block_m, n * C.block_n, C.block_m, C.block_n, epilogue);
  }
  e.end(b);
}

}  // namespace fusewire
