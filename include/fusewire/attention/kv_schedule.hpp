// How the KV of a batch is cut into splits, on the device and from the lengths alone, so that a captured graph replays
// with new lengths.
//
//   sequence 0, head 0 | sequence 0, head 1 | ...                 | sequence 1, head 0 | ...
//   [128][128][128][..]|[128][128][128][..] |                     |[128][..]
//   `------ block 0 ------'`------ block 1 ------'`--- ...
//
// An item is a sequence and a KV head. Its tokens are cut into units of 128, an empty one has one unit all the same.
// The units of all items, one after the other, are dealt to the blocks in equal runs: every block reads about the same
// number of bytes, whatever the lengths. A split is what a run and an item have in common: all of an item's splits but
// the first begin a run, all but the last end one, so a block has at most one split that continues an item and one that
// starts an item and does not end it. A switch from one item to the next costs a block as much as some units do, so
// that many empty units separate items. If all items have the same number of units, as in a batch of
// one, runs end where items do, unless that makes a run longer. Then there are fewer splits.
#pragma once
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/group.hpp>
#include <fusewire/core/math.hpp>

namespace fusewire {

/// The lengths of a launch, and how their units are dealt to its blocks.
struct decode_lengths {
  std::int32_t const* tokens;       // [batch]; what is outside 0 to max_tokens is taken as the nearest of them
  int batch, max_tokens, kv_heads;  // sequences; the capacity of a shard, or one more to tell longer ones; KV heads
  divisor heads, runs;              // kv_heads; as many runs as there can be
  divisor runs_per_item;            // rounded down, at least 1
  int items_per_run;                // rounded up

  /// For a grid of `blocks`.
  decode_lengths(std::int32_t const* n, int sequences, int max, int kv, int blocks)
      : tokens(n), batch(sequences), max_tokens(max), kv_heads(kv), heads(kv), runs(runs_of(blocks, kv)),
        runs_per_item(runs_of(blocks, kv) < sequences * kv ? 1 : runs_of(blocks, kv) / (sequences * kv)),
        items_per_run((sequences * kv - 1) / runs_of(blocks, kv) + 1) {}

  static constexpr int unit = 128;        // tokens
  static constexpr int gap = 4;           // units between items
  static constexpr int max_splits = 264;  // of an item

  /// Runs that a grid of `blocks` has, with `kv` KV heads.
  static constexpr int runs_of(int blocks, int kv) { return blocks < max_runs(kv) ? blocks : max_runs(kv); }
  /// No item is longer than a head of all sequences
  static constexpr int max_runs(int kv) { return (max_splits - 1) * kv; }
  /// Units of an item of `tokens` tokens, at least one.
  __host__ __device__ static constexpr int units_of(int tokens) { return tokens <= unit ? 1 : (tokens - 1) / unit + 1; }
  /// Tokens of a sequence, within 0 to max_tokens.
  __device__ int of(int sequence) const {
    int const n = tokens[sequence];
    return n < 0 ? 0 : n > max_tokens ? max_tokens : n;
  }
};

/// The splits of one block, in order.
class kv_schedule {
 public:
  /// Called by: every thread of the block. `shared` is five words of its shared memory. number: of the run, 0 to blocks
  /// - 1.
  __device__ kv_schedule(block b, decode_lengths const& l, int* shared, int number) : l_(l) {
    bool const alone = !platform::has_pdl && l.batch == 1;  // each wave makes the plan, and none waits
    int all;
    if (alone) {
      enter(0, 0);
      dealing const d = deal(units_, units_ + l.gap);
      length_ = d.length;
      gap_ = d.gap;
      all = (units_ + gap_) * l.kv_heads;
    } else {
      if (wave{}.index() == 0) find(number, shared);
      b.sync();
      all = platform::uniform(shared[1]) * l.kv_heads;
      length_ = platform::uniform(shared[0]);
      gap_ = platform::uniform(shared[4]);
    }
    at_ = length_ * number;
    end_ = at_ + length_ < all ? at_ + length_ : all;
    if (at_ >= end_) return;
    if (!alone) enter(platform::uniform(shared[2]), platform::uniform(shared[3]) * l.kv_heads);
    head_ = (at_ - item_) / (units_ + gap_);
    item_ += head_ * (units_ + gap_);
    if (at_ >= item_ + units_) next();
  }

  /// Whether the split reads its shard's last token.
  __device__ bool has_last_token() const { return !done() && stop() == item_ + units_; }
  /// Whether the block has no split left.
  __device__ bool done() const { return at_ >= end_; }

