// Split-k: the blocks that share a tile of C add up their sums through memory, in the order of the blocks, so that the
// sums are the same in every run.
//
//   add_up   for small tiles   sums --device scope--> memory; all stored --> ticket; the last block to arrive adds up
//                              the sums of all blocks, in order. No block waits.
//   meet     for large tiles   the same, but all blocks wait until all have arrived, and each adds up a part
//
// Order: the sums are stored and loaded at device scope, past the caches that other XCDs do not see. The stores of a
// wave are done when drain_stores() returns, and the block meets before its ticket is counted. Loads come after the
// count that says that all blocks have stored, and after a barrier. So no cache is written back or emptied. That a
// store at device scope is done when it is counted is for a machine to say: tests/litmus, counted_stores. A ticket is
// back at 0 when the last block has arrived (add_up), or when the last block has seen that all have arrived (meet).
// Deadlock, in meet: blocks that share tiles are resident together, and wait for each other only when they have
// multiplied.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/tile/buffer_gfx942.hpp>

namespace fusewire {

/// Sums of one tile in memory, of all blocks that share it: [split][group][lane], four sums for each lane of a wave.
class sums_of_tile {
 public:
  /// data: of the first block; stride: bytes from one block to the next.
  __device__ sums_of_tile(float* data, int stride) : memory_(data, nowhere), stride_(stride) {}

  /// Stores a group of sums of block `split`. Called by: every lane of a wave.
  __device__ void store(int split, int group, float4 const& sums) const {
    memory_.store_through(__builtin_bit_cast(bytes16, sums), wave{}.rank() * 16, split * stride_ + group * group_bytes);
  }
  /// sums[i] becomes group number `group + i * step` of all blocks, added up in the order of the blocks, or anything if
  /// that is not below `end`. If block number `own` did not store its own sums, sums[i] has them.
  /// Called by: every lane of a wave. Requires: the other blocks have stored.
  template <int N>
  __device__ void add_up(float4 (&sums)[N], int group, int step, int end, int splits, int own) const {
    constexpr int at_once = 4;  // blocks whose sums are under way together
    float4 all[N] = {};
    for (int first = 0; first < splits; first += at_once) {
      bytes16 stored[at_once][N];
#pragma unroll
      for (int j = 0; j < at_once; ++j)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          int const split = first + j, of = group + i * step;
          bool const is_stored = split < splits && split != own && of < end;
          stored[j][i] = memory_.load_through(
              wave{}.rank() * 16, platform::uniform(is_stored ? split * stride_ + of * group_bytes : nowhere));
        }
      platform::keep_order();  // all loads first
#pragma unroll
      for (int j = 0; j < at_once; ++j)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          auto const part = first + j == own ? sums[i] : __builtin_bit_cast(float4, stored[j][i]);
          all[i].x += part.x, all[i].y += part.y, all[i].z += part.z, all[i].w += part.w;
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] = all[i];
  }

 private:
  static constexpr int group_bytes = wave::width * int(sizeof(float4));

  memory_buffer memory_;
  int stride_;
};

/// Memory for the launches of one operator. One launch at a time may use it.
struct part_sums {
  float* sums;        // of all blocks
  unsigned* tickets;  // [tiles], 0 between launches

  /// Of a launch with `tiles` tiles of `groups` groups each.
  __device__ sums_of_tile of_tile(int tile, int tiles, int groups) const {
    int const of_group = 4 * wave::width;
    return {sums + std::int64_t(tile) * groups * of_group, tiles * groups * of_group * int(sizeof(float))};
  }

  /// Returns when all of the tile's blocks have stored. Called by: every thread of each of these blocks.
  __device__ void meet(int tile, int splits) const {
    block const b;
    platform::drain_stores();
    b.sync();
    if (b.leader()) {
      unsigned* const ticket = tickets + tile;
      platform::atomic_fetch_add<order::relaxed, scope::device>(ticket, 1u);
      while (platform::atomic_load<order::relaxed, scope::device>(ticket) < unsigned(splits)) platform::backoff();
      platform::acquire_polled<scope::device>(ticket);
    }
    b.sync();
  }
  /// After meet(), in two halves, so that the trip to memory overlaps other work: the block needs the ticket no more.
  /// The last one of the tile's blocks sets it to 0.
  /// Called by: one thread of each of these blocks; it gives leave() the result of depart().
  __device__ unsigned depart(int tile) const { return platform::take_ticket(tickets + tile); }
  /// The second half. Called with departed = 0, it does nothing.
  __device__ void leave(int tile, int splits, unsigned departed) const {
    if (departed == 2 * unsigned(splits) - 1) platform::atomic_store<order::relaxed, scope::device>(tickets + tile, 0u);
  }

  /// Adds up the sums of the `splits` blocks of a tile. mine[i] is group i * waves + wave of this block's `groups`
  /// groups of sums. Returns true in the last block to arrive; there, mine[i] then is the sum of all blocks.
  /// Called by: every thread of each of these blocks.
  /// Requires: splits > 1; shared: an int in the block's shared memory.
  template <int N>
  __device__ bool add_up(float4 (&mine)[N], int groups, int* shared, int tile, int tiles, int split, int splits) const {
    block const b;
    int const waves = b.size() / wave::width, of_wave = platform::uniform(wave{}.index());
    sums_of_tile const all = of_tile(tile, tiles, groups);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (int const group = i * waves + of_wave; group < groups) all.store(split, group, mine[i]);
    platform::drain_stores();
    b.sync();
    if (b.leader()) {
      bool const last =
          platform::atomic_fetch_add<order::relaxed, scope::device>(tickets + tile, 1u) + 1 == unsigned(splits);
      if (last) platform::atomic_store<order::relaxed, scope::device>(tickets + tile, 0u);
      *shared = last;
    }
    b.sync();
    if (platform::uniform(*shared) == 0) return false;
    all.add_up(mine, of_wave, waves, groups, splits, split);
    return true;
  }
};

}  // namespace fusewire
