// Split-KV reduction within a rank. Each block writes its partial (o, m, l) of a head item as LL words; then each
// reduces one slice of the outputs, as the words arrive. No flag is raised, no store is waited for, and no block does
// it for all.
//
//   each block   (o, m, l) of its split --LL words, scope::device--> its record
//                its slice of all records --polled--> sum
//
// A block has two records, because it has at most one split that continues a head item and one that begins a head item
// and does not end it (kv_splits.hpp). device/ll.hpp has the rules. Reuse: a slot is written again two launches later
// on the same stream.
#pragma once
#include <fusewire/attention/decode_record.hpp>
#include <fusewire/attention/softmax_reduce.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// Passed to kernels by value.
struct split_kv_view {
  using word = ll_word<scope::device>;
  word* words;  // 2 slots of [blocks][2][record.words()], zero at first
  int blocks;   // of the largest launch

  /// Words for launches of up to `blocks` blocks.
  static std::size_t size(int blocks, decode_record r) {
    return std::size_t(4) * std::size_t(blocks) * std::size_t(r.words());
  }
};

/// What a block reduces of a head item whose splits are those of `splits` blocks from first_block on: vec4s [begin,
/// end) of o, in whole lines of the records.
struct head_item_slice {
  int item = 0, first_block = 0, splits = 0, begin = 0, end = 0;

  /// The slice of block first_block + mine. Uniform in a wave.
  __device__ static head_item_slice of(int item, int first_block, int splits, int mine, decode_record r) {
    index_range const slice = even_slice(r.vec4s(), splits, mine, vec4s_per_line);
    return head_item_slice{item, first_block, splits, slice.begin, slice.end}.uniform();
  }
  /// The same where the compiler does not know that it is uniform.
  __device__ head_item_slice uniform() const {
    return {platform::uniform(item), platform::uniform(first_block), platform::uniform(splits),
            platform::uniform(begin), platform::uniform(end)};
  }

 private:
  static constexpr int vec4s_per_line = 16;  // words of 8 bytes in 128
};

/// The records of one launch.
template <decode_policy Policy>
class split_kv_workspace {
 public:
  __device__ split_kv_workspace(split_kv_view const& x, decode_record r, channel_epoch const& e, world_view const& w)
      : x_(x), r_(r), e_(e), w_(w) {}

  /// Stores vec4 i of the partial of `block`. begins: the split begins its head item.
  /// Called by: one thread for each i. Order: relaxed, device; no other store is published.
  __device__ void store(int block, bool begins, int i, softmax_partial const& partial) const {
    int const p = record(block, begins);
    auto const put = [&](int j, float x) { ll_store(at(p + r_.word(i, j)), x, e_.number()); };
#pragma unroll
    for (int j = 0; j < 4; ++j) put(j, partial.o.x[j]);
    if (!r_.begins_head(i)) return;
    put(4, partial.s.m);
    put(5, partial.s.l);
  }

  /// Waits for all partials of a slice and reduces them, in an order that the number of splits decides. name() says
  /// what the report of a failed wait names; consume(): as reduce_partials(). Called by: every thread of the block.
  template <class Name, class Consume>
  __device__ void reduce(head_item_slice const& x, Name const& name, Consume const& consume) const {
    reduce_partials<Policy>(
        e_, w_, x.begin, x.end, x.splits, x.splits >= 8 ? log_readers : 0,
        [&](int n, int i) {
          int const p = record(x.first_block + n, n == 0);
          return vec4_words::loaded([&](int j) { return ll_load(at(p + r_.word(i, j))); });
        },
        [&](ll_reader const&, int, int, int) { return name(); }, consume);
  }

  /// Refreshes the record whose turn it is (ll_turn), unless this launch writes it: `continues` and `begins` say which
  /// records this block has written. number: of the block among `blocks`.
  /// Called by: every thread of every block, in every launch, after its splits.
  __device__ void refresh(block b, int number, int blocks, bool continues, bool begins) const {
    unsigned const all = 2 * unsigned(x_.blocks), turn = ll_turn(e_.number(), all);
    int const owner = int(turn / 2);
    if (turn >= all || owner % blocks != number) return;
    if (owner < blocks && (turn % 2 ? begins : continues)) return;
    ll_clear(b, at(record(owner, turn % 2)), r_.words());
  }

 private:
  static constexpr int log_readers = std::countr_zero(unsigned(Policy.split_readers));

  /// The number of a record's first word.
  __device__ int record(int block, bool begins) const {
    return ((int(detail::slot_of(e_.number())) * x_.blocks + block) * 2 + begins) * r_.words();
  }
  /// Word i. One base and an offset of 32 bits take the fewest instructions.
  __device__ split_kv_view::word* at(int i) const {
    return reinterpret_cast<split_kv_view::word*>(reinterpret_cast<std::byte*>(x_.words) +
                                                  unsigned(i) * unsigned(sizeof(split_kv_view::word)));
  }

  split_kv_view const& x_;
  decode_record r_;
  channel_epoch const& e_;
  world_view const& w_;
};

}  // namespace fusewire
