// A mainloop: how the blocks of a launch go through a grid of tiles. It is a type with traits and one call; a kernel
// names no other property of the architecture.
//
//   every block: begin the launch --> tiles: source --A--> multiply --> epilogue --> sink --> tail --> end the launch
//                communication: what the kernel sends meanwhile; the mainloop chooses the threads
//
// Every architecture has block_mainloop: its leading blocks communicate, and then take tiles like all others. gemm_sm90
// is Hopper's: every block has warps that communicate.
#pragma once
#include <fusewire/device/channel_launch.hpp>
#include <fusewire/gemm/block_gemm.hpp>

namespace fusewire {

/// How split-k cuts the k of a tile into slices. per_shard: a slice has a range of every shard of A. contiguous: a
/// slice has one range of the k of all shards, one shard after the other. interleaved: a slice has every n-th chunk.
enum class k_slicing { per_shard, contiguous, interleaved };

/// Which threads communicate. leading_blocks: all threads of the first blocks, before these take tiles. idle_warps:
/// warps of every block that multiply nothing.
enum class comm_placement { leading_blocks, idle_warps };

/// What kernels and operators ask of a mainloop.
struct mainloop_traits {
  char const* name;                                      // in messages
  int threads;                                           // of a block
  int tile_m, tile_n;                                    // rows and columns of a tile
  int min_blocks_per_cu = 1;                             // the second argument of __launch_bounds__
  k_slicing slicing = k_slicing::per_shard;              // of tiles that several blocks share
  comm_placement comm = comm_placement::leading_blocks;  // which threads communicate
  bool clusters = false;                                 // the blocks that share a tile form a cluster
  int source_groups = 1;      // groups of a block that each multiply a slice of its k, and call the source for it
  int push_groups = 0;        // groups of a sending block's waves that push alternately (pusher.hpp); 0: they cannot
  bool pushes_as_one = true;  // a sending block can also push as one group
};

/// source_group: the group that calls a tile source. operands<N>: N buffers of A, and B; a `__grid_constant__`
/// parameter of the kernel. operands::k_slice(): the calling group's; operands::stores(): blocks that each store a
/// slice of a tile. shared_bytes(): of a block.
/// run(shared, launch, operands, tiles, source, sink, comm, epilogue, tail) begins the launch, does the tiles and the
/// tail, and ends the launch. Called by: every thread of every block, first and last of all.
/// comm(group, worker, workers, begin) is called by every thread of each of `workers` groups, and calls begin() before
/// it uses the launch's epoch.
template <class M>
concept mainloop = requires {
  typename M::source_group;
  typename M::template operands<1>;
  { M::traits } -> std::same_as<mainloop_traits const&>;
  { M::shared_bytes() } -> std::same_as<int>;
};

/// For kernels that communicate in their source, sink and tail only.
struct no_comm {
  /// Begins the launch.
  template <group Group, class Begin>
  __device__ void operator()(Group, int, int, Begin const& begin) const {
    begin();
  }
};

/// Work for blocks that have no more tiles: items [0, count). An item is done by one block.
/// work(block, item) is called by every thread of the block.
template <class Work>
struct tail {
  int count;  // items
  Work work;  // does one
};
/// From its members.
template <class Work>
tail(int, Work) -> tail<Work>;
/// For kernels that end with their tiles.
struct no_tail {};

/// Does the tail and ends the launch. `claimed`: the value that this block claimed last, past `tiles` tiles; `shared`:
/// a word in the block's shared memory. Called by: every thread of every block.
template <class Launch, class Work>
__device__ __forceinline__ void finish_launch(Launch& launch, void* shared, int tiles, int claimed,
                                              tail<Work> const& last) {
  int const count = platform::uniform(last.count);  // all threads of the block go round as often
  auto const next = [&] { return platform::uniform(launch.next(block{}, static_cast<int*>(shared))); };
  for (int item = platform::uniform(claimed) - tiles; item < count; item = next() - tiles) last.work(block{}, item);
  launch.end(block{});
}
/// Ends the launch.
template <class Launch>
__device__ __forceinline__ void finish_launch(Launch& launch, void*, int, int, no_tail) {
  launch.end(block{});
}

/// A mainloop.
/// Tile: small_tile or large_tile.
template <class T, class Tile>
struct block_mainloop {
  static constexpr gemm_config config = Tile::config;  // of a block's GEMM
  static constexpr mainloop_traits traits{
      .name = "block_mainloop", .threads = config.threads(), .tile_m = config.block_m, .tile_n = config.block_n};
  static constexpr int shared_bytes() { return config.shared_bytes(); }

  using source_group = block;

  template <int Buffers>
  struct operands {
    gemm_operands<T, Buffers> x;  // the buffers of A, and B
    int comm_blocks;              // blocks that communicate first

    __device__ static constexpr int stores() { return 1; }
    __device__ static constexpr fusewire::k_slice k_slice() { return {}; }
  };
  template <class Launch, int Buffers, tile_scheduler Tiles, tile_source Source, tile_sink Sink, class Comm,
            class Epilogue, class Tail>
  __device__ static void run(void* shared, Launch& launch, operands<Buffers> const& x, Tiles const& tiles,
                             Source& source, Sink const& sink, Comm const& comm, Epilogue const& epilogue,
                             Tail const& last) {
    block const b;
    launch.begin();
    if (b.index() < x.comm_blocks) comm(b, b.index(), x.comm_blocks, [] {});
    auto const next = [&] { return launch.next(b, static_cast<int*>(shared)); };
    int const claimed = block_gemm<T, config>::run_tiles(shared, x.x, tiles, next, source, sink, epilogue);
    finish_launch(launch, shared, tiles.count(), claimed, last);
  }
};

}  // namespace fusewire
