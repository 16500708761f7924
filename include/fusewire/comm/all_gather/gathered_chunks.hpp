// The source of AG+GEMM's tiles if the blocks that share a tile take its chunks interleaved. A chunk is the steps along
// k of a shard that travel together. The order is the one in which chunks arrive, so all blocks start with early
// chunks:
//
//   gather::k, local shard first   chunks 0, 1, ... of the local shard, then chunk 0 of every peer, chunk 1 of every
//   peer,
//                                ... A M tile begins with the peer that sends its rows first: chunk_order's by_row
//   gather::k, else              chunk 0 of every rank, chunk 1 of every rank, ...
//   gather::m                    chunks 0, 1, ... of the M tile
//
// Between steps there is time for few instructions, and for hardly any jump. So each lane of a wave finds one chunk
// beforehand, where it is, and its flag. If several ranks own the M tile, as many lanes find the chunk, each with the
// flag of one of them. The lanes of the next chunks load their flags while the wave multiplies. The wave waits only for
// flags that were not up then:
//
//   wait(chunk)   not known to be there? --> flags up among those loaded --> acquire once;  still not? --> wait
//                 load the flags of the next chunks that are not known to be there
//
// Order: a lane's load of a flag is complete when the wave has compared its value. So the invalidation after it, and
// the loads after the invalidation, see what was published before the flag was raised. Loads that are in flight
// meanwhile are of chunks that had been acquired before. A wave acquires for itself, and for those of its block that
// sync with it afterwards.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/comm/all_gather/gathered_tiles.hpp>

namespace fusewire {

/// A tile source, called by waves. The local shard is read in place, others from the inbox. Epoch: as of
/// gathered_tiles.
template <class Epoch = channel_epoch>
class gathered_chunks {
 public:
  /// Where a step begins.
  struct place {
    int lane;          // the first lane that holds the chunk
    int column, left;  // of the shard; steps of the chunk from there on
    int before;        // rows of B before the shard's
  };

  /// slice: of the tiles' k. The number of `e` may become known later, but before begin(). Requires: at least as many
  /// chunks as slices.
  __device__ gathered_chunks(Epoch const& e, int rank, gather_map const& map, bool local_shard_first,
                             k_slice const& slice)
      : e_(e), map_(map), gathers_k_(map.by == gather::k),
        local_first_(gathers_k_ && local_shard_first && map.ranks > 1), rank_(rank),
        slice_(platform::uniform(slice.index)), split_k_(slice.count.value()), of_shard_(ceil_div(map.cols(), k_step)),
        of_chunk_(map.chunk_k / k_step), k_of_shard_(gathers_k_ ? map.cols() : 0),
        rows_of_shard_(gathers_k_ ? map.m : 0), others_(gathers_k_ ? map.ranks - local_first_ : 1) {
    int const chunks = map.k_chunks(), local = local_first_ ? chunks : 0, all = local + chunks * others_;
    auto const below = [&](int n) {
      return platform::uniform((n + split_k_ - 1 - slice_) / slice.count);
    };  // of this block's
    count_ = below(all);
    int const last = below(all) - below(all - others_) + below(local) - below(local > 0 ? local - 1 : 0);
    steps_ = count_ * of_chunk_ - last * (chunks * of_chunk_ - of_shard_);
  }

  __device__ int steps() const { return steps_; }
  __device__ place first() {
    if (first_ != 0) find_chunks(0);
    return at(0);
  }
  __device__ void advance(place& p, int steps) {
    p.column += steps * k_step;
    if ((p.left -= steps) <= 0) [[likely]]
      p = at(p.lane + flags_of_chunk_);
  }
  __device__ int left(place const& p) const { return p.left; }
  __device__ int column(place const& p) const { return p.column; }
  __device__ int k(place const& p) const { return p.before + p.column; }

  __device__ int begin(tile_coord t) {
    int const tile_m = t.m;
    if (tile_m != tile_m_ || first_ != 0) {
      tile_m_ = tile_m;
      first_owner_ = gathers_k_ ? 0 : map_.first_owner(tile_m);
      last_owner_ = gathers_k_ ? 0 : map_.last_owner(tile_m);
      bool const is_mine = is_local(map_, tile_m, rank_);
      local_ = gathers_k_ ? rank_ : is_mine ? 0 : -1;
      flags_of_chunk_ = platform::uniform(last_owner_ - first_owner_ + 1);
      chunk_lanes_ = lanes(flags_of_chunk_);
      asking_lanes_ = lanes(flags_of_chunk_ == 1                ? 9
                            : 3 * flags_of_chunk_ < wave::width ? 3 * flags_of_chunk_
                                                                : wave::width);
      row_ = platform::uniform(tile_m * map_.tile_m);
      first_peer_ = platform::uniform(local_first_ ? first_turn_of_row(tile_m, map_.m_tiles(), others_) : 0);
      local_row_ = platform::uniform(gathers_k_ ? row_ : row_ - map_.first_row(rank_));
      inbox_ = inbox_of_slot_0 + int(detail::slot_of(e_.number()));
      flags_ = platform::uniform(e_.from(0, map_.flag(tile_m, 0)));
      find_chunks(0);
    }
    return min(map_.m - tile_m * map_.tile_m, map_.tile_m);
  }
  __device__ k_segment wait(place const& p) {
    std::uint64_t const needed = chunk_lanes_ << p.lane;
    if ((needed & awaited_) != 0) [[unlikely]] {
      poll_prefetched();
      if ((needed & awaited_) != 0) [[unlikely]] {
        int const first = gathers_k_ ? p.before / k_of_shard_ : first_owner_;
        e_.wait(wave{}, first, gathers_k_ ? first : last_owner_, map_.flag(tile_m_, map_.k_chunk_of(p.column)));
        awaited_ &= ~needed;
      }
      platform::order_async_copies();
    }
    asked_ = asking_lanes_ << p.lane & awaited_;
    heard_ = platform::poll_lanes(flags_, flag_at_, asked_);
    return where(p);
  }
  /// See whole_segments.
  __device__ k_segment where(place const& p) const {
    bool const local = (local_lanes_ >> p.lane & 1) != 0;
    return {local ? local_shard : inbox_, platform::readlane(first_row_, p.lane), p.column, p.left};
  }

