// What the AG+GEMM operator launches for a shape.
#pragma once
#include <fusewire/comm/all_gather/gather_map.hpp>
#include <fusewire/gemm/gemm_plan.hpp>

namespace fusewire {

/// Inboxes that a rank pushes into. Its own is among them with gather::m, where ranks may share a M tile.
constexpr int inboxes_of_push(gather by, int ranks) { return by == gather::m ? ranks : ranks - 1; }

/// What ag_gemm chooses for a call, from its shape alone, so that all ranks choose alike.
struct ag_gemm_plan {
  /// Tiles, and how they are multiplied.
  gemm_plan gemm;
  int chunk_k = k_step;  // columns of A per flag
  /// Blocks for each inbox that move chunks before they take tiles; of mainloops whose blocks communicate first
  int senders_per_peer = 8;
  bool alternating = false;  // groups of a sender block's waves alternate, if the mainloop has such groups
  /// How chunks follow each other.
  chunk_order::nest chunks = chunk_order::nest::by_group;

  /// Blocks that move chunks, of `ranks` ranks.
  constexpr int senders(gather by, int ranks) const { return senders_per_peer * inboxes_of_push(by, ranks); }
};

}  // namespace fusewire
