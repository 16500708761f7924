// How the blocks of a launch take its units. A unit is a tile or, with split-k, a part of a tile. Every block but the
// first ones begins with a unit of its own, without drawing.
#pragma once
#include <fusewire/gemm/mainloop.hpp>
#include <fusewire/gemm/gfx942/split_k_sums.hpp>

namespace fusewire {

/// The unit that block i takes if `count` units start at once in as many blocks. Blocks go to the XCDs in turns, as far
/// as is known. The blocks of one XCD take neighbouring units, which share rows of A and columns of B in its L2.
__device__ inline int xcd_swizzle(int i, int count) {
  constexpr int xcds = 8;
  int const xcd = i % xcds, more = count % xcds;
  return xcd * (count / xcds) + min(xcd, more) + i / xcds;
}

/// How a tile's k is divided: among the blocks that share the tile, and within a block among the groups that ask the
/// source.
struct split_k {
  /// Columns of A; blocks that share a tile, 1 unless all units start at once.
  int k, blocks;
  /// Tiles of the launch; groups in all blocks of a tile that ask for parts of its k.
  divisor tiles, source_groups_of_tile;
  /// Memory in which blocks that share a tile add up.
  split_k_sums sums;

  /// Which of the blocks that share a tile this block is. first_blocks: blocks of the launch that communicate first.
  __device__ int part(int first_blocks) const {
    return blocks == 1 ? 0 : xcd_swizzle(block{}.index() - first_blocks, blocks * tiles.value()) / tiles;
  }
};

/// What a block has drawn when its units are done.
struct claimed_work {
  /// How many of the numbers are units; the number that this block drew last, which is none of them.
  int before, drawn;
};

/// Goes through this block's units: unit(tile, number of the tile, part, on_its_way) does one, and calls on_its_way()
/// when its first loads are under way. If Ends, ends the launch with them; else returns what the block has drawn after
/// them. If the launch ends with its tiles, and every unit has a block of its own, no block draws, and a block departs
/// while its first loads are under way.
/// Called by: every thread of every block, first of all.
template <bool Ends, class Launch, class Operands, class Beside, class Unit>
__device__ __forceinline__ claimed_work persistent_loop(void* shared, Launch& launch, Operands const& x,
                                                        raster_order const& tiles, Beside const& beside,
                                                        Unit const& unit) {
  block const b;
  int const count = tiles.count() * x.split.blocks, others = b.count() - x.first_blocks, at_once = min(count, others);
  int const own = b.index() - x.first_blocks;
  bool const has_own = own >= 0 && own < count, draws = !Ends || count > at_once;
  auto const next = [&] {
    return draws ? at_once + platform::uniform(launch.next(b, static_cast<int*>(shared))) : count;
  };
  unsigned departed = 0;
  launch.begin();
  if (own < 0) beside(b, b.index(), x.first_blocks, [] {});
  int i = has_own ? xcd_swizzle(own, at_once) : next();
  for (; i < count; i = next()) {
    int const part = i / x.split.tiles, nth = i - part * tiles.count();
    unit(tiles[nth], nth, part, [&] {
      if (draws) return;
      launch.settle();
      b.sync();
      if (b.leader() && b.index() > 0) departed = launch.depart();
    });
  }
  if (!Ends) return {count - at_once, i - at_once};
  if (b.index() == 0) launch.collect(b);
  b.sync();
  if (b.leader()) launch.leave(b, !draws && has_own && b.index() > 0 ? departed : launch.depart());
  return {};
}

}  // namespace fusewire
