// The blocks of a launch and their units, which are tiles, or with split-k parts of tiles. Every block but the first
// ones begins with a unit of its own, without drawing.
#pragma once
#include <fusewire/tile/mainloop.hpp>
#include <fusewire/tile/part_sums_gfx942.hpp>

namespace fusewire {

/// How a tile's k is divided: among `blocks` blocks, 1 unless all tiles start at once, in each of which `askers` groups
/// ask the source.
struct split_k {
  int k, blocks, tiles;
  divisor askers_of_tile;
  part_sums sums;

  __device__ int part(int first_blocks) const { return blocks == 1 ? 0 : (block{}.index() - first_blocks) / tiles; }
};

/// The pieces of work that were drawn before the first that comes after the units, and what a block has drawn last.
struct drawn_work {
  int before, drawn;
};

/// Goes through this block's units: unit(tile, number of the tile, part, on_its_way) does one, and calls on_its_way()
/// when its first loads are under way. Returns what the block has drawn after them, unless the launch Ends. In a launch
/// that ends with its tiles, and in which every unit has a block of its own, nobody draws, and a block departs while
/// its first loads are under way. Called by: every thread of every block, first of all.
template <bool Ends, class Launch, class Operands, class Beside, class Unit>
__device__ __forceinline__ drawn_work take_units(void* shared, Launch& launch, Operands const& x,
                                                 tile_order const& tiles, Beside const& beside, Unit const& unit) {
  block const b;
  int const count = tiles.count() * x.split.blocks, others = b.count() - x.first_blocks,
            at_once = count < others ? count : others;
  int const own = b.index() - x.first_blocks;
  bool const has_own = own >= 0 && own < count, draws = !Ends || count > at_once;
  auto const next = [&] {
    return draws ? at_once + platform::uniform(launch.next(b, static_cast<int*>(shared))) : count;
  };
  unsigned departed = 0;
  launch.begin();
  if (own < 0) beside(b, b.index(), x.first_blocks, [] {});
  int i = has_own ? own : next();
  for (; i < count; i = next()) {
    int const part = i / tiles.count(), nth = i - part * tiles.count();
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
