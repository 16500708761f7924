// Results of experts back to their tokens' ranks, and added up there, in one kernel. The operator is in
// moe_combine.hpp.
//
//   senders    chunk of a source's tokens: partial result --> inbox of the source, flag of the chunk
//   receivers  chunk of this rank's tokens: flags of all ranks --> partial results of the token's ranks, added --> out
//
// A partial result is what one rank's experts make of a token: its row by_token; by_expert the weighted sum of its
// rows, in the order of its table, in fp32, rounded to T once. So a token costs a row for each rank, not for each
// expert. A receiver adds them in the order of ranks in fp32, and rounds to T once. This rank's own partial results
// stay in registers.
//
// Deadlock: all blocks are resident (launch() checks). Senders wait for nothing; a block of both kinds sends first.
//
// Reuse: the inbox by the channel's argument.
//
// Abandonment: what a timed-out wait leaves is NaN if the channel poisons.
#pragma once
#include <fusewire/ops/detail/moe_blocks.hpp>
#include <fusewire/ops/detail/moe_results.hpp>

namespace fusewire {

/// Sends results to the ranks of their tokens and adds them up. Called by: moe_combine, on every rank.
template <class T>
__global__ void __launch_bounds__(moe_threads)
    moe_combine_kernel(__grid_constant__ channel_view const ch, __grid_constant__ moe_combine_arguments<T> const g) {
  __shared__ detail::moe_partials_shared shared;
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::combine_results(b, e, ch.world, g, shared, no_arrivals{});
  e.end(b);
}

}  // namespace fusewire
