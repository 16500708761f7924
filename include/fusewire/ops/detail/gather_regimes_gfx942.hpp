// How gfx942 gathers A, by regime: which chunks travel, and how many blocks send them.
#pragma once
#include <algorithm>
#include <bit>
#include <limits>

#include <fusewire/comm/all_gather/gather_map.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// How an A with up to max_m rows is gathered.
struct gather_regime {
  /// The dimension along which A is sharded.
  gather by;
  int max_m;         // rows of the gathered A
  int chunk_bytes;   // of a shard's rows
  int senders;       // blocks for each inbox that a rank pushes into
  bool alternating;  // groups of a sender's waves alternate, if the mainloop has such groups; else all together
  /// How chunks follow each other.
  chunk_order::nest order;
};

/// As max_m: however many.
inline constexpr int any_m = std::numeric_limits<int>::max();

/// The regimes; of each dimension, those with fewer rows first. All figures are projected, with a median error of 10 %
/// (docs/simulator.md). So rows whose times differ by less than that are one row (CONTRIBUTING.md). What smaller
/// differences may be worth is in docs/decisions/all_gather_gfx942.md, for the first machine.
inline constexpr gather_regime gather_regimes_gfx942[] = {
    {gather::k, 64, 32 * 1024, 16, false, chunk_order::nest::by_k_chunk},
    {gather::k, any_m, 32 * 1024, 1, true, chunk_order::nest::by_row},
    {gather::m, 32, 4 * 1024, 8, false, chunk_order::nest::by_k_chunk},
    {gather::m, 64, 8 * 1024, 3, true, chunk_order::nest::by_k_chunk},
    {gather::m, any_m, 16 * 1024, 2, true, chunk_order::nest::by_row},
};
/// The regime of a pull along either dimension, which only a caller requests.
inline constexpr gather_regime pull_regime_gfx942{gather::k, any_m, 32 * 1024, 8, false, chunk_order::nest::by_row};

/// The regime of a push of m rows.
constexpr gather_regime const& gather_regime_gfx942(gather by, int m) {
  return *std::find_if(std::begin(gather_regimes_gfx942), std::end(gather_regimes_gfx942),
                       [&](gather_regime const& r) { return r.by == by && m <= r.max_m; });
}

/// Senders for each of `inboxes`: as many as leave room for all tiles, in as few rounds as without senders, because one
/// more round costs more than they gain. tiles: blocks that these need; fit: resident blocks.
constexpr int senders_beside_tiles(int senders, int inboxes, int tiles, int fit) {
  int const free = fit - ceil_div(tiles, ceil_div(tiles, std::max(1, fit)));
  return free < inboxes || inboxes == 0 ? senders : std::min(senders, free / inboxes);
}

/// Steps along k of a chunk, a power of two, as the threads are that copy a row of it. ping_pong_gfx942 loads four side
/// by side. Where a sender pushes as a whole, it sends one chunk, because a second one would begin when the first has
/// arrived. rows, steps: of a shard.
constexpr int chunk_steps(gather_regime const& r, int rows, int steps, int senders) {
  unsigned const of_bytes = std::bit_floor(unsigned(r.chunk_bytes / (2 * rows * k_step))),
                 of_sender = r.alternating ? 1 : std::bit_ceil(unsigned(ceil_div(steps, senders)));
  return std::min(steps, int(std::max({4u, of_bytes, of_sender})));
}

}  // namespace fusewire
