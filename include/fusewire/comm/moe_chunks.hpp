// How the tokens of a rank are cut into chunks, each of which a flag publishes.
#pragma once
#include <fusewire/core/math.hpp>

namespace fusewire {

/// Every rank derives it from a rank's tokens and from what all ranks agree on.
struct moe_chunks {
  static constexpr int most = 2048;           // chunks of a rank's tokens
  static constexpr int target = 512;          // if rows are small: all blocks have some
  static constexpr int min_bytes = 8 << 10;   // that a flag publishes for a peer, if every token goes there
  static constexpr int max_bytes = 64 << 10;  // likewise
  static constexpr int most_tokens = 64;      // of a chunk

  int tokens_each = 1;  // tokens of a chunk
  int count = 0;        // chunks

  /// Of `tokens` tokens, whose rows have row_bytes bytes. Requires: tokens <= most * most_tokens.
  __host__ __device__ static constexpr moe_chunks of(int tokens, int row_bytes) {
    int const lowest = clamp(min_bytes / row_bytes, 1, most_tokens),
              highest = clamp(max_bytes / row_bytes, 1, most_tokens),
              each = max(clamp(ceil_div(tokens, target), lowest, highest), ceil_div(tokens, most));
    return {each, ceil_div(tokens, each)};
  }
  /// The most chunks of up to max_tokens tokens.
  __host__ __device__ static constexpr int most_of(int max_tokens) { return min(max_tokens, most); }
  /// The end of chunk i. Requires: its rank has `tokens` tokens.
  __host__ __device__ constexpr int end(int i, int tokens) const { return min((i + 1) * tokens_each, tokens); }
};

}  // namespace fusewire
