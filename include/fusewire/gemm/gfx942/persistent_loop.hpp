// How the blocks of a launch take its work items. An item is a tile or, with split-k, a slice of a tile. Every block
// but those that communicate begins with its own item, without claiming it.
#pragma once
#include <fusewire/gemm/mainloop.hpp>
#include <fusewire/gemm/gfx942/split_k_workspace.hpp>

namespace fusewire {

/// The item that block i takes if `count` items start together in as many blocks. Blocks go to the XCDs round robin, as
/// far as is known. The blocks of one XCD take neighbouring items, which share rows of A and columns of B in its L2.
__device__ inline int xcd_swizzle(int i, int count) {
  constexpr int xcds = 8;
  int const xcd = i % xcds, more = count % xcds;
  return xcd * (count / xcds) + min(xcd, more) + i / xcds;
}

/// How a tile's k is divided: among the blocks that share the tile, and within a block among the groups that ask the
/// source.
struct split_k {
  /// Columns of A; blocks that share a tile, 1 unless all items start together.
  int k, blocks;
  /// Tiles of the launch, or more with one block for each; groups in all blocks of a tile that ask for slices of its k.
  divisor tiles, source_groups_of_tile;
  /// Memory in which blocks that share a tile add up.
  split_k_workspace sums;

  /// Which k slice of its tile this block has. comm_blocks: blocks of the launch that communicate first.
  __device__ int slice(int comm_blocks) const {
    return blocks == 1 ? 0 : xcd_swizzle(block{}.index() - comm_blocks, blocks * tiles.value()) / tiles;
  }
};

/// Goes through this block's work items, tiles or slices of them, and the tail, and ends the launch.
/// work(tile, number of the tile, slice, loads_issued) does one item, and calls loads_issued() when its first loads are
/// in flight. Without a tail, and if every item has its own block, no block claims, and a block arrives at the
/// launch's exit while its first loads are in flight.
/// Called by: every thread of every block, first and last of all.
template <class Launch, class Operands, tile_scheduler Tiles, class Comm, class Tail, class Work>
__device__ __forceinline__ void persistent_loop(void* shared, Launch& launch, Operands const& x, Tiles const& tiles,
                                                Comm const& comm, Tail const& last, Work const& work) {
  constexpr bool has_tail = !std::is_same_v<Tail, no_tail>;
  block const b;
  int const count = tiles.count() * x.split.blocks, others = b.count() - x.comm_blocks, at_once = min(count, others);
  int const first = b.index() - x.comm_blocks;
  bool const has_first = first >= 0 && first < count, claims = has_tail || count > at_once;
  auto const next = [&] {
    return claims ? at_once + platform::uniform(launch.next(b, static_cast<int*>(shared))) : count;
  };
  unsigned exits_before = 0;
  launch.begin();
  if (first < 0) comm(b, b.index(), x.comm_blocks, [] {});
  int i = has_first ? xcd_swizzle(first, at_once) : next();
  for (; i < count; i = next()) {
    int const slice = i / x.split.tiles, nth = i - slice * tiles.count();
    work(tiles[nth], nth, slice, [&] {
      if (claims) return;
      launch.wait_epoch();
      b.sync();
      if (b.leader() && b.index() > 0) exits_before = launch.arrive_exit();
    });
  }
  if constexpr (has_tail) return finish_launch(launch, shared, count - at_once, i - at_once, last);
  if (b.index() == 0) launch.wait_peers(b);
  b.sync();
  if (b.leader()) launch.finish_exit(b, !claims && has_first && b.index() > 0 ? exits_before : launch.arrive_exit());
}

}  // namespace fusewire