  // The split.
  /// Of the split, 0 to batch - 1.
  __device__ int sequence() const { return sequence_; }
  /// Tokens of the sequence, as decode_lengths::of().
  __device__ int tokens() const { return tokens_; }
  /// KV head of the split.
  __device__ int head() const { return head_; }
  /// Number of the split's item: sequence x KV heads + head.
  __device__ int item() const { return sequence_ * l_.kv_heads + head_; }
  __device__ int begin() const { return (at_ - item_) * decode_lengths::unit; }  // tokens
  /// First token of the item that is not the split's.
  __device__ int end() const {
    int const tokens = (stop() - item_) * decode_lengths::unit;
    return tokens < tokens_ ? tokens : tokens_;
  }
  /// Whether the split begins its item.
  __device__ bool starts() const { return at_ == item_; }
  /// Whether the split is all of its item.
  __device__ bool whole() const { return starts() && stop() == item_ + units_; }
  // Those that have splits of the item.
  /// The first block with a split of the item.
  __device__ int first_block() const { return item_ / length_; }
  /// The last block with a split of the item.
  __device__ int last_block() const { return (item_ + units_ - 1) / length_; }

  /// Goes on to the next split. Requires: not done().
  __device__ void next() {
    at_ = item_ + units_ + gap_;
    if (done()) return;
    item_ = at_;
    if (++head_ < l_.kv_heads) return;
    head_ = 0;
    enter(sequence_ + 1, at_);
  }

 private:
  __device__ int stop() const { return end_ < item_ + units_ ? end_ : item_ + units_; }
  __device__ void enter(int sequence, int first_unit) {
    sequence_ = sequence;
    item_ = first_unit;
    tokens_ = platform::uniform(l_.of(sequence));
    units_ = decode_lengths::units_of(tokens_);
  }

  /// Units of a run, and between items; whether all items are alike and runs end where they do.
  struct dealing {
    int length, gap;
    bool aligned;
  };
  /// longest: units of the longest item; total: of a head of all sequences, with the gaps.
  __device__ dealing deal(int longest, int total) const {
    int const length = (total * l_.kv_heads - 1) / l_.runs + 1;
    bool const alike = l_.batch * (longest + l_.gap) == total;
    int const aligned =
        l_.items_per_run > 1 ? l_.items_per_run * (longest + l_.gap) : (longest - 1) / l_.runs_per_item + 1;
    if (!alike || aligned > length) return {length, l_.gap, false};
    int const gap = l_.items_per_run == 1 ? ((longest - 1) / aligned + 1) * aligned - longest : l_.gap;
    return {aligned, gap, true};
  }

  /// One wave: every lane counts the units of its share of the sequences, a butterfly sums them up, and the lane in
  /// whose share this block's run begins looks for the sequence. shared = {units per block, units of a head of all
  /// sequences, sequence, units before it, units between items}.
  __device__ void find(int number, int* shared) const {
    wave const w;
    int const share = ceil_div(l_.batch, w.size()), first = w.rank() * share,
              last = first + share < l_.batch ? first + share : l_.batch;
    int mine = 0, longest = 0;
    for (int s = first; s < last; ++s) {
      int const units = l_.units_of(l_.of(s));
      mine += units + l_.gap;
      longest = longest > units ? longest : units;
    }
    int before = 0, total = mine;
#pragma unroll
    for (int mask = 1; mask < wave::width; mask *= 2) {
      int const others = platform::shuffle_xor(total, mask);
      before += w.rank() & mask ? others : 0;
      total += others;
      int const other = platform::shuffle_xor(longest, mask);
      longest = longest > other ? longest : other;
    }
    auto const [length, gap, aligned] = deal(longest, total);
    if (aligned) {
      before = first * (longest + gap);
      mine = (last - first) * (longest + gap);
      total = l_.batch * (longest + gap);
    }
    int const begin = length * number / l_.heads;
    if (w.leader()) {
      shared[0] = length;
      shared[1] = total;
      shared[4] = gap;
    }
    if (begin < before || begin >= before + mine) return;
    int s = first;
    for (int n; before + (n = l_.units_of(l_.of(s)) + gap) <= begin; ++s) before += n;
    shared[2] = s;
    shared[3] = before;
  }

  decode_lengths l_;
  int length_, gap_, at_, end_;                                      // units
  int sequence_ = 0, head_ = 0, tokens_ = 0, item_ = 0, units_ = 1;  // item_: its first unit
};

}  // namespace fusewire
