// gfx942's mainloop for small M. Its time is the time to read B. B is read once, in whole lines, and each wave turns
// what it has read into fragments by itself.
//
//   block   a tile of C, or with split-k a range of its k     wave   an eighth of the block's steps along k
//
//   B --16 B, non-temporal--> a ring of registers --+
//   A (after its flag) --16 B-----------------------+--LDS of the wave--> matrix instruction --> fp32 sums of a wave
//     --LDS--> sums of the block --> split_k_workspace --> epilogue --> sink
//
// The first loads of B start before the launch's epoch is known and before any flag is polled. Each wave asks the
// source for itself, so it waits only for the flags of its own range of k. The first blocks do the work overlapped with
// the tiles. Free blocks claim the tiles that have no block of their own.
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
  static constexpr int waves = 8;  // of a block
  static constexpr mainloop_traits traits{.name = "small_m_gfx942",
                                          .threads = waves * wave::width,
                                          .tile_m = Rows,
                                          .tile_n = Columns,
                                          .min_blocks_per_cu = 2,
                                          .slicing = k_slicing::contiguous,
                                          .source_groups = waves,
                                          .push_groups = Rows >= 64 ? waves : 0};  // with fewer rows links idle
  static constexpr int shared_bytes() { return small_m_tile<T, Rows, Columns, BOrder, local_rows>::shared_bytes; }

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
    __device__ static constexpr int stores() { return 1; }
    __device__ fusewire::k_slice k_slice() const {
      return {split.slice(comm_blocks) * waves + platform::uniform(wave{}.index()), split.source_groups_of_tile};
    }
  };
  template <class Launch, int Buffers, tile_scheduler Tiles, tile_source Source, tile_sink Sink, class Comm,
            class Epilogue, class Tail>
  __device__ static void run(void* shared, Launch& launch, operands<Buffers> const& x, Tiles const& tiles,
                             Source& source, Sink const& sink, Comm const& comm, Epilogue const& epilogue,
                             Tail const& last) {
    persistent_loop(shared, launch, x, tiles, comm, last,
                    [&](tile_coord t, int nth, int slice, auto const& loads_issued) {
                      small_m_tile<T, Rows, Columns, BOrder, Source> tile(
                          shared, source, x.x.a, x.x.b.of_group(t.group), x.split.k, t.n * Columns);
                      int const rows = platform::uniform(source.begin(t));
                      tile.issue_b();
                      loads_issued();
                      tile.issue_a(rows);
                      tile.multiply(rows);
                      tile.reduce(sink, x.split.sums, t, nth, tiles.count(), slice, x.split.blocks, epilogue);
                    });
  }
};

}  // namespace fusewire
