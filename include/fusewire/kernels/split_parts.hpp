// Parts of an item that several blocks of a rank attend to. Each block leaves its part in memory, as words that say
// themselves which launch they are from; then each sums up its share of the item, as soon as the words are there. No
// flag is raised, no store is waited for, and no block does it for all.
//
//   block b      (o, m, l) of its split --words with the epoch--> its place --+
//   every block of the item          <--polls its share of the quads of all --+
//
// A block has two places, because it has at most one split that continues an item and one that begins an item and does
// not end it (decode_plan.hpp). Two slots of places, by parity of the epoch, because stamps are those of stamped.hpp.
// Reuse: words of a slot are written again two launches later on the same stream.
// Stamps repeat after 2^32 launches. Each launch takes the stamps from some words of the other slot, its successors
// from the next ones. So no stamp is 2^32 launches old when its word is read.
#pragma once
#include <bit>

#include <fusewire/device/stamped.hpp>
#include <fusewire/tile/softmax.hpp>

namespace fusewire {

/// Where the result of one item lies in a record of words: o by component, then (m, l) [heads].
struct decode_record {
  int heads, d;  // query heads that share a KV head

  /// Words of a record, in whole lines of 128 bytes.
  __host__ __device__ constexpr int words() const { return (heads * (d + 2) + 15) / 16 * 16; }
  /// Fours of neighbouring elements of o, of all heads.
  __host__ __device__ constexpr int quads() const { return heads * d / 4; }
  /// Component j of four number i.
  __device__ int o_word(int i, int j) const { return j * quads() + i; }
  /// The first of the two words (m, l) of the head that four number i is of.
  __device__ int scale_word(int i) const { return 4 * quads() + i / (d / 4) * 2; }
};

/// Passed to kernels by value.
struct split_parts_view {
  std::uint64_t* words;  // bytes(blocks, record), zero at first
  int blocks;            // of the largest launch

  static constexpr int slots = 2, places_of_block = 2;
  /// Bytes for launches of up to `blocks` blocks.
  static std::size_t bytes(int blocks, decode_record r) {
    return sizeof(std::uint64_t) * slots * places_of_block * std::size_t(blocks) * std::size_t(r.words());
  }
};

/// The places of one launch.
class split_parts {
 public:
  /// Neighbouring fours of o whose words lie in a line of 128 bytes.
  static constexpr int quads_of_line = 16;
  __device__ split_parts(split_parts_view const& x, decode_record r, epoch_t epoch) : x_(x), r_(r), epoch_(epoch) {}

  /// Stores four number i of the part of `block`. begins: the split begins its item.
  /// Called by: one thread for each i. Order: relaxed, device; no other store is published.
  __device__ void store(int block, bool begins, int i, softmax_part const& part) const {
    int const p = place(block, begins, epoch_);
#pragma unroll
    for (int j = 0; j < 4; ++j) put(p + r_.o_word(i, j), part.o.x[j]);
    if (i % (r_.d / 4) > 0) return;
    put(p + r_.scale_word(i), part.s.m);
    put(p + r_.scale_word(i) + 1, part.s.l);
  }

  /// Four number i of a part, as words that may not be this launch's yet.
  struct words {
    std::uint64_t scale[2], o[4];
  };
  /// Asks for those of the item's n-th part, the first of which `first_block` stores.
  __device__ words ask(int first_block, int n, int i) const {
    int const p = place(first_block + n, n == 0, epoch_);
    words w;
#pragma unroll
    for (int j = 0; j < 2; ++j) w.scale[j] = get(p + r_.scale_word(i) + j);
#pragma unroll
    for (int j = 0; j < 4; ++j) w.o[j] = get(p + r_.o_word(i, j));
    return w;
  }

  /// Takes the stamps from some words of the slot that this launch does not use. number: of the block among `blocks`.
  /// Called by: every thread of every block, in every launch.
  __device__ void renew(block b, int number, int blocks) const {
    int const turns = int(std::bit_ceil(unsigned(ceil_div(r_.words(), b.size())))),
              i = (int(epoch_ >> 1) & (turns - 1)) * b.size() + b.rank();
    if (i >= r_.words()) return;
#pragma unroll 1
    for (int n = number; n < x_.blocks; n += blocks)
#pragma unroll
      for (int begins = 0; begins < 2; ++begins)
        platform::atomic_store<order::relaxed, scope::device>(at(place(n, begins, epoch_ + 1) + i), std::uint64_t(0));
  }

 private:
  /// The number of a place's first word.
  __device__ int place(int block, bool begins, epoch_t epoch) const {
    return ((int(detail::slot_of(epoch)) * x_.blocks + block) * split_parts_view::places_of_block + begins) *
           r_.words();
  }
  /// Word i. One base and an offset of 32 bits take the fewest instructions.
  __device__ std::uint64_t* at(int i) const {
    return reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(x_.words) +
                                            unsigned(i) * unsigned(sizeof(std::uint64_t)));
  }
  template <stampable T>
  __device__ void put(int i, T x) const {
    platform::atomic_store<order::relaxed, scope::device>(at(i), stamped_word(x, epoch_));
  }
  __device__ std::uint64_t get(int i) const { return platform::atomic_load<order::relaxed, scope::device>(at(i)); }

  split_parts_view const& x_;
  decode_record r_;
  epoch_t epoch_;
};

}  // namespace fusewire
