// gfx942's mainloop for many rows: the waves of a SIMD take turns, so that one of them multiplies at any time.
//
//   waves 0-3   | slice 0 | multiply | slice 1 | multiply | ...      a slice: 32 k, half a step. Its turn: fragments
//   waves 4-7             | slice 0 | multiply | slice 1 | ...       from LDS; the next slice, registers to LDS; memory
//               ^         ^          ^ all waves meet                to registers for a later step
//
// LDS holds two slices. A wave writes its part of the next slice while it reads the current one, where the slice before
// was: all waves have read that before the last meeting. It reads it after the next two meetings: all have written.
//
// Small tiles: LDS holds two steps, and a wave has one slice of each, the first in waves 0-3, the second in waves 4-7.
// In its turn it writes its part of the next step where the step before was. The first slice of that was read two
// meetings ago, the second by the other half before the last meeting. It is read one to three meetings later.
//
// Where tiles are too few for all compute units, their k is split among blocks, which add up through part_sums.
// Deadlock: see part_sums_gfx942.hpp; blocks with a part of a tile begin with it, so all of a tile's are at it
// together. Waves wait for flags one by one, for the same ones, and meet afterwards.
#pragma once
#include <fusewire/tile/ping_pong_tile_gfx942.hpp>
#include <fusewire/tile/units_gfx942.hpp>

namespace fusewire {

/// C tiles of Rows x Columns.
template <class T, int Rows, int Columns, layout BOrder>
class ping_pong_gfx942 {
 public:
  static constexpr char const* name = "ping_pong_gfx942";
  static constexpr int askers = 1, threads = 512, tile_m = Rows, tile_n = Columns, min_blocks_per_cu = 1;
  static constexpr int shared_bytes() { return ping_pong_tile<T, Rows, Columns, BOrder, local_rows>::shared_bytes; }
  static constexpr bool communicates_first = true, has_clusters = false, one_range_of_k = true;

  using asking = wave;

  template <int Buffers>
  struct operands {
    gemm_operands<T, Buffers> x;
    int first_blocks;  // do what is to be done beside the tiles
    split_k split;

    __device__ divisor const& parts() const { return split.askers_of_tile; }
    __device__ divisor const& k_parts() const { return split.askers_of_tile; }
    __device__ int part() const { return split.part(first_blocks); }
    __device__ int k_part() const { return part(); }
  };

  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static unclaimed_work<Launch> run(void* shared, Launch& launch, operands<Buffers> const& x,
                                               tile_order const& tiles, Source& source, Sink const& sink,
                                               Beside const& beside, Epilogue const& epilogue) {
    drawn_work const w = go<false>(shared, launch, x, tiles, source, sink, beside, epilogue);
    return {launch, shared, w.before, w.drawn};
  }
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static void run_and_end(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles,
                                     Source& source, Sink const& sink, Beside const& beside, Epilogue const& epilogue) {
    (void)go<true>(shared, launch, x, tiles, source, sink, beside, epilogue);
  }

 private:
  template <bool Ends, class Launch, int Buffers, class Source, class Sink, class Beside, class Epilogue>
  __device__ __forceinline__ static drawn_work go(void* shared, Launch& launch, operands<Buffers> const& x,
                                                  tile_order const& tiles, Source& source, Sink const& sink,
                                                  Beside const& beside, Epilogue const& epilogue) {
    return take_units<Ends>(
        shared, launch, x, tiles, beside, [&](tile_at t, int nth, int part, auto const& on_its_way) {
          ping_pong_tile<T, Rows, Columns, BOrder, Source> tile(shared, source, x.x.a, x.x.b, t.n * Columns);
          int const rows = platform::uniform(source.begin(t.m));
          tile.multiply(rows, on_its_way);
          if (x.split.blocks == 1) tile.store(sink.at(t), t, epilogue);
          else tile.add_up(x.split.sums, sink.at(t), t, rows, nth, tiles.count(), part, x.split.blocks, epilogue);
          sink.stored(block{}, t);
        });
  }
};

}  // namespace fusewire
