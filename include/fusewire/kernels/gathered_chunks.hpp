// The source of AG+GEMM's tiles if the blocks that share a tile take its chunks in turns. A chunk is the steps along k
// of a shard that travel together. The order is the one in which chunks arrive, so all blocks start with early chunks:
//
//   gather::k, own shard first   chunks 0, 1, ... of the own shard, then chunk 0 of every peer from the next rank on,
//                                chunk 1 of every peer, ...
//   gather::k, else              chunk 0 of every rank, chunk 1 of every rank, ...
//   gather::m                    chunks 0, 1, ... of the tile row
//
// Between steps there is time for few instructions. So each lane of a wave finds one chunk beforehand and loads its
// flag while the wave multiplies. The wave waits only for flags that were not up then:
//
//   wait(chunk)   flags up among those loaded --> acquire once;  this one not up? --> wait;  load the missing flags
//
// Order: a lane's load of a flag is complete when the wave has compared its value. So the invalidation after it, and
// the loads after the invalidation, see what was published before the flag was raised. Loads that are under way
// meanwhile are of chunks that had been acquired before. Each wave acquires for itself.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/kernels/gathered_tiles.hpp>

namespace fusewire {

/// A tile source, called by waves. The own shard is read in place, others from the inbox.
class gathered_chunks {
 public:
  /// Where a step begins.
  struct place {
    int nth;           // number of the chunk among this block's
    int shard, chunk;  // the shard; the number of the chunk in it
    int step;          // within the chunk
  };

  /// The block is number `part` of `parts` that share a tile. The number of `e` may become known later, but before
  /// begin(). Requires: at least as many chunks as parts, and at most 2^16 chunks in a shard.
  __device__ gathered_chunks(channel_epoch const& e, int rank, gather_map const& map, bool own_shard_first, bool,
                             int part, divisor const& parts)
      : e_(e), map_(map), by_k_(map.by == gather::k), own_first_(by_k_ && own_shard_first), rank_(rank),
        part_(platform::uniform(part)), parts_(parts.value()), of_shard_(ceil_div(map.cols(), k_step)),
        of_chunk_(map.chunk_k / k_step), k_of_shard_(by_k_ ? map.cols() : 0), rows_of_shard_(by_k_ ? map.m : 0),
        others_(by_k_ ? map.ranks - own_first_ : 1) {
    int const chunks = map.chunks(), own = own_first_ ? chunks : 0, all = own + chunks * others_;
    auto const below = [&](int n) { return platform::uniform((n + parts_ - 1 - part_) / parts); };  // of this block's
    count_ = below(all);
    int const last = below(all) - below(all - others_) + below(own) - below(own > 0 ? own - 1 : 0);
    steps_ = count_ * of_chunk_ - last * (chunks * of_chunk_ - of_shard_);
    find_chunks(0);
  }

  __device__ int steps() const { return steps_; }
  __device__ place first() const { return at(0); }
  __device__ void advance(place& p, int steps) const {
    p.step += steps;
    if (p.step >= steps_of(p.chunk)) p = at(p.nth + 1);
  }
  __device__ int left(place const& p) const { return steps_of(p.chunk) - p.step; }
  __device__ int column(place const& p) const { return (p.chunk * of_chunk_ + p.step) * k_step; }
  __device__ int k(place const& p) const { return p.shard * k_of_shard_ + column(p); }

  __device__ int begin(int tile_m) {
    if (tile_m != tile_m_) find_chunks(0);
    tile_m_ = tile_m;
    first_owner_ = by_k_ ? 0 : map_.first_owner(tile_m);
    last_owner_ = by_k_ ? 0 : map_.last_owner(tile_m);
    int const left = map_.m - tile_m * map_.tile_m;
    return left < map_.tile_m ? left : map_.tile_m;
  }
  __device__ k_run wait(place const& p) {
    int const row = tile_m_ * map_.tile_m;
    if (!has_lane(p.nth)) find_chunks(p.nth);
    if (by_k_ ? p.shard == rank_ : is_own(map_, tile_m_, rank_)) {
      if (by_k_) ask();
      return {own_shard, by_k_ ? row : row - map_.first_row(rank_), column(p), left(p)};
    }
    std::uint64_t const bit = std::uint64_t(1) << (p.nth - first_);
    if (~there_ != 0) {
      hear();
      if ((there_ & bit) == 0) {
        e_.wait(wave{}, by_k_ ? p.shard : first_owner_, by_k_ ? p.shard : last_owner_, map_.flag(tile_m_, p.chunk));
        there_ |= bit;
      }
      if (first_owner_ == last_owner_) ask();
    }
    platform::order_async_copies();
    return {inbox_of_slot_0 + int(detail::slot_of(e_.number())), p.shard * rows_of_shard_ + row, column(p), left(p)};
  }

 private:
  __device__ int steps_of(int chunk) const {
    int const left = of_shard_ - chunk * of_chunk_;
    return left < of_chunk_ ? left : of_chunk_;
  }
  __device__ bool has_lane(int nth) const { return unsigned(nth - first_) < unsigned(wave::width); }
  /// Each lane finds one of this block's chunks, from number nth on.
  __device__ void find_chunks(int nth) {
    first_ = nth;
    shard_and_chunk_ = shard_and_chunk(nth + wave{}.rank());
    there_ = platform::ballot(nth + wave{}.rank() >= count_ || (by_k_ && shard_and_chunk_ >> 16 == rank_));
    heard_ = 0;
  }
  __device__ int shard_and_chunk(int nth) const {
    int const own = own_first_ ? map_.chunks() : 0, i = part_ + nth * parts_;
    if (i < own) return rank_ << 16 | i;
    // Exact enough for numbers up to 2^22, and faster than an integer division
    int const chunk = int((float(i - own) + 0.5f) * platform::quick_reciprocal(float(others_))),
              shard = i - own - chunk * others_ + (own_first_ ? rank_ + 1 : 0);
    return (shard < map_.ranks ? shard : shard - map_.ranks) << 16 | chunk;
  }
  __device__ place at(int nth) const {
    int const x =
        platform::uniform(has_lane(nth) ? platform::of_lane(shard_and_chunk_, nth - first_) : shard_and_chunk(nth));
    return {nth, x >> 16, x & 0xffff, 0};
  }

  /// Lanes load the flags of chunks that are not known to be there.
  __device__ void ask() {
    if ((there_ >> wave{}.rank() & 1) != 0) return;
    int const of = by_k_ ? shard_and_chunk_ >> 16 : first_owner_;
    heard_ = platform::atomic_load<order::relaxed, scope::system>(
        &e_.from(of, map_.flag(tile_m_, shard_and_chunk_ & 0xffff))->value);
  }
  __device__ void hear() {
    std::uint64_t const up = platform::ballot(heard_ == e_.number());
    if ((up & ~there_) == 0) return;
    platform::acquire_loaded<scope::system>();
    there_ |= up;
  }

  channel_epoch const& e_;
  gather_map const& map_;
  bool const by_k_, own_first_;
  int const rank_, part_, parts_, of_shard_, of_chunk_, k_of_shard_, rows_of_shard_, others_;
  int count_, steps_;  // this block's chunks; its steps
  int tile_m_ = -1, first_owner_ = 0, last_owner_ = 0;
  // The lanes' chunks, from number first_ on: shard and chunk of this lane's; a bit for each that is there or does not
  // exist; the value of this lane's flag
  int first_, shard_and_chunk_;
  std::uint64_t there_;
  epoch_t heard_;
};
static_assert(tile_source<gathered_chunks>);

}  // namespace fusewire
