// How a gathered A [M, K] is cut: into a shard for each rank, and shards into the chunks that travel.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// The dimension along which A is sharded. k: rank r holds columns [r K/W, (r + 1) K/W) of all rows. m: rank r holds
/// rows [r R, (r + 1) R) of all columns, R = ceil(M / W); the last ranks may hold fewer rows, or none.
enum class gather { k, m };

/// A rectangle of the gathered A, and the flag that says that it has arrived.
struct gather_chunk {
  /// First row and number of rows; first column and number of columns.
  int row, rows, col, cols;
  /// The M tile to which it belongs; the number of its flag among the flags of its source.
  int m_tile, flag;
};

/// How A is cut. A chunk is one M tile (tile_m rows) by one k chunk (chunk_k columns), cut at the shard's edges.
class gather_map {
 public:
  /// The dimension along which A is sharded.
  gather by;
  /// Extents of the gathered A; ranks; rows of a tile; columns of a k chunk.
  int m, k, ranks, tile_m, chunk_k;

  /// Requires: with gather::k, k a multiple of `ranks`; chunk_k a multiple of k_step.
  __host__ __device__ constexpr gather_map(gather by, int m, int k, int ranks, int tile_m, int chunk_k)
      : by(by), m(m), k(k), ranks(ranks), tile_m(tile_m), chunk_k(chunk_k), rows_per_rank_(ceil_div(m, ranks)),
        cols_(by == gather::k ? k / ranks : k), m_tiles_(ceil_div(m, tile_m)), k_chunks_(ceil_div(cols_, chunk_k)),
        by_tile_m_(tile_m), by_chunk_k_(chunk_k), by_k_chunks_(k_chunks_), by_rows_per_rank_(rows_per_rank_) {}

  /// R = ceil(M / W), with either gather.
  __host__ __device__ constexpr int rows_per_rank() const { return rows_per_rank_; }
  /// The first row of rank r's shard.
  __host__ __device__ constexpr int first_row(int r) const {
    return by == gather::k ? 0 : fixed_slice(m, rows_per_rank(), r).begin;
  }
  /// Rows of rank r's shard.
  __host__ __device__ constexpr int rows(int r) const {
    return by == gather::k ? m : fixed_slice(m, rows_per_rank(), r).size();
  }
  /// The first column of rank r's shard.
  __host__ __device__ constexpr int first_col(int r) const { return by == gather::k ? r * cols() : 0; }
  /// Columns of a shard, the same for every rank.
  __host__ __device__ constexpr int cols() const { return cols_; }

  /// M tiles of the gathered A.
  __host__ __device__ constexpr int m_tiles() const { return m_tiles_; }
  /// k chunks of a shard.
  __host__ __device__ constexpr int k_chunks() const { return k_chunks_; }
  __host__ __device__ constexpr int k_chunk_of(int column) const { return column / by_chunk_k_; }  // of a shard
  /// The most flags that a rank raises on a peer.
  __host__ __device__ constexpr int flags_per_source() const { return m_tiles() * k_chunks(); }
  /// The number of a chunk's flag among the flags of its source.
  __host__ __device__ constexpr int flag(int m_tile, int k_chunk) const { return m_tile * k_chunks() + k_chunk; }

  /// The first rank with rows of a M tile.
  __host__ __device__ constexpr int first_owner(int m_tile) const {
    return by == gather::k ? 0 : m_tile * tile_m / by_rows_per_rank_;
  }
  /// The last rank with rows of a M tile.
  __host__ __device__ constexpr int last_owner(int m_tile) const {
    return by == gather::k ? ranks - 1 : last_row(m_tile) / by_rows_per_rank_;
  }

  /// M tiles of which rank r has rows.
  __host__ __device__ constexpr int m_tiles_of(int r) const {
    return rows(r) == 0 ? 0 : (first_row(r) + rows(r) - 1) / by_tile_m_ - first_row(r) / by_tile_m_ + 1;
  }
  /// Chunks of rank r's shard.
  __host__ __device__ constexpr int chunks(int r) const { return m_tiles_of(r) * k_chunks(); }
  /// An upper bound of m_tiles_of(r).
  __host__ __device__ constexpr int max_m_tiles() const {
    return by == gather::k ? m_tiles() : (rows_per_rank() + tile_m - 1) / by_tile_m_ + 1;
  }
  /// An upper bound of chunks(r).
  __host__ __device__ constexpr int max_chunks() const { return max_m_tiles() * k_chunks(); }
  /// Chunk i of rank r's shard: the k chunks of a M tile follow each other.
  __host__ __device__ constexpr gather_chunk chunk(int r, int i) const {
    return chunk(r, i / by_k_chunks_, i % by_k_chunks_);
  }
  /// A k chunk of the row-th of rank r's M tiles.
  __host__ __device__ constexpr gather_chunk chunk(int r, int row, int k_chunk) const {
    int const tile = first_row(r) / by_tile_m_ + row;
    int const begin = max(first_row(r), tile * tile_m), end = min(first_row(r) + rows(r), (tile + 1) * tile_m);
    int const col = k_chunk * chunk_k;
    return {begin, end - begin, first_col(r) + col, min(cols() - col, chunk_k), tile, flag(tile, k_chunk)};
  }

