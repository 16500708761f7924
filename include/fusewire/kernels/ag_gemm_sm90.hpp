// All-gather + GEMM, push, on Hopper: C [M, N] = gather(A) [M, K] * B [K, N] on every rank, for many rows.
//
//   comm blocks     A --copy--> inbox of every rank --signal--> flag (source, tile row, chunk)
//   other blocks    producer lane: wait flag --> copy engine: inbox --> shared memory --> consumers: wgmma --> C
//
// Deadlock: all blocks are resident (launch() checks). Comm blocks, the first of the grid, wait for nothing before they end; the other
// blocks wait only for comm blocks.
// Order: a flag is acquired by the one thread that starts the loads, which passes it on to the copy engine with a proxy fence.
// Reuse: the inbox by the channel's argument; A is read only by this launch.
// Abandonment: a flag that is given up counts as raised. The producer lane goes on, and every load that it starts completes, from an inbox
// that holds anything; so full and empty take all their turns, consumers end, and nothing is in flight when the block ends.
#pragma once
#include <fusewire/kernels/ag_gemm.hpp>
#include <fusewire/runtime/tensor_map_sm90.hpp>
#include <fusewire/tile/gemm_sm90.hpp>

namespace fusewire {

/// What the copy engine reads.
struct ag_gemm_maps {
  CUtensorMap gathered[2];  // A in the channel's slots, [M, K]
  CUtensorMap b;
};

/// The tile source of a gathered A: columns of a tile row are there when the flags of their owners are up.
class gathered_tiles {
 public:
  __device__ gathered_tiles(channel_epoch const& e, gather_map const& map) : e_(e), map_(map) {}

  /// Waits for columns [k, k + 64) of a tile row; true if it had to ask. Called by: one thread, for the steps of a tile in order.
  __device__ bool operator()(int tile_m, int k) {
    if (k == 0) there_ = 0;
    int const end = k + 64 < map_.k ? k + 64 : map_.k, before = there_;
    while (there_ < end) {
      int const shard = there_ / map_.cols(), chunk = (there_ - shard * map_.cols()) / map_.chunk_k;
      bool const by_k = map_.by == gather::k;
      e_.wait(thread{}, by_k ? shard : map_.first_owner(tile_m), by_k ? shard : map_.last_owner(tile_m), map_.flag(tile_m, chunk));
      int const next = (chunk + 1) * map_.chunk_k;
      there_ = shard * map_.cols() + (next < map_.cols() ? next : map_.cols());
    }
    return there_ != before;
  }

