// All-gather + GEMM in one kernel: C [M, N] = gather(A) [M, K] * B [K, N] on every rank. The operator is in
// ag_gemm.hpp.
//
//   communication      transfer_chunks.hpp: push, or pull, and signal a flag (source, M tile, k chunk) for each
//   chunk;
//                      on gfx942 groups of waves may alternate: pusher.hpp
//   tiles              local rows or columns: from A, immediately; others: wait for flag --> from the inbox
//   --mainloop-->
//   C
//
// The mainloop decides which threads move the chunks: the first blocks before they take tiles, or warps of every block
// while the others multiply. A slice's sums over k run in the order in which its source hands out the steps. This order
// is the same in every run, and with local_shard_first = false it is the same on every rank.
//
// Deadlock: all blocks are resident (launch() checks). The threads that push wait for nothing. Those that pull wait for
// headers, which every rank's blocks send before they wait for anything. Chunks are moved by blocks that take tiles
// only afterwards, or by warps that multiply nothing, so a tile waits only for work that is already running. Block
// 0's last waits (acknowledgements, credit) come after its own chunks, and no chunk and no tile of other blocks waits
// for them.
// Order: the group that asks the source acquires the flags. The mainloop passes that order on to the threads or units
// that load: by a barrier, or by a proxy fence.
// Reuse: the inbox by the channel's argument. A of this rank: in push only this launch reads it; in pull the launch
// ends only after every peer has acknowledged. So the caller may overwrite A as soon as the launch is over.
// Abandonment: a flag whose wait timed out counts as raised, the loaded data may be anything, and nothing of C is
// valid. If the channel poisons, a block's tiles become NaN when it has stored them. If blocks share a tile, each of
// them does so after its own stores, so the last block to store it poisons it last.
#pragma once
#include <type_traits>

#include <fusewire/comm/all_gather/gathered_chunks.hpp>
#include <fusewire/comm/all_gather/gathered_range.hpp>
#include <fusewire/comm/all_gather/gathered_tiles.hpp>
#include <fusewire/gemm/checked_local_sink.hpp>
#include <fusewire/ops/detail/ag_gemm_architecture.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>

namespace fusewire {

/// Arguments of ag_gemm_kernel besides its operands.
template <class T>
struct ag_gemm_arguments {
  /// How A is gathered.
  gather_plan<T> gather;
  matrix<T> c;  // [M, N]
  /// Tiles of C, in the order of this rank.
  raster_order tiles;
};

/// The source for a mainloop, chosen by how the mainloop cuts a tile's k.
template <mainloop M, class Epoch = channel_epoch>
using gathered_source = std::conditional_t<
    M::traits.slicing == k_slicing::interleaved, gathered_chunks<Epoch>,
    std::conditional_t<M::traits.slicing == k_slicing::contiguous, gathered_range<typename M::source_group, Epoch>,
                       gathered_tiles<typename M::source_group, Epoch>>>;

/// C = epilogue(gather(A) B) on this rank. Called by: ag_gemm, on every rank, with at most as many blocks as can be
/// resident.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    ag_gemm_kernel(__grid_constant__ channel_view const ch, __grid_constant__ ag_gemm_arguments<T> const g,
                   __grid_constant__ typename Mainloop::template operands<gathered_buffers> const x,
                   Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  channel_launch launch(ch, g.gather.pull);
  channel_epoch const& e = launch.epoch();
  gathered_source<Mainloop> source(e, ch.world.rank(), g.gather.map, g.gather.local_shard_first, x.k_slice());
  checked_local_sink<T> const sink{g.c, e, Mainloop::traits.tile_m,
                                   Mainloop::traits.tile_n / columns_of_value<Epilogue>};
  auto const gather = [&](auto group, int worker, int workers, auto const& begin) {
    if constexpr (Mainloop::traits.push_groups > 0)
      if (Mainloop::traits.pushes_as_one ? g.gather.alternating : !g.gather.pull) {
        std::integral_constant<int, Mainloop::traits.threads> const threads;
        std::integral_constant<int, Mainloop::traits.push_groups> const groups;
        push_alternating(threads, groups, shared, e, ch.world, g.gather, worker, workers, begin);
        return;
      }
    transfer_chunks(group, e, ch.world, g.gather, worker, workers, begin);
  };
  Mainloop::run(shared, launch, x, g.tiles, source, sink, gather, epilogue, no_tail{});
}

}  // namespace fusewire
