// Shared memory of the blocks that count tables of experts.
#pragma once
#include <fusewire/comm/moe_routing_view.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/device/block_reduce.hpp>

namespace fusewire {

/// Shared memory of a block that counts a segment, or all of them (moe_shape::counts_alone).
struct moe_table_shared {
  static constexpr int mask_words = moe_shape::segment_tokens / 32;  // of a mask of a segment's tokens

  int words[block_reduce_words];  // of block_exclusive_sum()
  int tokens[max_ranks];          // of each source
  int word;                       // of last_to_arrive()

  /// [experts + 1][mask_words], behind this, for each segment: a bit for each token that has the expert; last, any.
  __device__ unsigned* masks() { return reinterpret_cast<unsigned*>(this + 1); }
  /// [segment_tokens * top_k], behind the masks of a segment: experts of this rank; -1: of others.
  __device__ std::int16_t* local(int experts) {
    return reinterpret_cast<std::int16_t*>(masks() + (experts + 1) * mask_words);
  }
  /// [ranks][experts + 1], behind the masks of all: rows of an expert that come before those of a source.
  __device__ int* firsts(moe_shape const& s) {
    return reinterpret_cast<int*>(masks() + s.ranks * (s.experts + 1) * mask_words);
  }
  /// [experts + 1], behind these: where experts begin.
  __device__ int* begins(moe_shape const& s) { return firsts(s) + s.ranks * (s.experts + 1); }
  /// All of it, in bytes.
  static constexpr int bytes(moe_shape const& s) {
    int const columns = s.experts + 1, words = s.counts_alone()
                                                   ? s.ranks * columns * (mask_words + 1) + columns
                                                   : columns * mask_words + moe_shape::segment_tokens * s.top_k / 2;
    return int(sizeof(moe_table_shared)) + words * int(sizeof(int));
  }
};

}  // namespace fusewire