 private:
  channel_epoch const& e_;
  gather_map const& map_;
  int there_ = 0;  // columns of the current tile row that have arrived
};

template <class T, class Tile, layout BOrder, class Epilogue>
__global__ void __launch_bounds__(Tile::config.threads(), 1)
    ag_gemm_push_sm90(channel_view ch, ag_gemm_arguments<T> g, __grid_constant__ ag_gemm_maps const maps, Epilogue epilogue) {
  using gemm = gemm_sm90<T, Tile::config, BOrder>;
  static_assert(Tile::config.cluster == 1);
  extern __shared__ bytes16 shared[];
  block const b;
  channel_epoch const e = ch.begin(b);
  int const rank = ch.world.rank, ranks = ch.world.size;

  if (b.index() < g.comm_blocks) {
    for (int const i : dealt(g.map.pieces(rank) * ranks, b.index(), g.comm_blocks)) {
      gather_piece const p = g.map.piece(rank, i / ranks);
      int const peer = ch.world.next(i % ranks);
      matrix<T> const inbox{e.inbox<T>(peer), g.map.m, g.map.k, g.map.k};
      copy_aligned(b, detail::part(g.a, p, g.map.first_row(rank), g.map.first_col(rank)), detail::part(inbox, p));
      e.signal(b, peer, p.flag);
    }
  } else {
    int const first = g.map.by == gather::m ? g.map.first_row(rank) / Tile::config.block_m % g.map.m_tiles() : 0;
    tile_order const tiles = gemm::tiles(g.map.m, g.c.cols, first, g.band);
    gemm::run(shared, maps.gathered[e.number() & 1], maps.b, g.map.k, tiles, dealt(tiles.count(), b.index() - g.comm_blocks, b.count() - g.comm_blocks), g.c,
              gathered_tiles(e, g.map), epilogue);
  }
  e.end(b);
}

/// A launch of it in words, from what its header says.
inline std::string describe_ag_gemm_sm90(std::uint64_t const (&what)[launch_words]) {
  return text("ag_gemm (Hopper) push gather::", gather(what[1] & 255) == gather::k ? "k" : "m", what[1] >> 8 ? " f16" : " bf16", ", m = ", what[2], ", n = ", what[3], ", k = ",
              what[4], ", chunk_k = ", what[5]);
}

/// Launches one kernel; all ranks call it with the same shapes, `map.tile_m` being the tile's block_m.
/// Requires: as ag_gemm's call, and fits_copy_engine(b.data, b.ld); the channel holds map.m x map.k elements and the map's flags.
/// Fails: bad_argument, before anything is launched.
template <class Tile, layout BOrder, class T, class Epilogue = identity>
void launch_ag_gemm_push_sm90(channel const& ch, hipStream_t stream, ag_gemm_call<T> const& call, gather_map const& map, int comm_blocks, Epilogue const& epilogue = {},
                              std::source_location where = std::source_location::current()) {
  using gemm = gemm_sm90<T, Tile::config, BOrder>;
  constexpr auto C = Tile::config;
  require(map.tile_m == C.block_m, where, "ag_gemm_push_sm90: map.tile_m = ", map.tile_m, "; ", C.block_m, " is accepted");
  require(fits_copy_engine(call.b.data, call.b.ld), where, "ag_gemm_push_sm90: b at ", static_cast<void const*>(call.b.data), ", ld ", call.b.ld,
          "; an address and a pitch that are multiples of 16 bytes are accepted");
  int const n = call.c.cols;
  ch.heap().names().add_launch("ag_gemm9", describe_ag_gemm_sm90);
  channel_view const view = ch.view(make_header("ag_gemm9", std::uint64_t(map.by) | std::uint64_t(std::is_same_v<T, f16>) << 8, std::uint64_t(map.m), std::uint64_t(n),
                                                std::uint64_t(map.k), std::uint64_t(map.chunk_k)));
  ag_gemm_maps maps;
  for (int slot = 0; slot < 2; ++slot) {
    auto const* const inbox = reinterpret_cast<T const*>(view.world.here(view.slots) + std::uint64_t(slot) * view.slot_bytes);
    maps.gathered[slot] = make_tensor_map(matrix<T const>{inbox, map.m, map.k, map.k}, gemm::a_box_rows, where);
  }
  matrix<T const> const b{call.b.data, BOrder == layout::row_major ? map.k : n, BOrder == layout::row_major ? n : map.k, call.b.ld};
  maps.b = make_tensor_map(b, gemm::b_box_rows, where);

  auto const kernel = &ag_gemm_push_sm90<T, Tile, BOrder, Epilogue>;
  int const fit = resident_blocks(ch.world(), kernel, C.threads(), C.shared_bytes(), 0, where), tiles = gemm::tiles(map.m, n, 0, 1).count();
  require(comm_blocks >= 1 && comm_blocks < fit, where, "ag_gemm_push_sm90: comm_blocks = ", comm_blocks, "; 1 to ", fit - 1, " are accepted");
  ag_gemm_arguments<T> const g{call.a, {call.b.data, call.b.ld, BOrder, n}, call.c, map, comm_blocks, 16, false};
  fusewire::launch(ch.world(), stream, {.blocks = std::min(fit, comm_blocks + tiles), .threads = C.threads(), .shared_bytes = C.shared_bytes(), .where = where}, kernel,
                   view, g, maps, epilogue);
}

}  // namespace fusewire
