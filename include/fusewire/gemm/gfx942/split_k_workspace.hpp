// Split-k: the blocks that share a tile of C add up their sums through memory, in the order of the blocks, so that the
// sums are the same in every run.
//
//   small tiles   reduce            blocks 1, 2, ... --sums--> words --polled--> block 0 adds up, and clears the words
//   large tiles   arrive_and_wait   sums --device scope--> memory; all stored --> ticket; all blocks wait until all
//                                   have arrived, and each adds up its rows
//
// Order, in reduce: a word is two sums, or says that they are not there. So each word stands for itself, no store is
// waited for, and no ticket is taken. Every word has one writer and one reader. The reader clears it, and the next
// launch comes after that on the same stream.
// Order, in arrive_and_wait: the sums are stored and loaded at device scope, past the caches that other XCDs do not
// see. The stores of a wave are done when drain_stores() returns, and the block syncs before its ticket is counted.
// Loads come after the count that says that all blocks have stored, and after a barrier. So no cache is written back or
// emptied. That a store at device scope is done when it is counted is for a machine to say: tests/litmus,
// counted_stores. All blocks of a tile together add the same number to its ticket, however many they are. So the number
// at which they have arrived follows from what a block has found there, and nobody sets a ticket back. Deadlock: blocks
// that share tiles are resident together, and a block waits for the sums of others only when it has sent them its own.
// These waits have no limit, because every block sends its sums, also one whose wait for a peer was timed out.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/arch/gfx942/memory_buffer.hpp>

namespace fusewire {

/// Sums of one tile in memory, of all blocks that share it: [split][group][lane], four sums for each lane of a wave.
class tile_partials {
 public:
  /// data: of the first block; stride: bytes from one block to the next.
  __device__ tile_partials(float* data, int stride) : memory_(data, oob_offset), stride_(stride) {}

  /// Stores a group of sums of block `split`. Called by: every lane of a wave.
  __device__ void store(int split, int group, float4 const& sums) const {
    memory_.store_device(__builtin_bit_cast(bytes16, sums), wave{}.rank() * 16, split * stride_ + group * group_bytes);
  }
  /// sums[i] becomes group number `group + i * step` of all blocks, added up in the order of the blocks, or anything if
  /// that is not below `end`. If block number `own` did not store its own sums, sums[i] has them.
  /// Called by: every lane of a wave. Requires: the other blocks have stored.
  template <int N>
  __device__ void reduce(float4 (&sums)[N], int group, int step, int end, int splits, int local) const {
    if (splits <= 5) reduce_by<4>(sums, group, step, end, splits, local);
    else reduce_by<8>(sums, group, step, end, splits, local);
  }

 private:
  /// As reduce(). It goes through the other blocks, `at_once` of them together, and adds the local sums ahead of the
  /// first block behind this one.
  template <int at_once, int N>
  __device__ void reduce_by(float4 (&sums)[N], int group, int step, int end, int splits, int local) const {
    int const others = splits - (local >= 0);
    float4 all[N] = {};
    auto const add = [&](int i, float4 const& partial) {
      all[i].x += partial.x, all[i].y += partial.y, all[i].z += partial.z, all[i].w += partial.w;
    };
    for (int first = 0; first < others; first += at_once) {
      bytes16 stored[at_once][N];
#pragma unroll
      for (int j = 0; j < at_once; ++j)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          int const other = first + j, of = group + i * step, split = other + (unsigned(other) >= unsigned(local));
          bool const is_stored = other < others && of < end;
          stored[j][i] = memory_.load_device(
              wave{}.rank() * 16, platform::uniform(is_stored ? split * stride_ + of * group_bytes : oob_offset));
        }
      platform::sched_barrier();  // all loads first
#pragma unroll
      for (int j = 0; j < at_once; ++j)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (first + j == local && local < others) add(i, sums[i]);
          add(i, __builtin_bit_cast(float4, stored[j][i]));
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (local == others) add(i, sums[i]);
      sums[i] = all[i];
    }
  }

  static constexpr int group_bytes = wave::width * int(sizeof(float4));

  memory_buffer memory_;
  int stride_;
};

/// Sums of one small tile, in words of two. A word without sums has all bits set. No sum has all bits set: such a NaN
/// is stored as another one.
class tile_words {
 public:
  using word = std::uint64_t;
  static constexpr word none = ~word(0);

  /// words: the first of the tile, of block 1; stride: words from one block to the next.
  __device__ tile_words(word* words, int stride) : words_(words), stride_(stride) {}

