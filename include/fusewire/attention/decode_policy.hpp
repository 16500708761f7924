// What an architecture decides about Flash Decode. attention/gfx942/decode_policy.hpp and attention/sm90/ have the
// values, decode_policy_for(head_dim); attention/attention_atom.hpp selects one of them.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Decisions that the kernel's text leaves to the architecture.
struct decode_policy {
  // The grid.
  int waves;             // of a block
  int launch_bound;      // second argument of __launch_bounds__: waves of a SIMD, or blocks of an SM, at least
  int blocks_per_cu;     // at most
  int most_cus;          // CUs or SMs of the largest device
  int shared_bytes;      // of LDS that a block can have
  int spare_blocks;      // blocks without tokens, unless a single block is all there is
  bool reversed_blocks;  // the last block has the first tokens, so that block 0, which waits for headers, can be spare

  // The start of a block.
  bool overlaps_prior_grid;   // issues the first K before the launch begins, and so loads Q after it; else Q goes first
  bool schedules_by_wave;     // with one sequence, each wave computes the schedule, and no barrier is needed
  bool computes_slice_ahead;  // computes its slice of a head item while K is in flight, else after the attention

  // Loads of K and V.
  /// Loads retire in order, so arithmetic on one load waits for all earlier ones. Page table entries stay unprocessed
  /// until their step. Lanes exchange all rows before they issue the first load, because each exchange is waited for.
  bool in_order_loads;
  bool values_ahead;  // loads V a step ahead, as K: more bytes in flight, more registers
  int part;           // d that are loaded together; all, a step ahead, unless there are no registers for them

  // Reduction of partials (attention/softmax_reduce.hpp).
  int split_readers;       // lanes that read one vec4 of many splits: a power of two, up to 8
  int rank_readers;        // lanes that read one vec4 of all ranks, at most: a power of two, up to 8
  int partials_in_flight;  // partials that a reader loads together
};

}  // namespace fusewire
