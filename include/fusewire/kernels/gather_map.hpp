// How the rows and columns of a gathered A [M, K] are cut: into shards by rank, and shards into the pieces that travel.
#pragma once
#include <fusewire/core/types.hpp>

namespace fusewire {

/// The dimension along which A is sharded. k: rank r holds columns [r K/W, (r + 1) K/W) of all rows. m: rank r holds rows
/// [r R, (r + 1) R) of all columns, R = ceil(M / W); the last ranks may hold fewer rows, or none.
enum class gather { k, m };

/// A rectangle of the gathered A, and the flag that says it has arrived.
struct gather_piece {
  int row, rows, col, cols;
  int flag;
};

/// A piece is one row of tiles (tile_m rows) by one chunk of columns (chunk_k), cut at the shard's edges.
struct gather_map {
  gather by;
  int m, k, ranks, tile_m, chunk_k;

  __host__ __device__ constexpr int rows_per_rank() const { return (m + ranks - 1) / ranks; }
  __host__ __device__ constexpr int first_row(int r) const { return by == gather::k ? 0 : (r * rows_per_rank() < m ? r * rows_per_rank() : m); }
  __host__ __device__ constexpr int rows(int r) const { return by == gather::k ? m : first_row(r + 1) - first_row(r); }
  __host__ __device__ constexpr int first_col(int r) const { return by == gather::k ? r * (k / ranks) : 0; }
  __host__ __device__ constexpr int cols() const { return by == gather::k ? k / ranks : k; }

  __host__ __device__ constexpr int m_tiles() const { return (m + tile_m - 1) / tile_m; }
  __host__ __device__ constexpr int chunks() const { return (cols() + chunk_k - 1) / chunk_k; }
  __host__ __device__ constexpr int flags_per_source() const { return m_tiles() * chunks(); }
  __host__ __device__ constexpr int flag(int m_tile, int chunk) const { return m_tile * chunks() + chunk; }

  /// The ranks that hold rows of a tile row.
  __host__ __device__ constexpr int first_owner(int m_tile) const { return by == gather::k ? 0 : m_tile * tile_m / rows_per_rank(); }
  __host__ __device__ constexpr int last_owner(int m_tile) const { return by == gather::k ? ranks - 1 : last_row(m_tile) / rows_per_rank(); }

  __host__ __device__ constexpr int pieces(int r) const {
    if (rows(r) == 0) return 0;
    return ((first_row(r) + rows(r) - 1) / tile_m - first_row(r) / tile_m + 1) * chunks();
  }
  /// At least pieces(r) for every r.
  __host__ __device__ constexpr int most_pieces() const {
    return by == gather::k ? m_tiles() * chunks() : ((rows_per_rank() + tile_m - 1) / tile_m + 1) * chunks();
  }
  __host__ __device__ constexpr gather_piece piece(int r, int i) const { return piece(r, i / chunks(), i % chunks()); }
  /// Of rank r's shard, tile row `row` of those that it has a part of.
  __host__ __device__ constexpr gather_piece piece(int r, int row, int chunk) const {
    int const tile = first_row(r) / tile_m + row;
    int const begin = max_of(first_row(r), tile * tile_m), end = min_of(first_row(r) + rows(r), (tile + 1) * tile_m);
    int const col = chunk * chunk_k;
    return {begin, end - begin, first_col(r) + col, min_of(cols() - col, chunk_k), flag(tile, chunk)};
  }

 private:
  __host__ __device__ static constexpr int min_of(int a, int b) { return a < b ? a : b; }
  __host__ __device__ static constexpr int max_of(int a, int b) { return a > b ? a : b; }
  __host__ __device__ constexpr int last_row(int m_tile) const { return min_of(m, (m_tile + 1) * tile_m) - 1; }
};

/// One of the pieces that travel between a rank and each of its peers.
struct piece_at {
  int peer, row, chunk;
};

/// The order in which they go, which is that in which the tiles in flight ask for them. `band` tile rows are in flight together.
///   by_peer   each peer's pieces, band after band: the tiles of a peer's rows start one peer after the other
///   by_band   each band, peer after peer: a tile goes through the columns of one peer after the other
///   by_chunk  each chunk, of all peers' rows: the tiles of all rows start together
struct piece_order {
  enum class nest { by_peer, by_band, by_chunk };
  nest by;
  int peers, rows, chunks, band;  // rows: tile rows of a shard

  __host__ __device__ constexpr int count() const { return peers * rows * chunks; }
  __host__ __device__ constexpr piece_at operator[](int i) const {
    if (by == nest::by_chunk) return {i / rows % peers, i % rows, i / rows / peers};
    int const outer = by == nest::by_peer ? i / (rows * chunks) : 0, inner = by == nest::by_peer ? 1 : peers;
    int const rest = i - outer * rows * chunks, b = rest / (band * inner * chunks), in_band = rest - b * band * inner * chunks;
    int const height = rows - b * band < band ? rows - b * band : band;
    return {outer + in_band / (height * chunks), b * band + in_band % height, in_band / height % chunks};
  }
};

}  // namespace fusewire
