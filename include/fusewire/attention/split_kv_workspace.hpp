// Split-KV reduction within a rank. Each block writes its partial (o, m, l) of a head item as LL words; then each
// reduces one slice of the outputs, as the words arrive. No flag is raised, no store is waited for, and no block does
// it for all.
//
//   each block   (o, m, l) of its split --LL words, scope::device--> its record
//                its slice of all records --polled--> sum
//
// A block has two records, because it has at most one split that continues a head item and one that begins a head item
// and does not end it (kv_splits.hpp). Batch-invariant, each piece of a head item has one. device/ll.hpp has the rules.
// Reuse: a slot is written again two launches later on the same stream.
#pragma once
#include <fusewire/attention/decode_record.hpp>
#include <fusewire/attention/softmax_reduce.hpp>
#include <fusewire/core/partition.hpp>

namespace fusewire {

/// Passed to kernels by value.
struct split_kv_view {
  using word = ll_word<scope::device>;
  word* words;  // 2 slots of [records][record.words()], zero at first
  int records;  // 2 for each block of the largest launch; or for each head item as many as it can have pieces

  /// Words for launches of up to `records` records.
  static std::size_t size(int records, decode_record r) {
    return std::size_t(2) * std::size_t(records) * std::size_t(r.words());
  }
};

/// What a block reduces of a head item whose splits are those of `splits` blocks from `first` on, or pieces with
/// records from `first` on: vec4s [begin, end) of o, in whole lines of the records.
struct head_item_slice {
  int item = 0, first = 0, splits = 0, begin = 0, end = 0;

  /// The slice of block or piece first + mine. Uniform in a wave.
  __device__ static head_item_slice of(int item, int first, int splits, int mine, decode_record r) {
    index_range const slice = even_slice(r.vec4s(), splits, mine, vec4s_per_line);
    return head_item_slice{item, first, splits, slice.begin, slice.end}.uniform();
  }
  /// The same where the compiler does not know that it is uniform.
  __device__ head_item_slice uniform() const {
    return {platform::uniform(item), platform::uniform(first), platform::uniform(splits), platform::uniform(begin),
            platform::uniform(end)};
  }

 private:
  static constexpr int vec4s_per_line = 16;  // words of 8 bytes in 128
};

/// The records of one launch. Pieces: batch-invariant.
template <decode_policy Policy, bool Pieces = false>
class split_kv_workspace {
 public:
  __device__ split_kv_workspace(split_kv_view const& x, decode_record r, channel_epoch const& e, world_view const& w)
      : x_(x), r_(r), e_(e), w_(w) {}

  /// The record of a block's split; begins: it begins its head item.
  __device__ static int of_block(int block, bool begins) { return 2 * block + begins; }

  /// Stores vec4 i of a partial into a record.
  /// Called by: one thread for each i. Order: relaxed, device; no other store is published.
  __device__ void store(int record, int i, softmax_partial const& partial) const {
    int const p = first_word(record);
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
          int const p = first_word(Pieces ? x.first + n : of_block(x.first + n, n == 0));
          return vec4_words::loaded([&](int j) { return ll_load(at(p + r_.word(i, j))); });
        },
        [&](ll_reader const&, int, int, int) { return name(); }, consume);
  }

  /// Refreshes the record whose turn it is (ll_turn), unless this launch writes it: `continues` and `begins` say which
  /// records this block has written. number: of the block among `blocks`.
  /// Called by: every thread of every block, in every launch, after its splits.
  __device__ void refresh(block b, int number, int blocks, bool continues, bool begins) const {
    unsigned const all = unsigned(x_.records), turn = ll_turn(e_.number(), all);
    int const owner = int(turn / 2);
    if (turn >= all || owner % blocks != number) return;
    if (owner < blocks && (turn % 2 ? begins : continues)) return;
    ll_clear(b, at(first_word(int(turn))), r_.words());
  }
  /// The same where pieces have the records: used(record) says whether this launch writes it.
  /// Called by: every thread of one block, in every launch.
  template <class Used>
  __device__ void refresh_piece(block b, Used const& used) const {
    unsigned const all = unsigned(x_.records), turn = ll_turn(e_.number(), all);
    if (turn < all && !used(int(turn))) ll_clear(b, at(first_word(int(turn))), r_.words());
  }

 private:
  static constexpr int log_readers = std::countr_zero(unsigned(Policy.split_readers));

  /// The number of a record's first word.
  __device__ int first_word(int record) const {
    return (int(detail::slot_of(e_.number())) * x_.records + record) * r_.words();
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
