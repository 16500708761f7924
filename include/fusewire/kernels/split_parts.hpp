// Parts of an item that several blocks of a rank attend to. Each block leaves its part in memory, as words that say
// themselves which launch they are from; then each sums up its share of the item, as soon as the words are there. No
// flag is raised, no store is waited for, and no block does it for all.
//
//   each block   (o, m, l) of its split --words with the epoch--> its place
//                its share of all places --polled--> sum
//
// A block has two places, because it has at most one split that continues an item and one that begins an item and does
// not end it (decode_plan.hpp). Two slots of places, by parity of the epoch, because stamps are those of stamped.hpp.
// Reuse: words of a slot are written again two launches later on the same stream.
// Stamps repeat after 2^32 launches. Of each 2^16 launches of the channel, those among the first 64 that are this
// operator's take the stamps from all words of the other slot, which nobody reads or writes then: the launch before is
// over, the next one has not begun. So no stamp is 2^32 launches old when its word is read.
// One case is not covered: an operator whose launches all have epochs of one parity, or that has no launch among all
// these, while the channel makes 2^32 launches.
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

/// What a block sums up of an item whose splits are those of `splits` blocks from first_block on: fours [begin, end) of
/// o, in whole lines of the parts.
struct item_share {
  int item = 0, first_block = 0, splits = 0, begin = 0, end = 0;

  /// The share of block first_block + mine. Uniform in a wave.
  __device__ static item_share of(int item, int first_block, int splits, int mine, decode_record r) {
    int const lines = r.quads() / quads_of_line;
    auto const begin_of = [&](int n) { return lines * n / splits * quads_of_line; };
    return item_share{item, first_block, splits, begin_of(mine), begin_of(mine + 1)}.uniform();
  }
  /// The same where the compiler does not know that it is uniform.
  __device__ item_share uniform() const {
    return {platform::uniform(item), platform::uniform(first_block), platform::uniform(splits),
            platform::uniform(begin), platform::uniform(end)};
  }

 private:
  static constexpr int quads_of_line = 16;  // words of 8 bytes in 128
};

/// The places of one launch, for blocks of Threads threads.
template <int Threads>
class split_parts {
 public:
  /// Of `period` launches of a channel the first `renewing` take stamps.
  static constexpr epoch_t period = 1 << 16, renewing = 64;
  /// Bytes of LDS that sum() needs, at a multiple of 16.
  static constexpr int shared_bytes = Threads * int(sizeof(quad) + sizeof(softmax_scale));

  __device__ split_parts(split_parts_view const& x, decode_record r, channel_epoch const& e, world_view const& w)
      : x_(x), r_(r), e_(e), w_(w) {}

  /// Stores four number i of the part of `block`. begins: the split begins its item.
  /// Called by: one thread for each i. Order: relaxed, device; no other store is published.
  __device__ void store(int block, bool begins, int i, softmax_part const& part) const {
    int const p = place(block, begins, e_.number());
#pragma unroll
    for (int j = 0; j < 4; ++j) put(p + r_.o_word(i, j), part.o.x[j]);
    if (i % (r_.d / 4) > 0) return;
    put(p + r_.scale_word(i), part.s.m);
    put(p + r_.scale_word(i) + 1, part.s.l);
  }

  /// Waits for all parts of a share and sums them up, in an order that the number of splits decides. For each four i of
  /// the share, `of` threads call take(i, sum, n, of), n = 0 to of - 1. l is NaN if the wait was given up; name() says
  /// what the report then names.
  /// Called by: every thread of the block.
  template <class Name, class Take>
  __device__ void sum(block b, item_share const& x, void* shared, Name const& name, Take const& take) const {
    // Where there are many splits, 8 or 16 threads read those of a four
    int const log_readers = x.splits >= 16  ? 4
                            : x.splits >= 8 ? 3
                                            : 0,
              readers = 1 << log_readers, log_quads = log_threads - log_readers, quads = 1 << log_quads,
              of_reader = (x.splits + readers - 1) >> log_readers, rank = platform::lane_not_ahead(b.rank());
#pragma unroll 1
    for (int at = x.begin; at < x.end; at += quads) {
      // Neighbouring threads read neighbouring fours of one split: whole lines
      int const first = (rank >> log_quads) * of_reader, left = x.splits - first;
      int i = at + (rank & (quads - 1)), n = 0;
      softmax_part sum = sum_some(x, first, left < of_reader ? left : of_reader, i < x.end ? i : x.end - 1, name);
      if (readers > 1) {
        i = at + (rank >> log_readers);
        n = rank & (readers - 1);
        sum = over_readers(b, sum, shared, (n << log_quads) + i - at, log_readers);
      }
      if (i < x.end) take(i, sum, n, readers);
    }
  }

