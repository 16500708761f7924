// The source of AG+GEMM's tiles: a gathered A. A rank's own shard is read in place, the others from the inbox.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/comm/all_gather/transfer_chunks.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// The launch's buffers of A: the local shard, and the inbox of each slot.
enum gathered_buffer { local_shard = 0, inbox_of_slot_0 = 1, inbox_of_slot_1 = 2, gathered_buffers = 3 };

/// A tile source: the steps along k of one of the blocks that share a tile, shard after shard, from the local one on.
/// Each block has a range of every shard, so that it waits for few flags. Conditions of code with a barrier are marked
/// as equal in all lanes (uniform()). If the compiler did not know that, it could let a part of a wave run the barrier
/// alone.
/// Group: of the threads that call begin() and wait(). A wave polls many flags concurrently, and remembers which chunks
/// have arrived; a block waits for one chunk after the other. Epoch: whose flags say that chunks have arrived.
template <group Group, class Epoch = channel_epoch>
class gathered_tiles {
 public:
  /// Where a step begins.
  struct place {
    int shard, column, step;  // column within the shard; steps since the shard's first
  };

  /// slice: of the tiles' k. The number of `e` may become known later, but before begin().
  __device__ gathered_tiles(Epoch const& e, int rank, gather_map const& map, bool local_shard_first,
                            k_slice const& slice)
      : e_(e), map_(map), gathers_k_(map.by == gather::k), rank_(rank), cols_(map.cols()),
        first_shard_(local_shard_first && gathers_k_ ? rank : 0) {
    index_range const steps = steps_of_slice(ceil_div(cols_, k_step), slice);
    count_ = steps.size();
    first_ = steps.begin * k_step;
    first_chunk_ = map.k_chunk_of(first_);
    chunks_ = map.k_chunk_of(first_ + (count_ - 1) * k_step) - first_chunk_ + 1;
  }

  __device__ int steps() const { return gathers_k_ ? count_ * map_.ranks : count_; }
  __device__ place first() const { return {first_shard_, first_, 0}; }
  __device__ void advance(place& p, int steps) const {
    p.column += steps * k_step;
    if ((p.step += steps) < count_) return;
    p = {next_shard(p.shard), first_, 0};
  }
  __device__ int k(place const& p) const { return gathers_k_ ? p.shard * cols_ + p.column : p.column; }
  __device__ int column(place const& p) const { return p.column; }
  __device__ int left(place const& p) const { return count_ - p.step; }

  __device__ int begin(tile_coord t) {
    int const tile_m = t.m;
    tile_m_ = tile_m;
    first_owner_ = gathers_k_ ? 0 : map_.first_owner(tile_m);
    is_local_ = is_local(map_, tile_m, rank_);
    owners_ = gathers_k_ ? 1 : map_.last_owner(tile_m) - first_owner_ + 1;
    if constexpr (looks_ahead) {
      // Exact enough for numbers up to 64, and faster than an integer division
      float const of_one = platform::quick_reciprocal(float(owners_));
      at_once_ = int((float(wave::width) + 0.5f) * of_one);
      lane_chunk_ = int((float(wave{}.rank()) + 0.5f) * of_one);
      lane_owner_ = wave{}.rank() - lane_chunk_ * owners_;
    }
    known_chunks_ = known_ = 0;
    return min(map_.m - tile_m * map_.tile_m, map_.tile_m);
  }
  __device__ k_segment wait(place const& p) {
    int const row = tile_m_ * map_.tile_m, left = count_ - p.step;
    if (gathers_k_ ? p.shard == rank_ : is_local_)
      return {local_shard, gathers_k_ ? row : row - map_.first_row(rank_), p.column, left};
    int const nth = p.shard - first_shard_, before = (nth < 0 ? nth + map_.ranks : nth) * count_ + p.step;
    if (platform::uniform(known_ - before) <= 0) {
      do known_ = await_chunks();
      while (platform::uniform(known_ - before) <= 0);
      platform::order_async_copies();
    }
    int const there = known_ - before;
    return {inbox_of_slot_0 + int(detail::slot_of(e_.number())), gathers_k_ ? p.shard * map_.m + row : row, p.column,
            min(there, left)};
  }

 private:
  static constexpr bool looks_ahead = std::is_same_v<Group, wave>;

  __device__ int next_shard(int shard) const { return shard + 1 < map_.ranks ? shard + 1 : 0; }

  /// Waits until the next chunk has arrived from all owners of the M tile. Returns how many steps have then arrived,
  /// over all shards in the order of use. The lanes of a wave poll many chunks concurrently, also of the next shards.
  /// After some polls the wave calls wait(), which has a time limit.
  __device__ int await_chunks() {
    chunk const next = chunk_at(known_chunks_);
    if constexpr (looks_ahead) {
      chunk const mine = chunk_at(known_chunks_ + lane_chunk_);
      bool const asks =
          lane_chunk_ < at_once_ && known_chunks_ + lane_chunk_ < (gathers_k_ ? chunks_ * map_.ranks : chunks_);
      for (int look = 0; look < 64; ++look) {
        bool const up = asks && (is_local_chunk(mine) || e_.arrived(mine.source + lane_owner_, mine.flag));
        int const missing = platform::first_lane_of(!up);
        int const there = missing == 0 ? at_once_ : platform::shuffle(lane_chunk_, missing - 1);
        wave{}.sync();  // what one lane has acquired, all may read
        if (there == 0) continue;
        known_chunks_ += there;
        return platform::shuffle(mine.end, (there - 1) * owners_);
      }
    }
    if (looks_ahead || platform::uniform(!is_local_chunk(next)))
      e_.wait(Group{}, next.source, gathers_k_ ? next.source : map_.last_owner(tile_m_), next.flag);
    ++known_chunks_;
    return next.end;
  }

  /// The i-th chunk in the order of use. It has arrived when flag `flag` of `source`, and of the M tile's owners
  /// after it, is up. Steps before the end-th are then there, if those of earlier chunks are.
  struct chunk {
    int source, flag, end;
  };
  __device__ chunk chunk_at(int i) const {
    int shard = first_shard_, before = 0;
    for (; gathers_k_ && i >= chunks_; i -= chunks_, before += count_) shard = next_shard(shard);
    int const at = first_chunk_ + i, in_shard = ((at + 1) * map_.chunk_k - first_) / k_step;
    return {gathers_k_ ? shard : first_owner_, map_.flag(tile_m_, at), before + min(in_shard, count_)};
  }
  __device__ bool is_local_chunk(chunk const& c) const { return gathers_k_ && c.source == rank_; }

  Epoch const& e_;
  gather_map const& map_;
  bool const gathers_k_;
  int const rank_, cols_, first_shard_;
  /// In every shard: this block's first column, its steps, the first chunk of these steps, and how many chunks
  int first_, count_, first_chunk_, chunks_;
  // The current M tile:
  int tile_m_ = 0, first_owner_ = 0, owners_ = 1;
  bool is_local_ = false;
  /// Chunks that the lanes poll together; the chunk of this lane, and the owner whose flag it polls
  int at_once_ = 0, lane_chunk_ = 0, lane_owner_ = 0;
  /// Chunks, and steps, that have arrived, over all shards in the order of use
  int known_chunks_ = 0, known_ = 0;
};

}  // namespace fusewire
