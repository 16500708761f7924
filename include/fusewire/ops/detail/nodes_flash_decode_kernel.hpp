// Flash Decode over nodes in one kernel: the KV cache is sharded over the ranks of all nodes. The operator is in
// nodes_flash_decode.hpp.
//
//   ranks of a node   this rank's KV --attention--> (o, m, l), as flash_decode_kernel.hpp
//                     --LL words--> the place of the node that owns the query head
//                     it: poll the words of all of the node --softmax_reduce--> the node's (o, m, l)
//   rails             the node's (o, m, l) --window, put--> place p of every other node
//                     they: wait for all nodes --> combine in the order of nodes
//   ranks of a node   the result --LL words--> all of the node --poll--> out, lse
//
// Every place of a node owns some query heads of every sequence, 1/ranks-per-node of the results. nodes_decode_plan.hpp
// cuts them into units, a put each. Only the second step crosses the network. On one node it does nothing; with one
// rank per node the words of the first step are the rank's own, and the last step does nothing.
//
// Deadlock: all blocks are resident (launch() checks). A block pushes all its partials before it waits for another
// rank, as in flash_decode_kernel.hpp. Then it takes the three steps one after the other, each for all its units: the
// first waits for pushes, and for room in the ring of puts; the second for first steps of rails; the last for second
// steps of this node's ranks. Order: LL words as in flash_decode_kernel.hpp. A put publishes the unit that its block
// has stored. Reuse: LL words by the channel's argument. Of each source, a rank has words of its own heads for
// partials, and words of the source's heads for results. Every put is waited for in its launch. Abandonment: a thread
// whose wait timed out makes l NaN, in what it stores, sends on and has put; so does a block whose wait for a put did.
// Same bits on every rank and in every run, whatever the network does: as flash_decode inside a node; all places that
// own a head combine the same fp32 results of nodes in the same order.
#pragma once
#include <fusewire/ops/detail/flash_decode_kernel.hpp>
#include <fusewire/ops/detail/nodes_head_item_exchange.hpp>

namespace fusewire {

/// Attention of one token per sequence over the KV of the ranks of all nodes. Called by: nodes_flash_decode, on every
/// rank.
template <class T, int D, unsigned FeatureBits = 0>
__global__ void __launch_bounds__(decode_threads(D), decode_policy_for(D).launch_bound)
    nodes_flash_decode_kernel(__grid_constant__ nodes_view const ch,
                              __grid_constant__ nodes_decode_arguments<T> const g) {
  extern __shared__ bytes16 shared[];
  detail::decode_block<T, D, decode_features::of(FeatureBits), detail::nodes_head_item_exchange<T, D>> work(ch, g,
                                                                                                            shared);
  work.run_splits();
  work.arrive_exit();
  work.reduce_slices();
  work.combine();
  work.end();
}

}  // namespace fusewire
