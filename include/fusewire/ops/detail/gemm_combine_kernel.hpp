// The experts' last GEMM, and its results back to their tokens' ranks and added up there, in one kernel. The operator
// is in gemm_combine.hpp.
//
//   block 0       sets the counters of the pieces of rows --> flag `prepared`
//   tiles         A's rows of an expert, its B --mainloop--> epilogue --> rows of y, counters
//   senders       counters of a chunk's rows --> partial results --> inbox of the tokens' rank, flag of the chunk
//   receivers     counters of this rank's own rows, flags of all ranks --> partial results, added --> out
//
// Blocks send and receive when they have no more tiles, as those of moe_combine_kernel do. What the experts make is
// rounded to T in y, so sums have the bits of grouped_gemm and moe_combine, whatever came first.
//
// Deadlock: all blocks are resident (launch() checks). Tiles wait for nothing but `prepared`, which block 0 raises
// before its tiles. Senders wait for tiles, which other blocks multiply or have stored; receivers wait for these and
// for senders, and a block of both kinds sends first.
// Order: the threads that have stored a tile release it at device scope before it is counted; what waits for a counter
// acquires.
// Reuse: the inbox by the channel's argument; a counter is set again by the launch that uses it. Only this launch uses
// y.
// Abandonment: what a timed-out wait leaves is NaN in `out` if the channel poisons.
#pragma once
#include <fusewire/device/channel_launch.hpp>
#include <fusewire/ops/detail/grouped_gemm_kernel.hpp>
#include <fusewire/ops/detail/moe_results.hpp>

namespace fusewire {

/// Arguments of gemm_combine_kernel besides its operands.
template <class T>
struct gemm_combine_arguments {
  grouped_gemm_arguments<T> gemm;    // c is y; the groups are those of the routing
  moe_combine_arguments<T> combine;  // in is y
  moe_pieces pieces;                 // of the rows
  int first_flag;                    // `prepared`; then the counters
};

namespace detail {
/// A tile sink: as grouped_sink, and rows are counted.
template <class T>
struct counted_grouped_sink : grouped_sink<T> {
  channel_epoch const& e;  // of this launch
  int rank, prepared;      // this one; the flag behind which counters are set
  moe_arrivals const& arrivals;
  int tile_m;  // rows of a tile

  template <group Group>
  __device__ __forceinline__ void stored(Group g, tile_coord t, stored_slice) const {
    publish<scope::device>(g);
    if (!g.leader()) return;
    int const first = t.m * tile_m, end = min(first + tile_m, this->g.rows(t.group).size());
    e.wait(thread{}, rank, prepared);
    arrivals.add(t.group, first, end);
  }
};
}  // namespace detail

/// out's rows of each token = the weighted sum of what its experts make. Called by: gemm_combine, on every rank.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    gemm_combine_kernel(__grid_constant__ channel_view const ch, __grid_constant__ gemm_combine_arguments<T> const g,
                        __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_m = Mainloop::traits.tile_m;
  block const b;
  channel_launch launch(ch);
  launch.begin();
  channel_epoch const& e = launch.epoch();
  int const rank = ch.world.rank();
  moe_arrivals const arrivals(e, rank, g.gemm.groups, g.pieces, g.first_flag + 1, g.gemm.n_tiles.value());
  if (b.index() == 0) {
    arrivals.prepare(b);
    e.signal_here(b, rank, g.first_flag);
  }
  grouped_scheduler const tiles(g.gemm.groups, tile_m, g.gemm.n_tiles, g.gemm.group_m);
  grouped_rows source(g.gemm.groups, g.gemm.k, tile_m, x.k_slice());
  detail::counted_grouped_sink<T> const sink{{g.gemm.c, g.gemm.groups}, e, rank, g.first_flag, arrivals, tile_m};
  part_of_launch part(e);
  Mainloop::run(shared, part, x, tiles, source, sink, no_comm{}, epilogue, no_tail{});
  detail::combine_results(b, e, ch.world, g.combine, *reinterpret_cast<detail::moe_partials_shared*>(shared), arrivals);
  e.end(b);
}

}  // namespace fusewire
