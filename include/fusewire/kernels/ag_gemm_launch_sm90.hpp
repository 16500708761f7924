// The host side of AG+GEMM on Hopper: which kernel for a shape, and its launch.
#pragma once
#include <algorithm>
#include <map>

#include <fusewire/kernels/ag_gemm_call.hpp>
#include <fusewire/kernels/ag_gemm_plan_sm90.hpp>
#include <fusewire/kernels/ag_gemm_sm90.hpp>
#include <fusewire/runtime/channel.hpp>
#include <fusewire/runtime/tensor_map_sm90.hpp>

namespace fusewire {

/// Launches one kernel with one configuration; all ranks call it with the same shapes and plan.
/// Requires: as ag_gemm's call; fits_copy_engine() of b; the channel holds map.m x map.k elements and the map's flags; map.tile_m is the
/// tile's block_m, map.chunk_k a multiple of 64; for pull, header.mine as ag_gemm sets it.
/// Fails: bad_argument, before anything is launched.
template <sm90_gemm_config C, layout BOrder, class T, class Epilogue>
void launch_ag_gemm_sm90(channel const& ch, hipStream_t stream, launch_header const& header, ag_gemm_call<T> const& call, gather_map const& map, bool pull, bool own_shard_first,
                         ag_gemm_sm90_plan const& plan, int reserved_units, Epilogue const& epilogue, std::source_location where) {
  using gemm = gemm_sm90<T, C, BOrder>;
  int const rank = ch.world().rank();
  require(C.can_share(std::min(map.m, C.block_m), plan.parts), where, "ag_gemm: sums of ", plan.parts, " parts of a ", C.block_m, " x ", C.block_n, " tile do not fit in shared memory");
  sm90_stages const stages = gemm::stages(map.m, plan.parts, plan.b_in_flight, plan.b_at_first);
  channel_view const view = ch.view(header);
  int const last_rows = last_box_rows(map.m, C.block_m);
  sm90_operands<gathered_buffers> x;
  for (int slot = 0; slot < 2; ++slot) x.a[inbox_of_slot_0 + slot] = make_box_maps(gathered_in(view.template slot<T const>(slot), map), stages.rows, last_rows, where);
  x.a[own_shard] = call.a.rows > 0 ? make_box_maps(call.a, stages.rows, last_rows, where) : x.a[inbox_of_slot_0];
  matrix<T const> const b = BOrder == layout::row_major ? call.b : matrix<T const>{call.b.data, call.b.cols, call.b.rows, call.b.ld};
  x.b = make_box_maps(b, gemm::b_box_rows, gemm::last_b_box_rows(call.c.cols), where);

  auto const kernel = &ag_gemm_sm90<T, C.block_m, C.block_n, BOrder, Epilogue>;
  gather_order const order = order_of_gather(map, rank, pull, plan.pieces, plan.band, plan.parts);
  ag_gemm_sm90_arguments<T> const g{{call.a, map, order.pieces, pull, own_shard_first}, call.c, plan.starts_together, call.b_is_constant, stages,
                                    gemm::tiles(map.m, call.c.cols, order.first_tile_row, plan.band, order.first_band), divisor(plan.parts)};
  int const clusters = resident_clusters(ch.world(), kernel, plan.parts, C.threads(), C.shared_bytes(), reserved_units, where);
  require(clusters >= 1 && (plan.parts == 1 || g.tiles.count() <= clusters), where, "ag_gemm: ", plan.parts, " blocks for each of ", g.tiles.count(), " tiles; ", clusters,
          " clusters of them are resident at once");
  int const wanted = std::max(g.tiles.count(), ceil_div(map.most_pieces() * map.ranks, plan.parts));
  bool const early = reserved_units == 0;  // blocks that wait for their turn would take the reserved ones
  fusewire::launch(ch.world(), stream,
                   {.blocks = std::min(clusters, wanted) * plan.parts, .threads = C.threads(), .shared_bytes = C.shared_bytes(), .cluster = plan.parts, .early = early, .where = where}, kernel, view, g,
                   x, epilogue);
}

/// The kernels of one operator, and the plans of the shapes that it has met.
template <class T>
class tuned_ag_gemm {
 public:
  tuned_ag_gemm(channel const& ch, ag_gemm_options const& o) : ch_(ch), o_(o) {}

  /// Loads the kernels of calls with this epilogue.
  template <class Epilogue>
  void prepare(std::source_location where) const {
    for (sm90_gemm_config const tile : sm90_tiles)
      for (layout const b : {layout::row_major, layout::column_major})
        if (tile.suits(b)) with(tile, b, [&]<sm90_gemm_config C, layout BOrder>() { (void)clusters<C, BOrder, Epilogue>(1, where); });
  }

