// The splits of one block. A split is the intersection of the block's range of units and a head item (kv_schedule.hpp).
// So a block has at most two partial head items: one continued from the previous block, one continued by the next.
// Batch-invariant, splits are pieces of head items, of which a block may have several in a row.
#pragma once
#include <fusewire/attention/kv_schedule.hpp>
#include <fusewire/core/group.hpp>

namespace fusewire {

/// The splits of one block, in order. Pieces: batch-invariant.
template <bool Pieces = false>
class kv_splits {
 public:
  static constexpr int shared_words = 5;  // of the block's LDS, 4 bytes each

  /// number: the block's range, 0 to blocks - 1. by_wave: decode_policy::schedules_by_wave.
  /// Called by: every thread of the block. `shared` is shared_words of its shared memory.
  __device__ kv_splits(block b, decode_lengths const& l, int* shared, int number, bool by_wave) : l_(l) {
    bool const alone = by_wave && l.batch == 1;
    int all;
    if (alone) {
      enter(0, 0);
      kv_partition const p = l_.partition(units_, units_ + l.switch_cost);
      length_ = p.length;
      switch_cost_ = p.switch_cost;
      all = (units_ + switch_cost_) * l.kv_heads;
    } else {
      if (wave{}.index() == 0) find(number, shared);
      b.sync();
      all = platform::uniform(shared[1]) * l.kv_heads;
      length_ = platform::uniform(shared[0]);
      switch_cost_ = platform::uniform(shared[4]);
    }
    at_ = length_ * number;
    end_ = at_ + length_ < all ? at_ + length_ : all;
    if (at_ >= end_) return;
    if (!alone) enter(platform::uniform(shared[2]), platform::uniform(shared[3]) * l.kv_heads);
    head_ = (at_ - item_) / (units_ + switch_cost_);
    item_ += head_ * (units_ + switch_cost_);
    if constexpr (Pieces)
      if (at_ < item_ + units_) at_ = item_ + (at_ - item_ + piece_ - 1) / piece_ * piece_;
    if (at_ >= item_ + units_) next();
  }

  /// Whether the split reads its shard's last token.
  __device__ bool has_last_token() const { return !done() && stop() == item_ + units_; }
  /// Whether the block has no split left.
  __device__ bool done() const { return at_ >= end_; }

  // The split.
  /// Sequence of the split, 0 to batch - 1.
  __device__ int sequence() const { return sequence_; }
  /// Tokens of the sequence, as decode_lengths::of().
  __device__ int tokens() const { return first_ + tokens_; }
  /// KV head of the split.
  __device__ int head() const { return head_; }
  /// Number of the split's head item: sequence x KV heads + head.
  __device__ int head_item() const { return sequence_ * l_.kv_heads + head_; }
  __device__ int begin() const { return first_ + (at_ - item_) * decode_lengths::unit; }  // tokens
  /// First token of the head item behind the split.
  __device__ int end() const {
    int const tokens = (stop() - item_) * decode_lengths::unit;
    return first_ + (tokens < tokens_ ? tokens : tokens_);
  }
  /// Whether the split begins its head item.
  __device__ bool starts() const { return at_ == item_; }
  /// Whether the split is all of its head item.
  __device__ bool whole() const { return starts() && stop() == item_ + units_; }
  /// The first block with a split of the head item.
  __device__ int first_block() const { return item_ / length_; }
  /// The last block with a split of the head item.
  __device__ int last_block() const { return (item_ + units_ - 1) / length_; }

  /// Number of the piece in its head item, which has pieces() of them. Requires: Pieces.
  __device__ int piece() const { return (at_ - item_) / piece_; }
  /// See piece().
  __device__ int pieces() const { return (units_ - 1) / piece_ + 1; }

  /// Goes on to the next split. Requires: not done().
  __device__ void next() {
    if constexpr (Pieces) {
      at_ = stop();
      if (at_ < item_ + units_) return;
    }
    at_ = item_ + units_ + switch_cost_;
    if (done()) return;
    item_ = at_;
    if (++head_ < l_.kv_heads) return;
    head_ = 0;
    enter(sequence_ + 1, at_);
  }

 private:
  __device__ int stop() const {
    int const stop = Pieces ? at_ + piece_ : end_;
    return stop < item_ + units_ ? stop : item_ + units_;
  }
  __device__ void enter(int sequence, int first_unit) {
    sequence_ = sequence;
    item_ = first_unit;
    int const all = platform::uniform(l_.of(sequence));
    first_ = platform::uniform(l_.left_out(sequence, all));
    tokens_ = all - first_;
    units_ = decode_lengths::units_of(tokens_);
    if constexpr (Pieces) piece_ = l_.piece_of(units_);
  }

  /// One wave: every lane counts the units of a slice of the sequences, a butterfly sums them, and the lane in whose
  /// slice this block's range begins searches for the sequence. shared = {units per block, units of a head of all
  /// sequences, sequence, units before it, units between head items}.
  __device__ void find(int number, int* shared) const {
    wave const w;
    int const slice = ceil_div(l_.batch, w.size()), first = w.rank() * slice,
              last = first + slice < l_.batch ? first + slice : l_.batch;
    int mine = 0, longest = 0;
    for (int s = first; s < last; ++s) {
      int const units = l_.units_at(s);
      mine += units + l_.switch_cost;
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
    auto const [length, switch_cost, aligned] = l_.partition(longest, total);
    if (aligned) {
      before = first * (longest + switch_cost);
      mine = (last - first) * (longest + switch_cost);
      total = l_.batch * (longest + switch_cost);
    }
    int const begin = length * number / l_.heads;
    if (w.leader()) {
      shared[0] = length;
      shared[1] = total;
      shared[4] = switch_cost;
    }
    if (begin < before || begin >= before + mine) return;
    int s = first;
    for (int n; before + (n = l_.units_at(s) + switch_cost) <= begin; ++s) before += n;
    shared[2] = s;
    shared[3] = before;
  }

  decode_lengths l_;
  int length_, switch_cost_, at_, end_;                 // units; switch_cost_: between head items
  int sequence_ = 0, head_ = 0, item_ = 0, units_ = 1;  // item_: its first unit
  int piece_ = 0;                                       // units of a piece
  int first_ = 0, tokens_ = 0;                          // of the sequence: what is left out, and what follows
};

}  // namespace fusewire
