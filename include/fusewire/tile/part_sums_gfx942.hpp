// Split-k: the blocks that share a tile of C add up their sums through memory, in the order of the blocks, so that the
// sums are the same in every run.
//
//   add_up   for small tiles   sums --device scope--> memory; all stored --> ticket; the last block to arrive adds up
//                              the sums of all blocks, in order. No block waits.
//   meet     for large tiles   the same, but all blocks wait until all have arrived, and each adds up a part
//
// Order: the sums are stored and loaded at device scope, past the caches that other XCDs do not see. The stores of a
// wave are done when drain_stores() returns, and the block meets before its ticket is counted. Loads come after the
// count that says that all blocks have stored, and after a barrier. So no cache is written back or emptied. A ticket is
// back at 0 when the last block has arrived (add_up), or when the last block has seen that all have arrived (meet).
// Deadlock, in meet: blocks that share tiles are resident together, and wait for each other only when they have
// multiplied.
#pragma once
#include <fusewire/core/group.hpp>

namespace fusewire {

/// Memory for the launches of one operator. One launch at a time may use it.
struct part_sums {
  unsigned long long* words;  // two sums each
  unsigned* tickets;          // [tiles], 0 between launches

  /// Stores four sums of a block: number f of its `count` fours.
  __device__ void store(int f, int count, int tile, int tiles, int split, float4 const& sums) const {
    auto const two = __builtin_bit_cast(pairs, sums);
    unsigned long long* const p = at(f, count, tile, tiles, split);
    platform::atomic_store<order::relaxed, scope::device>(p, two.word[0]);
    platform::atomic_store<order::relaxed, scope::device>(p + 1, two.word[1]);
  }
  /// Four number f of all blocks of the tile, added up in the order of the blocks. Requires: all blocks have stored.
  __device__ float4 sum_of_all(int f, int count, int tile, int tiles, int splits) const {
    float4 sum{};
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
      unsigned long long const* const p = at(f, count, tile, tiles, s);
      float4 const part =
          __builtin_bit_cast(float4, pairs{{platform::atomic_load<order::relaxed, scope::device>(p),
                                            platform::atomic_load<order::relaxed, scope::device>(p + 1)}});
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    return sum;
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
      if (platform::atomic_fetch_add<order::relaxed, scope::device>(ticket, 1u) + 1 == 2 * unsigned(splits))
        platform::atomic_store<order::relaxed, scope::device>(ticket, 0u);
    }
    b.sync();
  }

  /// Adds up the sums of the `splits` blocks of a tile. mine[i] is number i * threads + thread of this block's `count`
  /// fours of sums. Returns true in the last block to arrive; there, mine[i] then is the sum of all blocks.
  /// Called by: every thread of each of these blocks.
  /// Requires: splits > 1; shared: an int in the block's shared memory.
  template <int N>
  __device__ bool add_up(float4 (&mine)[N], int count, int* shared, int tile, int tiles, int split, int splits) const {
    block const b;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (int const f = i * b.size() + b.rank(); f < count) store(f, count, tile, tiles, split, mine[i]);
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
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (int const f = i * b.size() + b.rank(); f < count) mine[i] = sum_of_all(f, count, tile, tiles, splits);
    return true;
  }

 private:
  struct pairs {
    unsigned long long word[2];
  };
  __device__ unsigned long long* at(int f, int count, int tile, int tiles, int split) const {
    return words + (std::int64_t(split * tiles + tile) * count + f) * 2;
  }
};

}  // namespace fusewire
