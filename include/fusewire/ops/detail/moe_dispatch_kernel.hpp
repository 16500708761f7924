// Tokens to the ranks of their experts, in one kernel. The operator is in moe_dispatch.hpp.
//
//   senders    segment of the table --> inbox of every rank, flag of the segment
//              chunk of tokens: row --> inbox of each rank that has experts of it, flag of the chunk on every rank
//   receivers  segments of all tables --> count --> the last block: where rows go --> flag `routed`
//              `routed`, flag of a chunk: row --> out
//              where tables are small, each block counts all of them by itself, and waits for no other block
//
// A row lies in the inbox at the place of its token, so that nothing is counted before it is sent; what `out` has no
// gaps for is found out meanwhile. This rank's own rows go from `in` to `out`.
//
// Deadlock: all blocks are resident (launch() checks). Senders wait for nothing. Tables come from senders, before rows;
// the last block that counts waits for tables alone, the others for it and for chunks. A block of both kinds sends
// first.
//
// Reuse: the inbox by the channel's argument. The routing is this rank's own: its launches are in the stream's order.
//
// Abandonment: counts may be anything then. Each is clamped before it becomes an address.
#pragma once
#include <fusewire/ops/detail/moe_blocks.hpp>
#include <fusewire/ops/detail/moe_rows.hpp>

namespace fusewire {

/// Sends each token to the ranks of its experts, and receives. Called by: moe_dispatch, on every rank.
template <class = void>
__global__ void __launch_bounds__(moe_threads)
    moe_dispatch_kernel(__grid_constant__ channel_view const ch, __grid_constant__ moe_dispatch_arguments const g) {
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::dispatch_tokens(b, b.count(), e, ch.world, g, shared, no_arrivals{});
  e.end(b);
}

}  // namespace fusewire
