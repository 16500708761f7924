// What the AG+GEMM operator launches for a shape.
#pragma once
#include <fusewire/comm/all_gather/gather_map.hpp>
#include <fusewire/gemm/gemm_plan.hpp>

namespace fusewire {

/// What ag_gemm chooses for a call, from its shape alone, so that all ranks choose alike.
struct ag_gemm_plan {
  /// Tiles, and how they are multiplied.
  gemm_plan gemm;
  int chunk_k = k_step;  // columns of A per flag
  /// Blocks for each peer that move pieces before they take tiles; of mainloops whose blocks communicate first
  int senders_per_peer = 8;
  bool senders_for_local = false;  // as many move pieces of its own shard to a rank's own inbox
  bool in_turns = false;           // groups of a moving block's waves push in turns, if the mainloop has such groups
  /// How pieces follow each other.
  piece_order::nest pieces = piece_order::nest::by_band;

  /// Blocks that move pieces, of `ranks` ranks.
  constexpr int senders(int ranks) const { return senders_per_peer * (ranks - !senders_for_local); }
};

}  // namespace fusewire
