// How the KV of a batch is divided among blocks. The host decides how many blocks there are: kv_schedule, a function of
// the shape. The device decides from the lengths alone which tokens a block has, so that a captured graph replays with
// new lengths: kv_partition here, the walk over a block's splits in kv_splits.hpp.
//
//   sequence 0, head 0 | sequence 0, head 1 | ...                 | sequence 1, head 0 | ...
//   [128][128][128][..]|[128][128][128][..] |                     |[128][..]
//   `------ block 0 ------'`------ block 1 ------'`--- ...
//
// A head item is a sequence and a KV head. Its tokens are divided into units of 128; an empty one has one unit, too.
// The units of all head items form one row, of which each block has an equal range. So every block reads about the same
// number of bytes, whatever the lengths. To switch head items costs a block as much as some units do, so that many
// empty units separate them. If all head items have equally many units, as in a batch of one, ranges end where head
// items do, unless that makes a range longer. Then there are fewer splits.
//
// Batch-invariant: a head item is cut into pieces, as its own length says, and a block has the pieces that begin in its
// range. So the partials of a sequence and the order of their sum depend on no other sequence.
#pragma once
#include <cstdint>

#include <fusewire/attention/decode_policy.hpp>
#include <fusewire/attention/decode_record.hpp>
#include <fusewire/core/divisor.hpp>
#include <fusewire/core/math.hpp>
#include <fusewire/core/types.hpp>

namespace fusewire {

/// What a launch works on, as its host knows it.
struct decode_shape {
  int batch, max_tokens, kv_heads;  // sequences; tokens that a shard has room for; KV heads
  decode_record record;             // of one head item
};

/// Room for a launch.
struct decode_occupancy {
  int cus;              // CUs or SMs of a rank
  int resident_blocks;  // blocks of the kernel that run concurrently on them
};

/// How the units of all head items are divided.
struct kv_partition {
  int length;       // units of a block's range
  int switch_cost;  // units that a switch of head items costs
  bool aligned;     // all head items have equally many units, and ranges end where they do
};

/// The lengths of a launch, and how their units are divided among blocks.
struct decode_lengths {
  std::int32_t const* tokens;       // [batch]; what is outside 0 to max_tokens is taken as the nearest of them
  int batch, max_tokens, kv_heads;  // sequences; the capacity of a shard, or one more to tell longer ones; KV heads
  divisor heads, blocks;            // kv_heads; blocks with tokens, at most
  divisor blocks_per_item;          // rounded down, at least 1
  int items_per_block;              // rounded up
  divisor pieces = 1;               // batch-invariant: most pieces of a head item
  /// [batch]: tokens that lie before the window and are left out; what is outside 0 to tokens is taken as the nearest
  /// of them. Null: none
  std::int32_t const* outside = nullptr;

  /// blocks: with tokens, up to max_blocks(kv).
  constexpr decode_lengths(std::int32_t const* n, int sequences, int max, int kv, int blocks)
      : tokens(n), batch(sequences), max_tokens(max), kv_heads(kv), heads(kv), blocks(blocks),
        blocks_per_item(blocks < sequences * kv ? 1 : blocks / (sequences * kv)),
        items_per_block((sequences * kv - 1) / blocks + 1) {}

  static constexpr int unit = 128;        // tokens
  static constexpr int switch_cost = 4;   // units
  static constexpr int max_splits = 264;  // of a head item

  /// Blocks that can have tokens. No head item is longer than a head of all sequences.
  static constexpr int max_blocks(int kv) { return (max_splits - 1) * kv; }
  /// Units of a head item of `tokens` tokens, at least one.
  __host__ __device__ static constexpr int units_of(int tokens) { return tokens <= unit ? 1 : (tokens - 1) / unit + 1; }
  /// Tokens of a sequence of `tokens` tokens that are left out.
  __host__ __device__ constexpr int left_out(int sequence, int tokens) const {
    if (!outside) return 0;
    int const n = outside[sequence];
    return n < 0 ? 0 : n > tokens ? tokens : n;
  }
  /// Tokens of a sequence, within 0 to max_tokens.
  __host__ __device__ constexpr int of(int sequence) const {
    int const n = tokens[sequence];
    return n < 0 ? 0 : n > max_tokens ? max_tokens : n;
  }
  /// Units of a head item of a sequence.
  __host__ __device__ constexpr int units_at(int sequence) const {
    int const all = of(sequence);
    return units_of(all - left_out(sequence, all));
  }
  /// Units of a piece, of a head item of `units` units; the last piece may have fewer.
  __host__ __device__ constexpr int piece_of(int units) const { return max(switch_cost, (units - 1) / pieces + 1); }
  /// The most pieces that pay: as many as there are blocks on the largest device, if they cost less than the attention.
  static constexpr int pieces_that_pay(decode_shape const& s, decode_policy const& p) {
    return max(1, min((p.most_cus - p.spare_blocks) / s.kv_heads, (units_of(s.max_tokens) - 1) / switch_cost + 1));
  }
  /// longest: units of the longest head item; total: units of one head of all sequences, switches included.
  __host__ __device__ constexpr kv_partition partition(int longest, int total) const {
    int const length = (total * kv_heads - 1) / blocks + 1;
    bool const alike = batch * (longest + switch_cost) == total;
    int const aligned =
        items_per_block > 1 ? items_per_block * (longest + switch_cost) : (longest - 1) / blocks_per_item + 1;
    if (!alike || aligned > length) return {length, switch_cost, false};
    return {aligned, items_per_block == 1 ? ((longest - 1) / aligned + 1) * aligned - longest : switch_cost, true};
  }
};

/// What the host decides about a launch.
struct kv_schedule {
  int blocks;     // of the grid
  int attending;  // blocks with tokens, at most
  bool two_shot;  // whether two shots take less time than one

  /// As many blocks as are resident, or as there can be work for. Requires: batch x kv_heads x units below 2^31.
  static constexpr kv_schedule of(decode_shape const& s, int ranks, decode_policy const& p, decode_occupancy const& o) {
    auto const lesser = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
    std::int64_t const work = std::int64_t(s.batch) * s.kv_heads * decode_lengths::units_of(s.max_tokens),
                       most = lesser(work, decode_lengths::max_blocks(s.kv_heads)) + p.spare_blocks;
    int const blocks = int(lesser(most, lesser(o.resident_blocks, std::int64_t(o.cus) * p.blocks_per_cu)));
    return {blocks, blocks > p.spare_blocks ? blocks - p.spare_blocks : 1, two_shot_is_faster(s, ranks)};
  }

 private:
  /// The second shot takes as long as a rank takes to write and read 1.5 MB of words more; measured
  /// (docs/decisions/decode.md).
  static constexpr bool two_shot_is_faster(decode_shape const& s, int ranks) {
    double const size = ranks, bytes = double(s.batch) * s.kv_heads * s.record.words() * 8;  // of one source
    // Written and read: every source's; its own, those that it reduces, results
    double const one = 2 * size, two = 1 + 1 + 2 * (1 - 1 / size);
    return bytes * (one - two) >= 1.5e6;
  }
};

}  // namespace fusewire
