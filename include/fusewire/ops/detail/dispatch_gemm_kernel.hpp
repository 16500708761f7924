// Tokens to the ranks of their experts, which multiply them, in one kernel. The operator is in dispatch_gemm.hpp.
//
//   dispatchers   the launch's first blocks: as moe_dispatch_kernel; when the routing is known, counters of the pieces
//                 of rows are set and flag `routed` is raised; a chunk that has come --> rows by_expert, counters
//   all           `routed` --> grouped_scheduler: tiles; a tile's counters --> rows --mainloop--> epilogue --> C
//
// Dispatchers take tiles when they have dispatched. Rows of an expert lie in the order of (source, token), and sources
// send side by side, so a tile's last row is there when about as much of the dispatch is over as of its sources' tokens
// lie before it.
//
// Deadlock: all blocks are resident (launch() checks). Dispatchers wait as those of moe_dispatch_kernel do, for each
// other and for dispatchers of other ranks; these take tiles only afterwards. Tiles wait for dispatchers.
// Order: a wave of a dispatcher releases a chunk's rows at device scope before it counts them; what waits for a counter
// acquires. Counters are set before `routed`, for which all who count have waited.
// Reuse: the inbox by the channel's argument; a counter is set again by the launch that uses it.
// Abandonment: as in moe_dispatch_kernel.hpp. Groups may then change while tiles are taken: a tile is any tile, and its
// rows are rows of the matrix. If the channel poisons, a block's tiles become NaN when it has stored them.
#pragma once
#include <fusewire/comm/moe_arrivals.hpp>
#include <fusewire/device/channel_launch.hpp>
#include <fusewire/gemm/checked_local_sink.hpp>
#include <fusewire/ops/detail/grouped_gemm_kernel.hpp>
#include <fusewire/ops/detail/moe_rows.hpp>

namespace fusewire {

/// Arguments of dispatch_gemm_kernel besides its operands.
template <class T>
struct dispatch_gemm_arguments {
  moe_dispatch_arguments dispatch;  // by_expert
  grouped_gemm_arguments<T> gemm;   // its groups are those of the routing
  moe_pieces pieces;                // of the rows
  int dispatchers;                  // blocks that dispatch
};

namespace detail {
/// A tile sink: as grouped_sink, but if the channel poisons, tiles that are stored after a wait timed out become NaN.
template <class T>
struct checked_grouped_sink : grouped_sink<T> {
  channel_epoch const& e;  // of this launch
  int tile_m, tile_n;      // rows and columns of a tile's part of c

  template <group Group>
  __device__ void stored(Group g, tile_coord t, stored_slice) const {
    if (!e.control().fills_nan()) return;
    g.sync();  // all threads have stored
    if (e.control().should_fill_nan()) poison_tile(g, this->at(t), t.m * tile_m, t.n * tile_n, tile_m, tile_n);
  }
};
}  // namespace detail

/// C's rows of each expert = epilogue(the rows that have come for it * its B). Called by: dispatch_gemm, on every rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    dispatch_gemm_kernel(__grid_constant__ channel_view const ch, __grid_constant__ dispatch_gemm_arguments<T> const g,
                         __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_m = Mainloop::traits.tile_m,
                tile_n = Mainloop::traits.tile_n / columns_of_value<typename epilogue_of_groups<Epilogue>::type>;
  block const b;
  channel_launch launch(ch);
  launch.begin();
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank();
  moe_dispatch_flags const flags{g.dispatch.routing.shape.segments()};
  moe_arrivals const arrivals(e, rank, g.gemm.groups, g.pieces, moe_dispatch_flags::count(g.dispatch.routing.shape));
  if (b.index() < g.dispatchers) detail::dispatch_tokens(b, g.dispatchers, e, ch.world, g.dispatch, shared, arrivals);
  e.wait(b, rank, flags.routed());
  grouped_scheduler const tiles(g.gemm.groups, tile_m, g.gemm.n_tiles, g.gemm.group_m);
  arriving_rows<typename Mainloop::source_group> source(arrivals, g.gemm.k, tile_m, x.k_slice());
  detail::checked_grouped_sink<T> const sink{{g.gemm.c, g.gemm.groups}, e, tile_m, tile_n};
  part_of_launch part(e);
  Mainloop::run(shared, part, x, tiles, source, sink, no_comm{}, epilogue, no_tail{});
  e.end(b);
}

}  // namespace fusewire
