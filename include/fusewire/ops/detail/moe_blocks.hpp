// How many blocks of a dispatch or combine send, and how many receive.
#pragma once
#include <algorithm>

namespace fusewire {

inline constexpr int moe_threads = 256;      // of a block
inline constexpr int moe_blocks_per_cu = 4;  // at most, of a launch
/// Blocks are counted for at least so many tokens of each rank: the others may have more than this one
inline constexpr int moe_usual_tokens = 64;

/// The blocks of a launch. A pure function of its sizes.
struct moe_blocks {
  int all = 1;      // of the grid
  int senders = 0;  // the first ones; the others receive. 0: each block does both

  /// Of a launch that sends `sent` pieces and receives `received`, if `fit` blocks are resident.
  static moe_blocks of(int sent, int received, int fit) {
    if (fit < 2) return {1, 0};
    int const senders = std::clamp(fit / 3, 1, std::max(1, sent));
    return {senders + std::clamp(fit - senders, 1, std::max(1, received)), senders};
  }
};

}  // namespace fusewire
