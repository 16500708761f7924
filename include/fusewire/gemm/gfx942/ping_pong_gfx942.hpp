// gfx942's mainloop for many rows: the two waves of a SIMD take turns, so that one of them multiplies at any time.
//
//   waves 0-3   | slice 0 | multiply | slice 1 | multiply | ...      a slice: 32 k, half a step. In its turn a wave
//   waves 4-7             | slice 0 | multiply | slice 1 | ...       reads fragments from LDS, writes the next slice
//               ^         ^          ^ all waves sync                from registers to LDS, and loads a later step
//
// LDS holds two slices. While a wave reads the current slice, it writes its part of the next one in place of the slice
// before, which all waves have read before the last barrier. It reads the next slice after the next two barriers, when
// all waves have written it.
//
// Small tiles: LDS holds two steps, and a wave multiplies one slice of each step: waves 0-3 the first, waves 4-7 the
// second. In its turn a wave writes its part of the next step in place of the step before, and reads its fragments. It
// syncs with the others when it has written; the fragments of waves 0-3 may still be in flight, those of waves 4-7
// may not:
//
//   step before, first slice    waves 0-3 have multiplied with it before the last barrier
//   step before, second slice   waves 4-7 had all its fragments at the barrier before the turn of waves 0-3
//   next step                   all of it is there when waves 4-7 sync with the others after their turn; then it is
//   read
//
// What is done between groups of steps stands in two of the turns, while fragments are in flight from LDS.
//
// If there are fewer tiles than compute units, the k of a tile is split among blocks, which add up through
// split_k_workspace.
// Deadlock: see split_k_workspace.hpp. Blocks with a slice of a tile begin with it, so all blocks of a tile work on it
// at the same time. Order: all waves wait for the A of a tile's first group of steps. For that of later groups one wave
// waits in its turn (or the first half of the waves), and the others load it only in phases after a barrier with that
// wave, whose acquire has emptied the caches that all of them read through. So a flag that is late costs one round trip
// to memory, and not one in each half's turn.
#pragma once
#include <fusewire/gemm/gfx942/ping_pong_tile.hpp>
#include <fusewire/gemm/gfx942/persistent_loop.hpp>

namespace fusewire {

/// A mainloop.
/// C tiles of Rows x Columns.
template <class T, int Rows, int Columns, layout BOrder>
class ping_pong_gfx942 {
 public:
  static constexpr mainloop_traits traits{.name = "ping_pong_gfx942",
                                          .threads = 512,
                                          .tile_m = Rows,
                                          .tile_n = Columns,
                                          .slicing = k_slicing::interleaved,
                                          .push_groups = 2,
                                          .pushes_as_one = false};
  static constexpr int shared_bytes() { return ping_pong_tile<T, Rows, Columns, BOrder, local_rows>::shared_bytes; }

  using source_group = wave;

  template <int Buffers>
  struct operands {
    /// The buffers of A, and B.
    gemm_operands<T, Buffers> x;
    int comm_blocks;  // blocks that communicate first
    /// How a tile's k is divided.
    split_k split;

    /// As launch() asks for it
    void const* memory_of_one_launch() const { return split.sums.sums; }
    __device__ int stores() const { return split.blocks; }
    __device__ fusewire::k_slice k_slice() const { return {split.slice(comm_blocks), split.source_groups_of_tile}; }
  };

  template <class Launch, int Buffers, tile_scheduler Tiles, tile_source Source, tile_sink Sink, class Comm,
            class Epilogue, class Tail>
  __device__ __forceinline__ static void run(void* shared, Launch& launch, operands<Buffers> const& x,
                                             Tiles const& tiles, Source& source, Sink const& sink, Comm const& comm,
                                             Epilogue const& epilogue, Tail const& last) {
    persistent_loop(shared, launch, x, tiles, comm, last,
                    [&](tile_coord t, int nth, int slice, auto const& loads_issued) {
                      int const rows = platform::uniform(source.begin(t));
                      ping_pong_tile<T, Rows, Columns, BOrder, Source> tile(shared, source, x.x.a,
                                                                            x.x.b.of_group(t.group), t.n * Columns);
                      tile.multiply(rows, loads_issued);
                      stored_slice stored{{0, Rows}};
                      decltype(auto) e = epilogue_of_tile(sink, t, epilogue);
                      if (x.split.blocks == 1) tile.sums.store(shared, sink.at(t), t, e);
                      else
                        stored = tile.sums.reduce(shared, x.split.sums, sink.at(t), t, rows, nth, tiles.count(), slice,
                                                  x.split.blocks, e);
                      sink.stored(block{}, opaque(t), stored);
                    });
  }
};

}  // namespace fusewire
