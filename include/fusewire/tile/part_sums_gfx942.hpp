// Split-k: the blocks that share a tile of C add up their sums through memory. The last of them to arrive does it, in the order of the blocks, so that the sums are
// the same in every run; none waits for another.
//
//   sums --device scope--> memory;  all of them there --> ticket;  the last: sums of all blocks in order
//
// Order: the sums are stored and loaded at device scope, past the caches that other XCDs do not see. A wave has stored when drain_stores() returns, and the block
// meets before its ticket is counted; the last block's loads follow the count, and a barrier. So no cache is written back or emptied.
// A ticket is back at 0 when the last has arrived.
#pragma once
#include <fusewire/core/group.hpp>

namespace fusewire {

/// Memory for the launches of one operator, of which one is under way at a time.
struct part_sums {
  unsigned long long* words;  // two sums each
  unsigned* tickets;          // [tiles], 0 between launches

  /// mine[i]: this block's sums number threads * i + thread, of `count` fours of sums in all. Returns whether this block is the last, and then they are those
  /// of all blocks. Called by: every thread of each of `splits` blocks, more than one, of a tile. Requires: `shared` is an int of the block's.
  template <int N>
  __device__ bool add_up(float4 (&mine)[N], int count, int* shared, int tile, int tiles, int split, int splits) const {
    block const b;
    auto const at = [&](int s, int f) { return words + (std::int64_t(s * tiles + tile) * count + f) * 2; };
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (int const f = i * b.size() + b.rank(); f < count) {
        auto const two = __builtin_bit_cast(pairs, mine[i]);
        platform::atomic_store<order::relaxed, scope::device>(at(split, f), two.word[0]);
        platform::atomic_store<order::relaxed, scope::device>(at(split, f) + 1, two.word[1]);
      }
    platform::drain_stores();
    b.sync();
    if (b.leader()) {
      bool const last = platform::atomic_fetch_add<order::relaxed, scope::device>(tickets + tile, 1u) + 1 == unsigned(splits);
      if (last) platform::atomic_store<order::relaxed, scope::device>(tickets + tile, 0u);
      *shared = last;
    }
    b.sync();
    if (platform::uniform(*shared) == 0) return false;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (int const f = i * b.size() + b.rank(); f < count) {
        float4 sum{};
#pragma unroll 4
        for (int s = 0; s < splits; ++s) {
          unsigned long long const* const p = at(s, f);
          float4 const part = __builtin_bit_cast(float4, pairs{platform::atomic_load<order::relaxed, scope::device>(p), platform::atomic_load<order::relaxed, scope::device>(p + 1)});
          sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        mine[i] = sum;
      }
    return true;
  }

 private:
  struct pairs {
    unsigned long long word[2];
  };
};

}  // namespace fusewire