  /// Stores a group of sums of block `split`, one or a later one. Called by: every lane of a wave.
  /// Order: relaxed, device.
  __device__ void store(int split, int group, float4 const& sums) const {
    word* const to = at(split, group);
    put(to, word_of(sums.x, sums.y));
    put(to + wave::width, word_of(sums.z, sums.w));
  }
  /// Adds to sums[i] group number `group + i * step` of blocks 1 to splits - 1, in this order, when it is there, and
  /// clears its words; if the group is below `end`.
  /// Called by: every lane of a wave.
  template <int N>
  __device__ void consume(float4 (&sums)[N], int group, int step, int end, int splits) const {
    for (int first = 1; first < splits; first += at_once) {
      word words[at_once][N][2];
      auto const is_needed = [&](int j, int i) { return first + j < splits && group + i * step < end; };
      bool all;
      do {
#pragma unroll
        for (int j = 0; j < at_once; ++j)
#pragma unroll
          for (int i = 0; i < N; ++i) {
            word const* const from = is_needed(j, i) ? at(first + j, group + i * step) : at(first, group);
            words[j][i][0] = platform::atomic_load<order::relaxed, scope::device>(from);
            words[j][i][1] = platform::atomic_load<order::relaxed, scope::device>(from + wave::width);
          }
        platform::sched_barrier();  // all loads first
        all = true;
#pragma unroll
        for (int j = 0; j < at_once; ++j)
#pragma unroll
          for (int i = 0; i < N; ++i) all = all && is_there(words[j][i][0]) && is_there(words[j][i][1]);
      } while (platform::ballot(!all) != 0);
#pragma unroll
      for (int j = 0; j < at_once; ++j)
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (is_needed(j, i)) {
            word const* const w = words[j][i];
            sums[i].x += sum<0>(w[0]), sums[i].y += sum<1>(w[0]), sums[i].z += sum<0>(w[1]), sums[i].w += sum<1>(w[1]);
            word* const from = at(first + j, group + i * step);
            put(from, none);
            put(from + wave::width, none);
          }
    }
  }

 private:
  static constexpr int at_once = 4;  // blocks whose words are in flight together
  static constexpr int group_words = wave::width * 2;

  __device__ word* at(int split, int group) const {
    return words_ + (split - 1) * stride_ + group * group_words + wave{}.rank();
  }
  __device__ static void put(word* to, word x) { platform::atomic_store<order::relaxed, scope::device>(to, x); }
  __device__ static std::uint32_t bits_of(float x) { return min(__builtin_bit_cast(std::uint32_t, x), 0xfffffffe); }
  __device__ static word word_of(float x, float y) { return word(bits_of(y)) << 32 | bits_of(x); }
  /// A word arrives as a whole.
  __device__ static bool is_there(word x) { return std::uint32_t(x) != std::uint32_t(none); }
  template <int I>
  __device__ static float sum(word x) {
    return __builtin_bit_cast(float, std::uint32_t(x >> 32 * I));
  }

  word* words_;
  int stride_;
};

/// Memory for the launches of one operator: `bytes` from `sums` on. One launch at a time may use it. It holds the sums
/// of large tiles, then the words of small ones, then the tickets.
struct split_k_workspace {
  /// The most blocks that may share tiles; the most sums of all these blocks, of large tiles and of small ones.
  static constexpr int blocks = 304, max_sums = blocks * 256 * 128, max_small = blocks * 64 * 64;
  static constexpr std::size_t word_bytes = max_small * sizeof(float), ticket_bytes = blocks * sizeof(unsigned),
                               bytes = max_sums * sizeof(float) + word_bytes + ticket_bytes;

  /// What the blocks of a tile add to its ticket, all together.
  static constexpr unsigned round = 1024;
  static_assert(round >= unsigned(blocks));

  float* sums;        // of large tiles
  unsigned* tickets;  // [tiles], multiples of `round` between launches

  /// The workspace in the `bytes` bytes at `memory`.
  static split_k_workspace in(void* memory) {
    auto* const sums = static_cast<float*>(memory);
    return {sums, reinterpret_cast<unsigned*>(sums + max_sums + max_small)};
  }

  /// Words of small tiles. Between launches all of their bits are set.
  __host__ __device__ std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(sums + max_sums); }

  /// Sums of one tile, in a launch with `tiles` large tiles of `groups` groups each.
  __device__ tile_partials of_tile(int tile, int tiles, int groups) const {
    int const of_group = 4 * wave::width;
    return {sums + std::int64_t(tile) * groups * of_group, tiles * groups * of_group * int(sizeof(float))};
  }

  /// Returns when all of the tile's blocks have stored. This block is number `split` of them.
  /// Called by: every thread of each of these blocks.
  __device__ void arrive_and_wait(int tile, int split, int splits) const {
    block const b;
    platform::drain_stores();
    b.sync();
    if (b.leader()) {
      unsigned* const ticket = tickets + tile;
      unsigned const mine = split == 0 ? round - unsigned(splits) + 1 : 1,
                     before = platform::atomic_fetch_add<order::relaxed, scope::device>(ticket, mine),
                     begin = before / round * round;
      for (unsigned now = before + mine; now - begin < round;) {
        platform::backoff();
        now = platform::atomic_load<order::relaxed, scope::device>(ticket);
      }
      platform::acquire_polled<scope::device>(ticket);
    }
    b.sync();
  }

  /// Adds up the sums of the `splits` blocks of a small tile. mine[i] is group i * waves + wave of this block's
  /// `groups` groups of sums. Returns true in the tile's first block; there, mine[i] then is the sum of all blocks.
  /// Called by: every thread of each of these blocks.
  template <int N>
  __device__ bool reduce(float4 (&mine)[N], int groups, int tile, int tiles, int split, int splits) const {
    int const waves = block{}.size() / wave::width, of_wave = platform::uniform(wave{}.index()),
              of_tile = groups * wave::width * 2;
    tile_words const all{words() + tile * of_tile, tiles * of_tile};
    if (split == 0) {
      if (of_wave < groups) all.consume(mine, of_wave, waves, groups, splits);
      return true;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (int const group = i * waves + of_wave; group < groups) all.store(split, group, mine[i]);
    return false;
  }
};

}  // namespace fusewire