 private:
  __host__ __device__ constexpr int last_row(int m_tile) const { return min(m, (m_tile + 1) * tile_m) - 1; }

  int rows_per_rank_, cols_, m_tiles_, k_chunks_;
  divisor by_tile_m_, by_chunk_k_, by_k_chunks_, by_rows_per_rank_;
};

/// One of the chunks that travel between a rank and each of its peers. Turn i belongs to the rank i places before
/// (push) or after (pull) it. Turns 0 and `ranks` belong to the rank itself: its own chunks may come first, last, or
/// some first and some last.
struct chunk_position {
  /// The turn; the M tile among those of the shard; the k chunk.
  int turn, row, k_chunk;
};

/// With nest::by_row, which of `turns` turns, from 0, brings a k chunk of M tile `row` of `rows` first. The later
/// turns follow, then turns 0, 1, ...
__host__ __device__ constexpr int first_turn_of_row(int row, int rows, int turns) {
  return row == 0 ? 0 : ceil_div((rows - row) * turns, rows);
}

/// The order in which chunks travel: the order in which the tiles in flight ask for them. `group_m` M tiles are in
/// flight together.
///   by_peer     each peer's chunks, raster group after raster group: the tiles of a peer's rows start one peer after
///   the other by_group    each raster group, peer after peer: a tile goes through the columns of one peer after the
///   other by_k_chunk  each k chunk, of all peers' rows: the tiles of all rows start together by_row      each k chunk,
///   row after row, of all peers: threads that move every n-th chunk of n turns have one turn.
///               Every turn begins with another row, so that no row waits for all its k chunks while others have theirs
/// If `split_k` blocks share a tile, each begins with its own range of the k chunks, so the order takes one of each
/// of these ranges round robin.
class chunk_order {
 public:
  /// Which loop is the outer one; see above.
  enum class nest { by_peer, by_group, by_k_chunk, by_row };

  /// rows: M tiles of a shard. The turns are first_turn (0 or 1) to `turns`.
  __host__ __device__ constexpr chunk_order(nest by, int turns, int rows, int k_chunks, int group_m, int split_k = 1,
                                            int first_turn = 1)
      : by_(by), first_turn_(first_turn), turns_(turns - first_turn + 1), rows_(rows), k_chunks_(k_chunks),
        group_m_(rows == 0                                                        ? 1
                 : by == nest::by_k_chunk || by == nest::by_row || group_m > rows ? rows
                                                                                  : group_m),
        peer_(rows > 0 ? rows * k_chunks : 1), whole_group_(group_m_ * k_chunks * (by == nest::by_peer ? 1 : turns_)),
        by_turns_(turns_), by_k_chunks_(k_chunks), by_peer_(peer_), by_whole_group_(whole_group_), by_group_(group_m_),
        by_last_(rows % group_m_ == 0 ? group_m_ : rows % group_m_), split_k_(split_k) {}

  /// Chunks in all.
  __host__ __device__ constexpr int count() const { return turns_ * rows_ * k_chunks_; }
  /// The turn of the first chunk.
  __host__ __device__ constexpr int first_turn() const { return first_turn_; }
  /// The i-th chunk. Requires: 0 <= i < count().
  __host__ __device__ constexpr chunk_position operator[](int i) const {
    if (by_ == nest::by_k_chunk) {  // one group of all rows
      int const column = i / by_group_;
      return {first_turn_ + column % by_turns_, i - column * rows_, k_chunk_at(column / by_turns_)};
    }
    if (by_ == nest::by_row) {
      int const of_all = i / by_turns_, turn = i - of_all * turns_, k_chunk = of_all / by_group_,
                row = of_all - k_chunk * rows_ + rows_ - turn * rows_ / by_turns_;
      return {first_turn_ + turn, row < rows_ ? row : row - rows_, k_chunk_at(k_chunk)};
    }
    int const outer = by_ == nest::by_peer ? i / by_peer_ : 0, rest = i - outer * peer_, b = rest / by_whole_group_,
              in_group = rest - b * whole_group_;
    divisor const& height = (b + 1) * group_m_ > rows_ ? by_last_ : by_group_;
    int const column = in_group / height;
    return {first_turn_ + outer + column / by_k_chunks_, b * group_m_ + in_group % height,
            k_chunk_at(column % by_k_chunks_)};
  }

 private:
  /// The i-th k chunk if one of each even_slice is taken round robin.
  __host__ __device__ constexpr int k_chunk_at(int i) const {
    int const turn = i / split_k_;
    return even_slice(k_chunks_, split_k_, i - turn * split_k_.value()).begin + turn;
  }

  nest by_;
  int first_turn_, turns_, rows_, k_chunks_, group_m_;
  int peer_, whole_group_;  // chunks
  divisor by_turns_, by_k_chunks_, by_peer_, by_whole_group_, by_group_, by_last_, split_k_;
};

}  // namespace fusewire
