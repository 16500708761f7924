// nodes_ag_gemm: C [M, N] = gather(A) [M, K] * B [K, N], where A is spread over the ranks of all nodes, one kernel
// launch per call. The kernel is in nodes_ag_gemm_kernel.hpp.
#pragma once
#include <array>

#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/detail/ag_gemm_launch.hpp>
#include <fusewire/ops/detail/nodes_ag_gemm_kernel.hpp>
#include <fusewire/ops/detail/nodes_no_rows.hpp>

namespace fusewire {

namespace detail {
/// operator()<M>() is the kernel with mainloop M.
template <class T, class Epilogue>
struct nodes_ag_gemm_kernels {
  static constexpr char const* name = "nodes_ag_gemm_kernel";
  template <class M>
  auto operator()() const {
    return &nodes_ag_gemm_kernel<T, M, Epilogue>;
  }
};
}  // namespace detail

/// As ag_gemm, for the ranks of all nodes: W is their number, and shards are numbered as they are. Rows cross the
/// network once to each other node, to the rank with their owner's place, which passes them on.
template <class T>
  requires is_16_bit_float<T>
class nodes_ag_gemm {
 public:
  /// Collective in the network's world of all nodes. Loads the kernels of calls without an epilogue. o.method is push,
  /// and o.agreed counts for nothing. Fails: bad_argument; rank_mismatch; out_of_space.
  nodes_ag_gemm(nodes_channel& ch, ag_gemm_options const& o,
                std::source_location where = std::source_location::current())
      : ch_(ch), o_(o), launcher_(ch.near().world(), "nodes_ag_gemm", o.tile, o.reserved_cus, where) {
    o_.local_shard_first &= !o.tile.fixed_order;
    of_ranks().template check_options<T>(where);
    require(o.method == method::push, where, "nodes_ag_gemm: method = ", int(o.method), "; expected method::push");
    auto const wanted = channel_for(nodes(), near_ranks(), o), found = ch.near().options();
    require<out_of_space>(wanted.max_bytes <= found.max_bytes, where, "nodes_ag_gemm: the gathered A, ", o.max_m, " x ",
                          o.k, ", takes ", wanted.max_bytes, " bytes; the channel's max_bytes is ", found.max_bytes);
    int const flags = nodes() * of_ranks().min_flags();
    require<out_of_space>(flags <= found.flags_per_source, where, "nodes_ag_gemm: needs ", flags,
                          " flags per source; the channel has ", found.flags_per_source);
    ch.near().heap().names().add_launch("nodes_ag", describe_ag_gemm);
    prepare<identity>(where);
    using named = fusewire::heap::named;
    ch.require_equal_on_ranks(
        "nodes_ag_gemm",
        std::array{named{"max_m", std::uint64_t(o.max_m)}, named{"k", std::uint64_t(o.k)},
                   named{"gather", std::uint64_t(o.gather)}, named{"chunk_k", std::uint64_t(o.chunk_k)}},
        where);
  }
  nodes_ag_gemm(nodes_ag_gemm const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~nodes_ag_gemm() = default;

  /// What nodes_channel's options should be for `nodes` nodes of `near` ranks: with fewer flags, down to what the
  /// constructor asks for, A travels in larger chunks. Requires: options that the constructor accepts.
  static channel_options channel_for(int nodes, int near, ag_gemm_options const& o) {
    detail::ag_gemm_ranks const all{"nodes_ag_gemm", o, nodes * near, 0, 0};
    return {.max_bytes = std::size_t(o.max_m) * std::size_t(o.k) * sizeof(T),
            .flags_per_source = nodes * std::max(all.min_flags(), all.template tuned_flags<T>())};
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <local_epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    launcher_.load(detail::nodes_ag_gemm_kernels<T, Epilogue>{}, where);
    (void)load_kernel(world(), &detail::nodes_no_rows_kernel<>, detail::no_rows_threads, 0, where);
  }

  /// Launches one kernel. Call it on the ranks of all nodes, in the same order, on any stream: see launch(). Can be
  /// captured in a graph. After it, a may be overwritten by work on the stream.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <class Epilogue = identity>
    requires local_epilogue<Epilogue> || call_epilogue<Epilogue>
  void operator()(hipStream_t stream, ag_gemm_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    using epilogue = detail::planned_epilogue<Epilogue>;
    auto const all = of_ranks();
    all.template check_call<epilogue>(call, where);
    if (call.m == 0)
      return detail::launch_nodes_no_rows(
          ch_, stream, gemm_header<T>("nodes_ag", {}, unsigned(o_.gather), 0, call.b.cols, o_.k, 0, where), where);
    ag_gemm_plan const& plan = plan_for<epilogue>(call, where);
    int const n = call.b.cols;
    gather_map const map = all.map_of(call.m, plan);
    gather_order const order = order_of_gather(map, all.rank, false, plan.chunks, plan.gemm.group_m);
    nodes_view const view =
        ch_.view(gemm_header<T>("nodes_ag", plan.gemm, unsigned(o_.gather), call.m, n, o_.k, map.chunk_k, where));
    auto const inbox = [&](int slot) { return gathered_in(view.template slot<T const>(slot), map); };
    matrix<T const> const a[gathered_buffers] = {call.a.rows > 0 ? call.a : inbox(0), inbox(0), inbox(1)};
    nodes_ag_gemm_arguments<T> const g{
        call.a,
        map,
        o_.local_shard_first,
        call.c,
        {map.m_tiles(), ceil_div(n, plan.gemm.tile_n), order.first_m_tile, plan.gemm.group_m, order.first_group}};
    detail::nodes_ag_gemm_kernels<T, epilogue> const kernels;
    gemm_problem<T> const p = all.problem(call);
    if (o_.comm_blocks > 0) {
      int const fit = launcher_.resident(kernels, p, plan.gemm, where);
      require(o_.comm_blocks <= fit, where, "nodes_ag_gemm: comm_blocks = ", o_.comm_blocks, "; at most ", fit,
              " blocks are co-resident");
    }
    launcher_.launch(stream, detail::kernels_to_launch(kernels, e), p, plan.gemm, a,
                     {.tiles = g.tiles.count(),
                      .comm_workers = o_.comm_blocks > 0 ? o_.comm_blocks : senders(map, plan, call.b_layout),
                      .comm_exactly = o_.comm_blocks > 0,
                      .where = where},
                     detail::epilogue_to_launch(e), view, g);
  }

  /// As ag_gemm::describe(). Fails: as the call.
  template <local_epilogue Epilogue = identity>
  std::string describe(ag_gemm_call<T> const& call, std::source_location where = std::source_location::current()) {
    of_ranks().template check_call<Epilogue>(call, where);
    if (call.m == 0) return "nodes_ag_gemm: no rows";
    ag_gemm_plan const& plan = plan_for<Epilogue>(call, where);
    return text("nodes_ag_gemm, push, chunks of ", plan.chunk_k, " columns: ", in_words<T>(plan.gemm, call.b_layout));
  }
  /// Rows of A that this rank holds, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m) const { return of_ranks().rows(m, std::source_location::current()); }

 private:
  fusewire::world& world() const { return ch_.near().world(); }
  int near_ranks() const { return world().size(); }
  int nodes() const { return ch_.all().size() / near_ranks(); }
  detail::ag_gemm_ranks of_ranks() const {
    return {"nodes_ag_gemm", o_, ch_.all().size(), ch_.all().rank(), ch_.near().options().flags_per_source / nodes()};
  }
  template <class Epilogue>
  ag_gemm_plan const& plan_for(ag_gemm_call<T> const& call, std::source_location where) {
    return of_ranks().plan(
        launcher_, detail::nodes_ag_gemm_kernels<T, Epilogue>{}, call, [](int) { return false; }, where);
  }
  /// Groups that move chunks: leading blocks, as many as for so many peers of one node, or idle warps.
  int senders(gather_map const& map, ag_gemm_plan const& plan, layout b_layout) const {
    int const chunks = map.max_chunks() * map.ranks, peers = near_ranks() + nodes() - 1;
    bool const first = with_mainloop<T>(plan.gemm, b_layout,
                                        [&]<class M>() { return M::traits.comm == comm_placement::leading_blocks; });
    return !first || map.ranks == 1 ? int(map.ranks > 1) * chunks
                                    : std::max(1, std::min(chunks, plan.senders(o_.gather, peers)));
  }

  nodes_channel& ch_;
  ag_gemm_options o_;
  gemm_launcher<T, ag_gemm_plan> launcher_;
};

}  // namespace fusewire
