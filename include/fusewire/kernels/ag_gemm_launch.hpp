// One launch of AG+GEMM with a plan; ag_gemm.hpp chooses the plan and checks the call.
#pragma once
#include <algorithm>
#include <map>
#include <optional>

#include <fusewire/kernels/ag_gemm_call.hpp>
#include <fusewire/kernels/ag_gemm_kernels.hpp>
#include <fusewire/kernels/ag_gemm_plan.hpp>
#include <fusewire/kernels/mainloops.hpp>
#include <fusewire/runtime/channel.hpp>

namespace fusewire {

/// A launch of ag_gemm in words, from what its header says.
inline std::string describe_ag_gemm(std::uint64_t const (&what)[launch_words]) {
  auto const variant = [&](int i) { return what[1] >> 8 * i & 255; };
  std::string const parts = variant(5) > 1 ? text(" in ", variant(5), " parts") : "";
  return text("ag_gemm ", variant(0) ? "pull" : "push", " gather::", gather(variant(1)) == gather::k ? "k" : "m",
              variant(2) ? " f16" : " bf16", ", m = ", what[2], ", n = ", what[3], ", k = ", what[4], ", tile ",
              variant(3) * 8, " x ", variant(4) * 8, parts, ", chunk_k = ", what[5]);
}

/// Requires: a call and options as ag_gemm accepts them; the plan's mainloop is Mainloop, and can read B; the channel
/// holds m x k elements and the plan's flags.
/// Fails: bad_argument, before anything is launched; as world::look().
template <class Mainloop, class T, class Epilogue>
void launch_ag_gemm(channel const& ch, hipStream_t stream, ag_gemm_call<T> const& call, ag_gemm_options const& o,
                    ag_gemm_plan const& plan, bool pull, Epilogue const& epilogue,
                    typename tuned_mainloops<T>::memory const& memory, std::source_location where) {
  world const& w = ch.world();
  int const n = call.c.cols, parts = plan.gemm.parts;
  gather_map const map{o.gather, call.m, o.k, w.size(), Mainloop::tile_m, plan.chunk_k};
  launch_header header = make_header(
      "ag_gemm",
      std::uint64_t(pull) | std::uint64_t(o.gather) << 8 | std::uint64_t(std::is_same_v<T, f16>) << 16 |
          std::uint64_t(Mainloop::tile_m / 8) << 24 | std::uint64_t(Mainloop::tile_n / 8) << 32 |
          std::uint64_t(parts) << 40,
      std::uint64_t(call.m), std::uint64_t(n), std::uint64_t(o.k), std::uint64_t(map.chunk_k));  // see describe_ag_gemm
  header.same_blocks = 0;  // a rank with less room takes fewer
  if (pull) {
    std::size_t const bytes =
        map.rows(w.rank()) == 0
            ? 0
            : sizeof(T) * (std::size_t(call.a.rows - 1) * std::size_t(call.a.ld) + std::size_t(call.a.cols));
    header.mine[0] = bytes == 0 ? 0 : ch.heap().offset_of(call.a.data, bytes, "ag_gemm: a (pull)", where);
    header.mine[1] = std::uint64_t(call.a.ld);
  }

  auto const kernel = &ag_gemm_kernel<T, Mainloop, Epilogue>;
  int const groups = resident_groups<Mainloop>(w, kernel, parts, o.reserved_cus, where),
            fit = resident_groups<Mainloop>(w, kernel, Mainloop::has_clusters ? parts : 1, o.reserved_cus, where) *
                  (Mainloop::has_clusters ? parts : 1);
  require(fit >= 1, where, "ag_gemm: no block of ", Mainloop::threads, " threads and ", Mainloop::shared_bytes(),
          " bytes of shared memory fits on this rank's part of the device (", w.compute_units(), " units, ",
          o.reserved_cus, " reserved, ", w.ranks_on_device(), " ranks)");
  require(o.comm_blocks <= fit, where, "ag_gemm: comm_blocks = ", o.comm_blocks, "; at most ", fit,
          " blocks are resident at once");

  gather_order const order = order_of_gather(map, w.rank(), pull, plan.pieces, plan.gemm.band, parts);
  channel_view const view = ch.view(header);
  auto const inbox = [&](int slot) { return gathered_in(view.template slot<T const>(slot), map); };
  matrix<T const> const a[gathered_buffers] = {call.a.rows > 0 ? call.a : inbox(0), inbox(0), inbox(1)};
  auto x = make_operands<Mainloop>(a, b_operand<T>{call.b.data, call.b.ld, call.b_layout, n}, o.k, call.b_is_constant,
                                   plan.gemm, map.m, last_tile_rows(map.m, map.tile_m), memory, where);
  ag_gemm_arguments<T> const g{
      {call.a, map, order.pieces, pull, o.own_shard_first},
      call.c,
      {map.m_tiles(), ceil_div(n, Mainloop::tile_n), order.first_tile_row, plan.gemm.band, order.first_band},
      plan.starts_together};
  int const tiles = g.tiles.count();
  require(parts == 1 || tiles <= groups, where, "ag_gemm: ", parts, " blocks for each of ", tiles, " tiles; ", groups,
          " groups of them are resident at once");
  int blocks;
  if constexpr (Mainloop::communicates_first) {
    int const first =
        o.comm_blocks
            ? o.comm_blocks
            : std::max(1, std::min({order.pieces.count(), parts > 1 ? fit - tiles * parts : fit / 4, 8 * w.size()}));
    blocks = std::min(fit, std::max(pull ? w.dispatch_parts() : 1, first + tiles * parts));  // begin_readable()
    set_blocks(x, first, tiles);
  } else {
    blocks = std::min(groups, std::max(tiles, ceil_div(map.max_pieces() * map.ranks, parts))) * parts;
  }
  bool const early = !Mainloop::communicates_first &&
                     o.reserved_cus == 0;  // blocks that wait for their turn would take the reserved ones
  launch(w, stream,
         {.blocks = blocks,
          .threads = Mainloop::threads,
          .shared_bytes = Mainloop::shared_bytes(),
          .cluster = Mainloop::has_clusters ? parts : 1,
          .early = early,
          .where = where},
         kernel, view, g, x, epilogue);
}

}  // namespace fusewire
