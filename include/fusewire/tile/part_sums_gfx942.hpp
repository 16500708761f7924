// Split-k: the blocks that share a tile of C add up their sums through memory, in the order of the blocks, so that the
// sums are the same in every run.
//
//   add_up   sums --device scope--> memory;  all of them there --> ticket;  the last to arrive: sums of all blocks in
//   order      small tiles: none waits meet     the same, but all wait until all have arrived, and each adds up what it
//   pleases                                      large tiles
//
// Order: the sums are stored and loaded at device scope, past the caches that other XCDs do not see. A wave has stored
// when drain_stores() returns, and the block meets before its ticket is counted; loads follow the count that says that
// all are there, and a barrier. So no cache is written back or emptied. A ticket is back at 0 when the last has arrived
// (add_up), or has seen that all have (meet). Deadlock, of meet: blocks that share tiles are resident together, and
// wait for each other only when they have multiplied.
#pragma once
#include <fusewire/core/group.hpp>

namespace fusewire {

/// Memory for the launches of one operator, of which one is under way at a time.
struct part_sums {
  unsigned long long* words;  // two sums each
  unsigned* tickets;          // [tiles], 0 between launches

  /// Four sums of a block: number f of its `count` fours.
  __device__ void store(int f, int count, int tile, int tiles, int split, float4 const& sums) const {
    auto const two = __builtin_bit_cast(pairs, sums);
    unsigned long long* const p = at(f, count, tile, tiles, split);
    platform::atomic_store<order::relaxed, scope::device>(p, two.word[0]);
    platform::atomic_store<order::relaxed, scope::device>(p + 1, two.word[1]);
  }
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
  /// Returns when all of the tile's blocks have stored. Called by: every thread of each of them.
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

  /// mine[i]: this block's sums number threads * i + thread, of `count` fours of sums in all. Returns whether this
  /// block is the last, and then they are those of all blocks. Called by: every thread of each of `splits` blocks, more
  /// than one, of a tile. Requires: `shared` is an int of the block's.
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
