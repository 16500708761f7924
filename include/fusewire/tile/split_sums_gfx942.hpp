// The splits of an item on gfx942: parts are stored and loaded at device scope, past the caches that other XCDs do not
// see, so no cache is written back or emptied; and an instruction of a wave takes four cycles, so weights are computed
// once for each split and head, and not by every thread that uses them.
//
//   store   (o, m, l) --device scope--> memory;  drained, the block meets --> ticket
//   open    o of the thread's four, of all splits at once --> registers;  (m, l) --> LDS --> weights
//   sum     weights x o, in the order of the splits
//
// Order: as part_sums_gfx942.hpp. A wave has stored when drain_stores() returns, and the block meets before its ticket
// is counted; loads follow the count that says that all are there, and a barrier.
#pragma once
#include <fusewire/device/flag.hpp>
#include <fusewire/tile/buffer_gfx942.hpp>
#include <fusewire/tile/softmax.hpp>

namespace fusewire {

/// Words of which a ticket takes one: those of other items lie in other lines, on which atomics wait for each other.
inline constexpr int split_ticket_words = 32;

/// How the sums over the splits of an item are made: see flash_decode_kernels.hpp. Record: decode_record.
template <class Record, int D>
class split_sums {
 public:
  /// `shared`: LDS for (m, l) of all splits of all heads. `maxima`: a word for each head.
  __device__ split_sums(Record r, softmax_scale* shared, unsigned* maxima) : r_(r), weights_(shared), maxima_(maxima) {}

  /// Four number i of this block's part, into its place in memory.
  __device__ void store(float* place, int i, softmax_part const& part) const {
    records(place, 1).store_through(__builtin_bit_cast(bytes16, part.o), i * int(sizeof(quad)));
    if (i % (D / 4) == 0)
      platform::atomic_store<order::relaxed, scope::device>(
          reinterpret_cast<std::uint64_t*>(&r_.scale(place, i / (D / 4))), __builtin_bit_cast(std::uint64_t, part.s));
  }
  /// Whether this block is the last of `splits` that have stored their parts. As fusewire::last_to_arrive() but for the
  /// order, which is above.
  [[nodiscard]] __device__ bool last_to_arrive(block b, unsigned* ticket, unsigned splits, int* word) const {
    platform::drain_stores();
    b.sync();
    if (b.rank() < r_.heads) maxima_[b.rank()] = 0;
    return detail::from_leader(b, word, [&] {
             bool const last = platform::atomic_fetch_add<order::relaxed, scope::device>(ticket, 1u) + 1 == splits;
             if (last) platform::atomic_store<order::relaxed, scope::device>(ticket, 0u);
             return int(last);
           }) != 0;
  }
  /// Called by: every thread of the last block to arrive, before sum(). first: the place of the item's first split; the
  /// others' follow.
  __device__ void open(block b, float const* first, int splits) {
    first_ = first;
    splits_ = platform::uniform(splits);
    unsigned const head = unsigned(b.rank()) % heads, begin = unsigned(b.rank()) / heads,
                   step = unsigned(b.size()) / heads, end = unsigned(splits_ + at_once - 1) / at_once * at_once;
    softmax_scale* const mine = weights_ + head * capacity;
    if (int(head) < r_.heads)
#pragma unroll 3
      for (unsigned n = begin; n < end; n += step) {
        softmax_scale s;
        if (int(n) < splits_)
          s = __builtin_bit_cast(
              softmax_scale,
              platform::atomic_load<order::relaxed, scope::device>(
                  reinterpret_cast<std::uint64_t const*>(&r_.scale(first, int(head))) + n * unsigned(r_.floats() / 2)));
        mine[n] = s;
        platform::atomic_fetch_max<order::relaxed, scope::block>(maxima_ + head, ordered(s.m));
      }
    b.sync();
    if (int(head) < r_.heads) {
      float const m = number(maxima_[head]);
#pragma unroll 1
      for (unsigned n = begin; n < end; n += step) {
        softmax_scale const s = mine[n];
        float const weight = softmax_weight(s.m, m);
        mine[n] = {weight, s.l * weight};
      }
    }
    b.sync();
  }
  /// Four number i of the sum over the splits, in their order.
  __device__ softmax_part sum(int i) const {
    int const head = i / (D / 4);
    auto const all = records(first_, splits_);
    softmax_part sum;
    sum.s.m = number(maxima_[head]);
    two_twos twos{};
#pragma unroll 1
    for (int first = 0; first < splits_; first += at_once) {
      softmax_scale const* const weights = weights_ + head * capacity + first;
      two_twos o[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        o[k] = __builtin_bit_cast(two_twos, all.load_through(i * int(sizeof(quad)), (first + k) * bytes()));
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        softmax_scale const w = weights[k];
        sum.s.l += w.l;
        twos.low = __builtin_elementwise_fma(o[k].low, two{w.m, w.m}, twos.low);
        twos.high = __builtin_elementwise_fma(o[k].high, two{w.m, w.m}, twos.high);
      }
    }
    sum.o = __builtin_bit_cast(quad, twos);
    return sum;
  }

 private:
  /// At most; splits of an item, at most
  static constexpr int heads = 16, capacity = 264;
  /// More than one sequence of 12 KV heads has on 304 units: read in one latency
  static constexpr int at_once = 33;
  static_assert(capacity % at_once == 0);

  /// Operands of v_pk_fma_f32.
  using two = float __attribute__((ext_vector_type(2)));
  struct two_twos {
    two low, high;
  };

  /// A float as a number without sign, in the same order, and back. 0 is below all.
  __device__ static unsigned ordered(float x) {
    auto const bits = __builtin_bit_cast(unsigned, x);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
  }
  __device__ static float number(unsigned x) {
    return __builtin_bit_cast(float, x ^ (x >> 31 ? 0x80000000u : 0xffffffffu));
  }

  /// `count` records from a place on that is the same in all lanes; what lies beyond them is 0.
  __device__ memory_buffer records(float const* place, int count) const {
    auto const at = reinterpret_cast<std::uint64_t>(place);
    auto const low = unsigned(platform::uniform(int(at))), high = unsigned(platform::uniform(int(at >> 32)));
    return {reinterpret_cast<void const*>(std::uint64_t(high) << 32 | low), unsigned(count * bytes())};
  }
  __device__ int bytes() const { return r_.floats() * int(sizeof(float)); }

  Record r_;
  softmax_scale* weights_;  // [heads][capacity]: (m, l), then the weight and l times it
  unsigned* maxima_;        // [heads], ordered()
  float const* first_ = nullptr;
  int splits_ = 1;
};

}  // namespace fusewire