 private:
  /// The first `count` lanes.
  __device__ static std::uint64_t lanes(int count) { return ~std::uint64_t(0) >> (wave::width - count); }
  /// Each lane finds one of this block's chunks, from number nth on, and one of its flags.
  __device__ __forceinline__ void find_chunks(int nth) {
    // The chunks before this lane's: lane / flags, exact for numbers up to 64
    int const lane = platform::no_hoist_lane(wave{}.rank()), flags = platform::no_hoist(flags_of_chunk_),
              before = int((float(lane) + 0.5f) * platform::quick_reciprocal(float(flags)));
    int const local = local_first_ ? map_.k_chunks() : 0, mine = nth + before, i = slice_ + mine * split_k_;
    // Exact enough for numbers up to 2^22, and faster than an integer division
    int const chunk = int((float(i - local) + 0.5f) * platform::quick_reciprocal(float(platform::no_hoist(others_)))),
              peer = i - local - chunk * others_ + first_peer_,
              shard = gathers_k_ ? (peer < others_ ? peer : peer - others_) + (local_first_ ? rank_ + 1 : 0) : 0;
    bool const first_shard = i < local;
    int const in_shard = first_shard ? i : chunk, other = shard < map_.ranks ? shard : shard - map_.ranks,
              of = first_shard ? rank_ : other, left = of_shard_ - in_shard * of_chunk_;
    bool const local_chunk = of == local_;
    first_ = nth;
    column_ = in_shard * map_.chunk_k;
    left_ = clamp(left, 0, of_chunk_);  // no step behind the last chunk
    before_ = of * k_of_shard_;
    first_row_ = local_chunk ? local_row_ : of * rows_of_shard_ + row_;
    local_lanes_ = platform::ballot(local_chunk);
    bool const has_flag = mine < count_ && !local_chunk && tile_m_ >= 0;  // before begin() there is no M tile
    awaited_ = platform::ballot(has_flag);
    asked_ = 0;
    flag_at_ = 0;
    if (has_flag) {
      int const source = gathers_k_ ? of : first_owner_ + lane - before * flags;
      flag_at_ =
          int(e_.from(source, map_.flag(tile_m_, in_shard)) - e_.from(0, map_.flag(tile_m_, 0))) * int(sizeof(flag));
    }
  }
  /// The chunk that lane `lane` holds; from the first lane on, if the chunk's flags need more lanes than there are.
  __device__ place at(int lane) {
    if (lane + flags_of_chunk_ > wave::width) [[unlikely]]
      find_chunks(first_ + lane / flags_of_chunk_), lane = 0;
    return {lane, platform::readlane(column_, lane), platform::readlane(left_, lane),
            platform::readlane(before_, lane)};
  }

  /// Looks at what the lanes have loaded.
  __device__ void poll_prefetched() {
    std::uint64_t const up = platform::ballot(heard_ == e_.number()) & asked_;
    if (up == 0) return;
    platform::acquire_loaded<scope::system>();
    awaited_ &= ~up;
  }

  Epoch const& e_;
  gather_map const& map_;
  bool const gathers_k_, local_first_;
  int const rank_, slice_, split_k_, of_shard_, of_chunk_, k_of_shard_, rows_of_shard_, others_;
  int count_, steps_;  // this block's chunks; its steps
  // The M tile: its number and its owners; the first peer, from the next rank on; how many flags a chunk has; the
  // shard that is read in place, -1: none; its first row in the inbox, and in the local shard; the buffer that is the
  // inbox; the lanes of the first chunk, and those that ask while it is multiplied; the first flag of rank 0
  int tile_m_ = -1, first_owner_ = 0, last_owner_ = 0, first_peer_ = 0, flags_of_chunk_ = 1, local_ = -1, row_ = 0,
      local_row_ = 0, inbox_ = 0;
  std::uint64_t chunk_lanes_ = 1, asking_lanes_ = 0;
  flag const* flags_ = nullptr;
  // The lanes' chunks, from number first_ on. Of this lane's: column and steps in its shard, rows of B before the
  // shard's, the M tile's first row in the buffer that holds it, its flag's distance from flags_ in bytes. A bit for
  // each lane whose chunk is read in place, whose flag is not known to be up, and that has loaded its flag; the value
  // that this lane has loaded
  int first_ = -1, column_ = 0, left_ = 0, before_ = 0, first_row_ = 0, flag_at_ = 0;
  std::uint64_t local_lanes_ = 0, awaited_ = 0, asked_ = 0;
  epoch_t heard_ = 0;
};
static_assert(tile_source<gathered_chunks<>>);
/// The steps of a chunk are there together.
template <class Epoch>
inline constexpr bool whole_segments<gathered_chunks<Epoch>> = true;

}  // namespace fusewire
