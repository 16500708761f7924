// A mainloop: how the blocks of a launch go through a grid of tiles. It is a type; a kernel names no other property of
// the architecture.
//
//   every block: begin the launch --> tiles: source --A--> multiply --> epilogue --> sink
//                --> the rest of the work, or end the launch
//                beside the tiles: work that the kernel wants done at the same time; the mainloop chooses the threads
//
// Every architecture has block_mainloop: its first blocks do the work beside the tiles, and then take tiles like all
// others. gemm_sm90 is Hopper's: every block has warps for the work beside the tiles.
#pragma once
#include <fusewire/device/channel_launch.hpp>
#include <fusewire/gemm/block_gemm.hpp>

namespace fusewire {

/// How the k of a tile is cut into parts. per_shard: a part has a range of every shard of A. contiguous: a part
/// has one range of the k of all shards, one shard after the other. interleaved: a part has every n-th chunk of A.
enum class k_slicing { per_shard, contiguous, interleaved };

/// source_group: the group that calls a tile source. operands<N>: N buffers of A, and B; a `__grid_constant__`
/// parameter of the kernel. threads, shared_bytes(): of a block. tile_m, tile_n: of a tile. operands::parts(): how many
/// blocks share the storing of a tile; part(): which of them this block is; part_unit: granule of the ceil_slice of
/// rows that each of them stores. k_parts(), k_part(): the same for the groups that each ask a source for a part of a
/// tile's k; cut: how these parts are cut.
/// run(shared, launch, operands, tiles, source, sink, beside, epilogue) does the tiles and returns the unclaimed_work;
/// run_and_end() ends the launch, too. Both are called by every thread of every block, first of all. beside(group,
/// worker, workers, begin) is called by every thread of each of `workers` groups, and calls begin() before it uses the
/// launch's epoch. The group that has stored a tile calls the sink's stored().
/// For operators: name: in messages; min_blocks_per_cu: the second argument of __launch_bounds__; has_clusters: whether
/// blocks that share a tile are a cluster; communicates_first: whether the first blocks do the work beside the tiles,
/// before they take tiles; source_groups, waves: of a block; push_groups: groups of a block's waves that take turns to
/// push, 0 if a block pushes as one (pusher.hpp); if there are any, always_in_turns: whether the plan has no
/// say.
template <class M>
concept mainloop = requires {
  typename M::source_group;
  typename M::template operands<1>;
  { M::threads + M::tile_m + M::tile_n + M::part_unit + M::push_groups } -> std::same_as<int>;
};

/// For kernels that do nothing beside their tiles.
struct no_comm {
  /// Begins the launch, as all work beside the tiles does.
  template <group Group, class Begin>
  __device__ void operator()(Group, int, int, Begin const& begin) const {
    begin();
  }
};

/// Work for free blocks, in pieces numbered from 0: piece now() is this block's, and next() draws another.
template <class Launch>
class unclaimed_work {
 public:
  /// Made by a mainloop. before: how many numbers were drawn for tiles; drawn: the number that this block has drawn
  /// last; shared: one word in the block's shared memory.
  __device__ unclaimed_work(Launch& launch, void* shared, int before, int drawn)
      : launch_(launch), shared_(static_cast<int*>(shared)), before_(before), now_(drawn - before) {}

  /// The number of this block's piece.
  __device__ int now() const { return now_; }
  /// Draws another piece. Called by: every thread of the block.
  __device__ void next() { now_ = launch_.next(block{}, shared_) - before_; }

 private:
  Launch& launch_;
  int* shared_;
  int before_, now_;
};

/// A mainloop.
/// Tile: small_tile or large_tile.
template <class T, class Tile>
struct block_mainloop {
  static constexpr char const* name = "block_mainloop";
  static constexpr gemm_config config = Tile::config;  // of a block's GEMM
  static constexpr int threads = config.threads(), tile_m = config.block_m, tile_n = config.block_n;
  static constexpr int min_blocks_per_cu = 1;
  static constexpr int part_unit = 1;
  static constexpr int shared_bytes() { return config.shared_bytes(); }
  static constexpr bool communicates_first = true, has_clusters = false;
  static constexpr k_slicing cut = k_slicing::per_shard;
  static constexpr int push_groups = 0;

  using source_group = block;

  template <int Buffers>
  struct operands {
    gemm_operands<T, Buffers> x;  // the buffers of A, and B
    int first_blocks;             // blocks that do the work beside the tiles

    __device__ static constexpr divisor parts() { return 1; }
    __device__ static constexpr divisor k_parts() { return 1; }
    __device__ static constexpr int part() { return 0; }
    __device__ static constexpr int k_part() { return 0; }
  };
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static unclaimed_work<Launch> run(void* shared, Launch& launch, operands<Buffers> const& x,
                                               raster_order const& tiles, Source& source, Sink const& sink,
                                               Beside const& beside, Epilogue const& epilogue) {
    block const b;
    launch.begin();
    if (b.index() < x.first_blocks) beside(b, b.index(), x.first_blocks, [] {});
    auto const next = [&] { return launch.next(b, static_cast<int*>(shared)); };
    int const drawn = block_gemm<T, config>::run_tiles(shared, x.x, tiles, next, source, sink, epilogue);
    return {launch, shared, tiles.count(), drawn};
  }
  template <class Launch, int Buffers, tile_source Source, tile_sink Sink, class Beside, class Epilogue>
  __device__ static void run_and_end(void* shared, Launch& launch, operands<Buffers> const& x,
                                     raster_order const& tiles, Source& source, Sink const& sink, Beside const& beside,
                                     Epilogue const& epilogue) {
    (void)run(shared, launch, x, tiles, source, sink, beside, epilogue);
    launch.end(block{});
  }
};

}  // namespace fusewire
