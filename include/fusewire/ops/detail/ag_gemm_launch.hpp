// One launch of AG+GEMM with a plan; ag_gemm.hpp chooses the plan and checks the call.
#pragma once
#include <algorithm>

#include <fusewire/gemm/compiled_epilogue.hpp>
#include <fusewire/ops/detail/ag_gemm_ranks.hpp>
#include <fusewire/ops/detail/no_rows.hpp>

namespace fusewire {

/// A launch of ag_gemm in words, from what its header says.
inline std::string describe_ag_gemm(std::uint64_t const (&what)[launch_words]) {
  unsigned const variant = variant_of(what);  // as launch_ag_gemm() packs it
  char const* const way = variant >> 8 ? "pull" : "push";
  char const* const by = gather(variant & 255) == gather::k ? "k" : "m";
  return text(describe_gemm(text("ag_gemm ", way, " gather::", by), what), ", chunk_k = ", what[5]);
}

namespace detail {
/// operator()<M>() is the kernel with mainloop M.
template <class T, class Epilogue>
struct ag_gemm_kernels {
  static constexpr char const* name = "ag_gemm_kernel";
  template <class M>
  auto operator()() const {
    return &ag_gemm_kernel<T, M, Epilogue>;
  }
};
}  // namespace detail

/// Requires: a call and options as ag_gemm accepts them; the plan's mainloop can read B; the channel holds m x k
/// elements and the plan's flags.
/// Fails: bad_argument, before anything is launched; as world::poll_errors().
template <class T, class Epilogue>
void launch_ag_gemm(gemm_launcher<T, ag_gemm_plan> const& launcher, channel const& ch, hipStream_t stream,
                    ag_gemm_call<T> const& call, ag_gemm_options const& o, ag_gemm_plan const& plan, bool pull,
                    Epilogue const& epilogue, std::source_location where) {
  world const& w = ch.world();
  int const n = call.b.cols, split_k = plan.gemm.split_k;
  gather_map const map{o.gather, call.m, o.k, w.size(), plan.gemm.tile_m, plan.chunk_k};
  launch_header header = gemm_header<T>("ag_gemm", plan.gemm, unsigned(o.gather) | unsigned(pull) << 8, call.m, n, o.k,
                                        map.chunk_k, where);
  if (pull) {
    std::size_t const bytes =
        map.rows(w.rank()) == 0
            ? 0
            : sizeof(T) * (std::size_t(call.a.rows - 1) * std::size_t(call.a.ld) + std::size_t(call.a.cols));
    header.mine[0] = bytes == 0 ? 0 : ch.heap().offset_of(call.a.data, bytes, "ag_gemm: a (pull)", where);
    header.mine[1] = std::uint64_t(call.a.ld);
  }

  detail::ag_gemm_kernels<T, detail::planned_epilogue<Epilogue>> const kernels;
  gemm_problem<T> const p = detail::ag_gemm_ranks{"ag_gemm", o, w.size(), w.rank(), 0}.problem(call);
  if (o.comm_blocks > 0) {
    int const fit = launcher.resident(kernels, p, plan.gemm, where);
    require(o.comm_blocks <= fit, where, "ag_gemm: comm_blocks = ", o.comm_blocks, "; at most ", fit,
            " blocks are co-resident");
  }

  auto const of_mainloop = [&](auto const& question) { return with_mainloop<T>(plan.gemm, call.b_layout, question); };
  bool const interleaved = of_mainloop([&]<class M>() { return M::traits.slicing == k_slicing::interleaved; }),
             senders_first = of_mainloop([&]<class M>() { return M::traits.comm == comm_placement::leading_blocks; });
  gather_order const order =
      order_of_gather(map, w.rank(), pull, plan.chunks, plan.gemm.group_m, interleaved ? 1 : split_k);
  channel_view const view = ch.view(header);
  auto const inbox = [&](int slot) { return gathered_in(view.template slot<T const>(slot), map); };
  matrix<T const> const a[gathered_buffers] = {call.a.rows > 0 ? call.a : inbox(0), inbox(0), inbox(1)};
  ag_gemm_arguments<T> const g{
      {call.a, map, order.chunks, pull, o.local_shard_first, plan.alternating && !pull},
      call.c,
      {map.m_tiles(), ceil_div(n, plan.gemm.tile_n), order.first_m_tile, plan.gemm.group_m, order.first_group}};
  int const senders = !senders_first      ? map.max_chunks() * map.ranks
                      : o.comm_blocks > 0 ? o.comm_blocks
                      : w.size() == 1 ? int(pull)  // which acknowledges
                                      : std::max(1, std::min(order.chunks.count(), plan.senders(o.gather, w.size())));
  launcher.launch(stream, detail::kernels_to_launch(kernels, epilogue), p, plan.gemm, a,
                  {.tiles = g.tiles.count(),
                   .comm_workers = senders,
                   .comm_exactly = o.comm_blocks > 0,
                   .min_blocks = pull ? w.xcd_count() : 1,  // begin_readable()
                   .where = where},
                  detail::epilogue_to_launch(epilogue), view, g);
}

}  // namespace fusewire
