// Parts of an item that several blocks of a rank attend to. Each block leaves its part in memory, as words that say
// themselves which launch they are from; then each sums up its share of the item, as soon as the words are there. No
// flag is raised, no store is waited for, and no block does it for all.
//
//   each block   (o, m, l) of its split --words with the epoch--> its place
//                its share of all places --polled--> sum
//
// A block has two places, because it has at most one split that continues an item and one that begins an item and does
// not end it (kv_splits.hpp). Two slots of places, by parity of the epoch, because stamps are those of stamped.hpp.
// Reuse: words of a slot are written again two launches later on the same stream.
// Stamps repeat after 2^32 launches. Of each 2^16 launches of the channel, those among the first 64 that are this
// operator's take the stamps from all words of the other slot, which nobody reads or writes then: the launch before is
// over, the next one has not begun. So no stamp is 2^32 launches old when its word is read.
// One case is not covered: an operator whose launches all have epochs of one parity, or that has no launch among all
// these, while the channel makes 2^32 launches.
#pragma once
#include <fusewire/attention/decode_record.hpp>
#include <fusewire/attention/softmax_reduce.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// Passed to kernels by value.
struct split_kv_view {
  std::uint64_t* words;  // bytes(blocks, record), zero at first
  int blocks;            // of the largest launch

  static constexpr int slots = 2, places_of_block = 2;
  /// Bytes for launches of up to `blocks` blocks.
  static std::size_t bytes(int blocks, decode_record r) {
    return sizeof(std::uint64_t) * slots * places_of_block * std::size_t(blocks) * std::size_t(r.words());
  }
};

/// What a block sums up of an item whose splits are those of `splits` blocks from first_block on: fours [begin, end) of
/// o, in whole lines of the parts.
struct head_item_slice {
  int item = 0, first_block = 0, splits = 0, begin = 0, end = 0;

  /// The share of block first_block + mine. Uniform in a wave.
  __device__ static head_item_slice of(int item, int first_block, int splits, int mine, decode_record r) {
    index_range const slice = even_slice(r.quads(), splits, mine, quads_of_line);
    return head_item_slice{item, first_block, splits, slice.begin, slice.end}.uniform();
  }
  /// The same where the compiler does not know that it is uniform.
  __device__ head_item_slice uniform() const {
    return {platform::uniform(item), platform::uniform(first_block), platform::uniform(splits),
            platform::uniform(begin), platform::uniform(end)};
  }

 private:
  static constexpr int quads_of_line = 16;  // words of 8 bytes in 128
};

/// The places of one launch.
template <decode_policy Policy>
class split_kv_workspace {
 public:
  /// Of `period` launches of a channel the first `renewing` take stamps.
  static constexpr epoch_t period = 1 << 16, renewing = 64;

  __device__ split_kv_workspace(split_kv_view const& x, decode_record r, channel_epoch const& e, world_view const& w)
      : x_(x), r_(r), e_(e), w_(w) {}

  /// Stores four number i of the part of `block`. begins: the split begins its item.
  /// Called by: one thread for each i. Order: relaxed, device; no other store is published.
  __device__ void store(int block, bool begins, int i, softmax_part const& part) const {
    int const p = place(block, begins, e_.number());
#pragma unroll
    for (int j = 0; j < 4; ++j) put(p + r_.word(i, j), part.o.x[j]);
    if (!r_.begins_head(i)) return;
    put(p + r_.word(i, 4), part.s.m);
    put(p + r_.word(i, 5), part.s.l);
  }

  /// Waits for all parts of a share and sums them up, in an order that the number of splits decides. name() says what
  /// the report of a failed wait names; take(): as sum_parts().
  /// Called by: every thread of the block.
  template <class Name, class Take>
  __device__ void sum(head_item_slice const& x, Name const& name, Take const& take) const {
    sum_parts<Policy>(
        e_, w_, x.begin, x.end, x.splits, x.splits >= 8 ? log_readers : 0,
        [&](int n, int i) {
          int const p = place(x.first_block + n, n == 0, e_.number());
          return quad_words::asked([&](int j) { return get(p + r_.word(i, j)); });
        },
        [&](stamped_reader const&, int, int, int) { return name(); }, take);
  }

  /// From time to time, takes the stamps from all words of the slot that this launch does not use. number: of the block
  /// among `blocks`.
  /// Called by: every thread of every block, in every launch.
  __device__ void renew(block b, int number, int blocks) const {
    if (e_.number() % period >= renewing) return;
#pragma unroll 1
    for (int n = number; n < x_.blocks; n += blocks)
      for (int i = b.rank(); i < 2 * r_.words(); i += Policy.waves * wave::width)
        platform::atomic_store<order::relaxed, scope::device>(at(place(n, false, e_.number() + 1) + i),
                                                              std::uint64_t(0));
  }

 private:
  static constexpr int log_readers = std::countr_zero(unsigned(Policy.split_readers));

  /// The number of a place's first word.
  __device__ int place(int block, bool begins, epoch_t epoch) const {
    return ((int(detail::slot_of(epoch)) * x_.blocks + block) * split_kv_view::places_of_block + begins) * r_.words();
  }
  /// Word i. One base and an offset of 32 bits take the fewest instructions.
  __device__ std::uint64_t* at(int i) const {
    return reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(x_.words) +
                                            unsigned(i) * unsigned(sizeof(std::uint64_t)));
  }
  template <stampable T>
  __device__ void put(int i, T x) const {
    platform::atomic_store<order::relaxed, scope::device>(at(i), stamped_word(x, e_.number()));
  }
  __device__ std::uint64_t get(int i) const { return platform::atomic_load<order::relaxed, scope::device>(at(i)); }

  split_kv_view const& x_;
  decode_record r_;
  channel_epoch const& e_;
  world_view const& w_;
};

}  // namespace fusewire
