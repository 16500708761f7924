// A mainloop: how the blocks of a launch go through a grid of tiles. It is a type; a kernel names no other property of
// the architecture.
//
//   every block: begin the launch --> tiles: source --A--> multiply --> epilogue --> sink
//                --> the rest of the work, or end the launch
//                beside them: what the kernel wants done at the same time, by whichever threads the mainloop has for it
//
// block_mainloop is the one that every architecture has: its first blocks do what is to be done beside the tiles, and
// then take tiles like all others. gemm_sm90 is Hopper's, in which every block has warps for it.
#pragma once
#include <fusewire/device/kernel_launch.hpp>
#include <fusewire/tile/gemm.hpp>

namespace fusewire {

/// asking: the group that calls a tile source. operands<N>: what a launch multiplies, N buffers of A and B; a kernel
/// parameter, `__grid_constant__`. threads, shared_bytes(): of a block. tile_m, tile_n: of a tile. operands::part():
/// which of the blocks that store a tile this is; parts() how many do. k_part(), k_parts(): the same of the groups that
/// each ask a source for a part of a tile's k; one_range_of_k: which is a range of all shards' k together. run(shared,
/// launch, operands, tiles, source, sink, beside, epilogue) does the tiles and returns the unclaimed_work;
/// run_and_end() ends the launch, too. Both are called by every thread of every block, first of all. beside(group,
/// worker, workers, begin) is called by every thread of each of `workers` groups, and calls begin() before it uses the
/// launch's epoch. The sink hears of a tile from the group that has stored it.
template <class M>
concept mainloop = requires {
  typename M::asking;
  typename M::template operands<1>;
  { M::threads + M::tile_m + M::tile_n } -> std::same_as<int>;
};

struct nothing_beside {
  template <group Group, class Begin>
  __device__ void operator()(Group, int, int, Begin const& begin) const {
    begin();
  }
};

/// Work for whichever block is free, numbered from 0: piece now() is this block's, and next() draws another.
template <class Launch>
class unclaimed_work {
 public:
  __device__ unclaimed_work(Launch& launch, void* shared, int before, int drawn)
      : launch_(launch), shared_(static_cast<int*>(shared)), before_(before), now_(drawn - before) {}

  __device__ int now() const { return now_; }
  __device__ void next() { now_ = launch_.next(block{}, shared_) - before_; }

 private:
  Launch& launch_;
  int* shared_;
  int before_, now_;
};

/// Tile: small_tile or large_tile.
template <class T, class Tile>
struct block_mainloop {
  static constexpr char const* name = "block_mainloop";
  static constexpr gemm_config config = Tile::config;
  static constexpr int threads = config.threads(), tile_m = config.block_m, tile_n = config.block_n,
                       min_blocks_per_cu = 1;
  static constexpr int shared_bytes() { return config.shared_bytes(); }
  static constexpr bool communicates_first = true, has_clusters = false, one_range_of_k = false;

  using asking = block;

  template <int Buffers>
  struct operands {
    gemm_operands<T, Buffers> x;
    int first_blocks;  // do what is to be done beside the tiles

    __device__ static constexpr divisor parts() { return 1; }
    __device__ static constexpr divisor k_parts() { return 1; }
    __device__ static constexpr int part() { return 0; }
    __device__ static constexpr int k_part() { return 0; }
  };
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static unclaimed_work<Launch> run(void* shared, Launch& launch, operands<Buffers> const& x,
                                               tile_order const& tiles, Source& source, Sink const& sink,
                                               Beside const& beside, Epilogue const& epilogue) {
    block const b;
    launch.begin();
    if (b.index() < x.first_blocks) beside(b, b.index(), x.first_blocks, [] {});
    auto const next = [&] { return launch.next(b, static_cast<int*>(shared)); };
    int const drawn = block_gemm<T, config>::run_tiles(shared, x.x, tiles, next, source, sink, epilogue);
    return {launch, shared, tiles.count(), drawn};
  }
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static void run_and_end(void* shared, Launch& launch, operands<Buffers> const& x, tile_order const& tiles,
                                     Source& source, Sink const& sink, Beside const& beside, Epilogue const& epilogue) {
    (void)run(shared, launch, x, tiles, source, sink, beside, epilogue);
    launch.end(block{});
  }
};

}  // namespace fusewire
