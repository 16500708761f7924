// gfx942's mainloop for few rows. Its time is the time to read B. B is read once, in whole lines, and each wave turns
// what it has read into fragments by itself.
//
//   block   a tile of C, or with split-k a range of its k     wave   an eighth of the block's steps along k
//
//   B --16 B, non-temporal--> a ring of registers --+
//   A (after its flag) --16 B-----------------------+--LDS of the wave--> matrix instruction --> fp32 sums of a wave
//     --LDS--> sums of the block --> split_k_sums --> epilogue --> sink
//
// The first loads of B start before the launch's epoch is known and before any flag is polled. Each wave asks the
// source for itself, so it waits only for the flags of its own range of k. The first blocks do the work beside the
// tiles. Free blocks draw the tiles that have no block of their own.
//
// Loads of a wave return in order, so A travels in a ring as deep as that of B. The ring is filled group by group: the
// steps of a group lie side by side in one shard. If a group has fewer steps than the ring holds, the rest are zeros,
// for which no memory is read.
#pragma once
#include <fusewire/gemm/gfx942/small_m_tile.hpp>
#include <fusewire/gemm/gfx942/persistent_loop.hpp>

namespace fusewire {

/// A mainloop.
/// C tiles of Rows x Columns, each a multiple of 16.
template <class T, int Rows, int Columns, layout BOrder>
class small_m_gfx942 {
 public:
  static constexpr int waves = 8, source_groups = waves;  // each wave asks the source for its part of k
  static constexpr char const* name = "small_m_gfx942";
  static constexpr int threads = waves * wave::width, tile_m = Rows, tile_n = Columns, min_blocks_per_cu = 2;
  static constexpr int part_unit = 1;
  static constexpr int shared_bytes() { return small_m_tile<T, Rows, Columns, BOrder, local_rows>::shared_bytes; }
  static constexpr bool communicates_first = true, has_clusters = false;
  /// As the concept mainloop has it
  static constexpr k_slicing cut = k_slicing::contiguous;
  /// As the concept mainloop has it. With fewer rows no link is busy for long
  static constexpr int push_groups = Rows >= 64 ? waves : 0;
  static constexpr bool always_in_turns = false;

  using source_group = wave;

  template <int Buffers>
  struct operands {
    /// The buffers of A, and B.
    gemm_operands<T, Buffers> x;
    int first_blocks;  // blocks that do the work beside the tiles
    /// How a tile's k is divided.
    split_k split;

    /// As launch() asks for it
    void const* memory_of_one_launch() const { return split.sums.sums; }
    __device__ static constexpr divisor parts() { return 1; }
    __device__ static constexpr int part() { return 0; }
    __device__ divisor const& k_parts() const { return split.source_groups_of_tile; }
    __device__ int k_part() const {
      return split.part(first_blocks) * source_groups + platform::uniform(wave{}.index());
    }
  };
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static unclaimed_work<Launch> run(void* shared, Launch& launch, operands<Buffers> const& x,
                                               raster_order const& tiles, Source& source, Sink const& sink,
                                               Beside const& beside, Epilogue const& epilogue) {
    claimed_work const w = go<false>(shared, launch, x, tiles, source, sink, beside, epilogue);
    return {launch, shared, w.before, w.drawn};
  }
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static void run_and_end(void* shared, Launch& launch, operands<Buffers> const& x,
                                     raster_order const& tiles, Source& source, Sink const& sink, Beside const& beside,
                                     Epilogue const& epilogue) {
    (void)go<true>(shared, launch, x, tiles, source, sink, beside, epilogue);
  }

 private:
  template <bool Ends, class Launch, int Buffers, class Source, class Sink, class Beside, class Epilogue>
  __device__ static claimed_work go(void* shared, Launch& launch, operands<Buffers> const& x, raster_order const& tiles,
                                    Source& source, Sink const& sink, Beside const& beside, Epilogue const& epilogue) {
    return persistent_loop<Ends>(
        shared, launch, x, tiles, beside, [&](tile_coord t, int nth, int part, auto const& on_its_way) {
          small_m_tile<T, Rows, Columns, BOrder, Source> tile(shared, source, x.x.a, x.x.b, x.split.k, t.n * Columns);
          int const rows = platform::uniform(source.begin(t.m));
          tile.ask_for_b();
          on_its_way();
          tile.ask_for_a(rows);
          tile.multiply(rows);
          tile.reduce(sink, x.split.sums, t, nth, tiles.count(), part, x.split.blocks, epilogue);
        });
  }
};

}  // namespace fusewire
