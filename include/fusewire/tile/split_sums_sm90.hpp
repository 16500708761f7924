// The splits of an item on sm_90: plain stores, a release and an acquire around a ticket, and sums of 12 splits at a
// time.
#pragma once
#include <fusewire/device/ticket.hpp>
#include <fusewire/tile/softmax.hpp>

namespace fusewire {

/// Words of which a ticket takes one.
inline constexpr int split_ticket_words = 1;

/// How the sums over the splits of an item are made: see flash_decode_kernels.hpp. Record: decode_record.
template <class Record, int D>
class split_sums {
 public:
  /// `shared`: LDS for (m, l) of all splits of all heads. The third: a word for each head.
  __device__ split_sums(Record r, softmax_scale* shared, unsigned*) : r_(r), scales_(shared) {}

  /// Four number i of this block's part, into its place in memory.
  __device__ void store(float* place, int i, softmax_part const& part) const {
    r_.o(place, i) = part.o;
    if (i % (D / 4) == 0) r_.scale(place, i / (D / 4)) = part.s;
  }
  /// Whether this block is the last of `splits` that have stored their parts. As last_to_arrive().
  [[nodiscard]] __device__ bool last_to_arrive(block b, unsigned* ticket, unsigned splits, int* word) const {
    return fusewire::last_to_arrive(b, ticket, splits, word);
  }
  /// Called by: every thread of the last block to arrive, before sum(). first: the place of the item's first split; the
  /// others' follow.
  __device__ void open(block b, float const* first, int splits) {
    first_ = first;
    splits_ = splits;
    for (int i = b.rank(); i < splits * r_.heads; i += b.size())
      scales_[i] = r_.scale(first + i / r_.heads * r_.floats(), i % r_.heads);
    b.sync();
  }
  /// Four number i of the sum over the splits, in their order.
  __device__ softmax_part sum(int i) const {
    return combine_parts<at_once>(
        splits_, [&](int n) { return scales_[n * r_.heads + i / (D / 4)]; },
        [&](int n) { return r_.o(first_ + n * r_.floats(), i); });
  }

 private:
  /// As many as one sequence of 12 KV heads has on 132 units: read in one latency
  static constexpr int at_once = 12;

  Record r_;
  softmax_scale* scales_;
  float const* first_ = nullptr;
  int splits_ = 1;
};

}  // namespace fusewire