  /// From time to time, takes the stamps from all words of the slot that this launch does not use. number: of the block
  /// among `blocks`.
  /// Called by: every thread of every block, in every launch.
  __device__ void renew(block b, int number, int blocks) const {
    if (e_.number() % period >= renewing) return;
#pragma unroll 1
    for (int n = number; n < x_.blocks; n += blocks)
      for (int i = b.rank(); i < 2 * r_.words(); i += b.size())
        platform::atomic_store<order::relaxed, scope::device>(at(place(n, false, e_.number() + 1) + i),
                                                              std::uint64_t(0));
  }

 private:
  static constexpr int log_threads = std::countr_zero(unsigned(Threads)), at_once = 2;  // splits

  struct words {
    std::uint64_t scale[2], o[4];
  };
  /// Asks for four number i of the item's n-th part.
  __device__ words ask(item_share const& x, int n, int i) const {
    int const p = place(x.first_block + n, n == 0, e_.number());
    words w;
#pragma unroll
    for (int j = 0; j < 2; ++j) w.scale[j] = get(p + r_.scale_word(i) + j);
#pragma unroll
    for (int j = 0; j < 4; ++j) w.o[j] = get(p + r_.o_word(i, j));
    return w;
  }
  /// The sum of `count` splits from number `first` on; of none if count is not positive.
  template <class Name>
  __device__ softmax_part sum_some(item_share const& x, int first, int count, int i, Name const& name) const {
    stamped_reader read(e_, w_);
    auto const look = [&](std::uint64_t word) { return read.take(word); };
    softmax_part sum;
    do {
      words w[at_once]{};
      sum = combine_parts<at_once>(
          count < 1 ? 1 : count, [&](int, int k) { return softmax_scale{look(w[k].scale[0]), look(w[k].scale[1])}; },
          [&](int, int k) { return quad{{look(w[k].o[0]), look(w[k].o[1]), look(w[k].o[2]), look(w[k].o[3])}}; },
          [&](int n) {
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
              int const split = first + n + k, last = x.splits - 1;
              w[k] = ask(x, split < last ? split : last, i);
            }
            platform::keep_order();
          });
    } while (read.again(name));
    if (count < 1) sum = {};
    if (read.gave_up()) sum.s.l = __builtin_nanf("");
    return sum;
  }
  /// The sum over the readers of a four. Each thread passes what it has read and gets what thread `from` has; those
  /// with parts of one four are neighbours then, and all of them get the sum.
  __device__ static softmax_part over_readers(block b, softmax_part x, void* shared, int from, int log_readers) {
    auto* const o = static_cast<quad*>(shared);
    auto* const scales = reinterpret_cast<softmax_scale*>(o + Threads);
    b.sync();  // what was here has been read
    o[b.rank()] = x.o;
    scales[b.rank()] = x.s;
    b.sync();
    x = {o[from], scales[from]};
    auto const reduced = [&](float a, auto const& f) {
      a = f(a, platform::of_other_half<0>(a));
      a = f(a, platform::of_other_half<1>(a));
      a = f(a, platform::of_other_half<2>(a));
      return log_readers == 4 ? f(a, platform::of_other_half<3>(a)) : a;
    };
    auto const sum = [](float a, float b) { return a + b; };
    float const m = reduced(x.s.m, [](float a, float b) { return fmaxf(a, b); }), weight = softmax_weight(x.s.m, m);
    x.s = {m, reduced(x.s.l * weight, sum)};
#pragma unroll
    for (int j = 0; j < 4; ++j) x.o.x[j] = reduced(x.o.x[j] * weight, sum);
    return x;
  }

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
    platform::atomic_store<order::relaxed, scope::device>(at(i), stamped_word(x, e_.number()));
  }
  __device__ std::uint64_t get(int i) const { return platform::atomic_load<order::relaxed, scope::device>(at(i)); }

  split_parts_view const& x_;
  decode_record r_;
  channel_epoch const& e_;
  world_view const& w_;
};

}  // namespace fusewire