  /// Enough for the pieces of any plan.
  static int flags_per_source(int ranks, ag_gemm_options const& o) {
    gather_map const finest{o.gather, o.max_m, o.k, ranks, o.max_m <= 64 ? 64 : 128, std::max(64, ceil_div(o.chunk_k, 64) * 64)};
    return finest.flags_per_source();
  }

  static bool pull_is_faster(int m, int n, int k, int ranks, gather by) { return pulls_on_sm90(m, n, k, ranks, by); }

  /// False if the copy engine cannot read B, or if the options ask for what these kernels do not have.
  template <class Epilogue>
  bool launch(hipStream_t stream, launch_header header, ag_gemm_call<T> const& call, bool pull, Epilogue const& epilogue, std::source_location where) {
    if (!fits_copy_engine(call.b.data, call.b.ld) || o_.comm_blocks > 0) return false;
    ag_gemm_sm90_plan const plan = plan_for<Epilogue>(call, where);
    gather_map const map{o_.gather, call.m, o_.k, ch_.world().size(), plan.tile.block_m, plan.chunk_k};
    if (map.flags_per_source() > ch_.options().flags_per_source) return false;
    constexpr int most = 1 << 30;  // the shards' rows, one below the other, and the pieces of all are numbered with an int
    if (map.m > most / map.ranks || std::int64_t(map.most_tile_rows()) * map.chunks() > most / map.ranks) return false;
    header.what[1] = (header.what[1] & ~(std::uint64_t(255) << 16)) | std::uint64_t(2) << 16 | std::uint64_t(plan.parts) << 32 | std::uint64_t(plan.tile.block_m / 8) << 40 |
                     std::uint64_t(plan.tile.block_n / 8) << 48;
    header.what[5] = std::uint64_t(plan.chunk_k);
    with(plan.tile, call.b_layout, [&]<sm90_gemm_config C, layout BOrder>() {
      launch_ag_gemm_sm90<C, BOrder>(ch_, stream, header, call, map, pull, o_.own_shard_first, plan, o_.reserved_units, epilogue, where);
    });
    return true;
  }

 private:
  /// Calls f with the tile, one of sm90_tiles from the I-th on, and the layout as template arguments.
  template <std::size_t I = 0, class F>
  static auto with(sm90_gemm_config tile, layout b, F f) {
    if constexpr (I + 1 < std::size(sm90_tiles))
      if (tile != sm90_tiles[I]) return with<I + 1>(tile, b, f);
    if constexpr (sm90_tiles[I].suits(layout::row_major))
      if (b == layout::row_major) return f.template operator()<sm90_tiles[I], layout::row_major>();
    return f.template operator()<sm90_tiles[I], layout::column_major>();
  }

  template <sm90_gemm_config C, layout BOrder, class Epilogue>
  int clusters(int blocks, std::source_location where) const {
    return resident_clusters(ch_.world(), &ag_gemm_sm90<T, C.block_m, C.block_n, BOrder, Epilogue>, blocks, C.threads(), C.shared_bytes(), o_.reserved_units, where);
  }

  template <class Epilogue>
  ag_gemm_sm90_plan plan_for(ag_gemm_call<T> const& call, std::source_location where) {
    auto const [it, fresh] = plans_.try_emplace({call.m, call.c.cols, call.b_layout});
    ag_gemm_sm90_plan& plan = it->second;
    if (!fresh) return plan;
    plan = plan_ag_gemm_sm90(call.m, call.c.cols, o_.k, ch_.world().size(), o_.gather, call.b_layout, [&](sm90_gemm_config tile, int blocks) {
      return with(tile, call.b_layout, [&]<sm90_gemm_config C, layout BOrder>() { return clusters<C, BOrder, Epilogue>(blocks, where); });
    });
    if (o_.chunk_k > 0) plan.chunk_k = ceil_div(o_.chunk_k, 64) * 64;
    auto const flags = [&] { return gather_map{o_.gather, call.m, o_.k, ch_.world().size(), plan.tile.block_m, plan.chunk_k}.flags_per_source(); };
    while (flags() > ch_.options().flags_per_source && plan.chunk_k < o_.k) plan.chunk_k *= 2;
    return plan;
  }

  channel const& ch_;
  ag_gemm_options const o_;
  std::map<std::tuple<int, int, layout>, ag_gemm_sm90_plan> plans_;  // by m, n, layout of B
};

}  // namespace fusewire
