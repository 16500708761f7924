// The source of AG+GEMM's tiles if very many groups share a tile's k. Each has one range of the k of all shards, one
// shard after the other, and waits only for the chunks in it.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/comm/all_gather/gathered_tiles.hpp>

namespace fusewire {

/// A tile source. With gather::k shards follow each other from the local one on, or in the order of ranks. The local
/// shard is read in place, others from the inbox. Group: of the threads that call begin() and wait(). Epoch: as of
/// gathered_tiles.
template <group Group, class Epoch = channel_epoch>
class gathered_range {
 public:
  /// Where a step begins.
  struct place {
    int shard, step;  // the shard; the step within it
    int left;         // steps of the range from here on
  };

  /// slice: of the tiles' k. The number of `e` may become known later, but before begin().
  __device__ gathered_range(Epoch const& e, int rank, gather_map const& map, bool local_shard_first,
                            k_slice const& slice)
      : e_(e), map_(map), gathers_k_(map.by == gather::k), rank_(rank), cols_(map.cols()),
        of_shard_(ceil_div(cols_, k_step)), first_shard_(local_shard_first && gathers_k_ ? rank : 0),
        steps_(steps_of_slice(gathers_k_ ? of_shard_ * map.ranks : of_shard_, slice)) {}

  __device__ int steps() const { return steps_.size(); }
  __device__ place first() const {
    place p{first_shard_, steps_.begin, steps_.size()};
    for (; p.step >= of_shard_ && gathers_k_; p.step -= of_shard_) p.shard = next_shard(p.shard);
    return p;
  }
  __device__ void advance(place& p, int steps) const {
    p.step += steps;
    p.left -= steps;
    if (p.step == of_shard_) p = {next_shard(p.shard), 0, p.left};
  }
  __device__ int left(place const& p) const { return min(p.left, of_shard_ - p.step); }
  __device__ int column(place const& p) const { return p.step * k_step; }
  __device__ int k(place const& p) const { return gathers_k_ ? p.shard * cols_ + column(p) : column(p); }

  __device__ int begin(tile_coord t) {
    int const tile_m = t.m;
    if (tile_m != tile_m_) known_shard_ = known_chunk_ = -1;
    tile_m_ = tile_m;
    return min(map_.m - tile_m * map_.tile_m, map_.tile_m);
  }
  __device__ k_segment wait(place const& p) {
    int const row = tile_m_ * map_.tile_m, in_shard = left(p);
    if (gathers_k_ ? p.shard == rank_ : is_local(map_, tile_m_, rank_))
      return {local_shard, gathers_k_ ? row : row - map_.first_row(rank_), column(p), in_shard};
    int const chunk = map_.k_chunk_of(column(p)), end = ((chunk + 1) * map_.chunk_k - column(p)) / k_step;
    if (platform::uniform(p.shard) != platform::uniform(known_shard_) ||
        platform::uniform(chunk) != platform::uniform(known_chunk_)) {
      e_.wait(Group{}, gathers_k_ ? p.shard : map_.first_owner(tile_m_),
              gathers_k_ ? p.shard : map_.last_owner(tile_m_), map_.flag(tile_m_, chunk));
      platform::order_async_copies();
      known_shard_ = p.shard;
      known_chunk_ = chunk;
    }
    return {inbox_of_slot_0 + int(detail::slot_of(e_.number())), gathers_k_ ? p.shard * map_.m + row : row, column(p),
            min(end, in_shard)};
  }

 private:
  __device__ int next_shard(int shard) const { return gathers_k_ ? (shard + 1 < map_.ranks ? shard + 1 : 0) : shard; }

  Epoch const& e_;
  gather_map const& map_;
  bool const gathers_k_;
  int const rank_, cols_, of_shard_, first_shard_;
  index_range const steps_;
  int tile_m_ = -1, known_shard_ = -1, known_chunk_ = -1;  // the M tile; the last of its chunks known to have arrived
};

}  // namespace fusewire
