// gfx942's mainloop for few rows: the time is that of reading B, which is read once, from memory into the registers of the matrix instruction.
//
//   block   a tile of C, or with split-k a range of its k     wave   an eighth of the block's steps along k
//
//   B --16 B, non-temporal--> a ring of registers --+
//   A (after its flag) --16 B-----------------------+--> matrix instruction --> fp32 sums of a wave --LDS--> of the block --> part_sums --> epilogue --> sink
//
// The first loads of B leave before the launch's epoch is known and before any flag is looked at. A wave asks its source for itself, so it waits for the flags
// of its own range of k alone. The first blocks do what is to be done beside the tiles; tiles that find no block of their own are drawn by whoever is free.
//
// Loads of a wave return in order, so A travels in a ring as deep as that of B. The ring is filled group by group: a group's steps lie side by side in one shard,
// and where it has fewer than the ring holds, the rest are zeros, which no memory is read for.
#pragma once
#include <fusewire/tile/few_rows_tile_gfx942.hpp>
#include <fusewire/tile/mainloop.hpp>

namespace fusewire {

/// C tiles of Rows x Columns, each a multiple of 16.
template <class T, int Rows, int Columns, layout BOrder>
class few_rows_gfx942 {

 public:
  static constexpr int waves = 8;
  static constexpr char const* name = "few_rows_gfx942";
  static constexpr int threads = waves * wave::width, tile_m = Rows, tile_n = Columns, least_blocks_per_unit = 2;
  static constexpr int shared_bytes() { return few_rows_tile<T, Rows, Columns, BOrder, local_rows>::shared_bytes; }
  static constexpr bool communicates_first = true, has_clusters = false, one_range_of_k = true;

  using asking = wave;

  /// How a tile's k is divided: among `blocks` blocks, 1 unless all tiles start at once, and their waves.
  struct split_k {
    int k, blocks, tiles;
    divisor waves_of_tile;
    part_sums sums;
  };

  template <int Buffers>
  struct operands {
    gemm_operands<T, Buffers> x;
    int first_blocks;  // do what is to be done beside the tiles
    split_k split;

    __device__ static constexpr divisor parts() { return 1; }
    __device__ divisor const& k_parts() const { return split.waves_of_tile; }
    __device__ int k_part() const {
      int const of_tile = split.blocks == 1 ? 0 : (block{}.index() - first_blocks) / split.tiles;
      return of_tile * waves + platform::uniform(wave{}.index());
    }
  };
  __device__ static constexpr int part() { return 0; }

  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static unclaimed_work<Launch> run(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles, Source& source, Sink const& sink,
                                               Beside const& beside, Epilogue const& epilogue) {
    return {launch, shared, 0, go<false>(shared, launch, x, tiles, source, sink, beside, epilogue)};
  }
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static void run_and_end(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles, Source& source, Sink const& sink,
                                     Beside const& beside, Epilogue const& epilogue) {
    (void)go<true>(shared, launch, x, tiles, source, sink, beside, epilogue);
  }

 private:
  /// What the blocks work at, one after the other: tiles, or their parts. The first are taken without being drawn.
  struct units {
    int count, at_once, own;  // own: -1: none

    template <int Buffers>
    __device__ units(operands<Buffers> const& x, tile_order const& tiles) : count(tiles.count() * x.split.blocks), at_once(least(count, block{}.count() - x.first_blocks)), own(block{}.index() - x.first_blocks) {
      if (own < 0 || own >= count) own = -1;
    }
    __device__ static int least(int a, int b) { return a < b ? a : b; }
  };

  /// The number of the piece of work after the tiles that this block has drawn, unless it Ends the launch. In a launch that ends with its tiles, and in which every
  /// tile has blocks of its own, nobody draws, and a block departs while its first loads are under way.
  template <bool Ends, class Launch, int Buffers, class Source, class Sink, class Beside, class Epilogue>
  __device__ static int go(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles, Source& source, Sink const& sink, Beside const& beside,
                           Epilogue const& epilogue) {
    block const b;
    units const u(x, tiles);
    bool const draws = !Ends || u.count > u.at_once;
    auto const next = [&] { return draws ? u.at_once + platform::uniform(launch.next(b, static_cast<int*>(shared))) : u.count; };
    unsigned departed = 0;
    launch.begin();
    if (b.index() < x.first_blocks) beside(b, b.index(), x.first_blocks, [] {});
    int i = u.own >= 0 ? u.own : next();
    for (; i < u.count; i = next()) {
      int const split = i / tiles.count(), nth = i - split * tiles.count();
      tile_at const t = tiles[nth];
      few_rows_tile<T, Rows, Columns, BOrder, Source> tile(shared, source, x.x.a, x.x.b, x.split.k, t.n * Columns);
      int const rows = platform::uniform(source.begin(t.m));
      tile.ask_for_b();
      if (!draws) {
        launch.settle();
        b.sync();
        if (b.leader() && b.index() > 0) departed = launch.depart();
      }
      tile.ask_for_a(rows);
      tile.multiply(rows);
      tile.reduce(sink, x.split.sums, t, nth, tiles.count(), split, x.split.blocks, epilogue);
    }
    if (!Ends) return i - u.count;
    if (draws) {
      launch.end(b);
    } else {
      b.sync();
      if (b.index() == 0) launch.collect(b);
      if (b.leader()) launch.leave(b, u.own < 0 || b.index() == 0 ? launch.depart() : departed);
    }
    return 0;
  }
};

}  // namespace fusewire
