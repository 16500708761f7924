// nodes_gemm_rs: C of rank r = rows of rank r of the sum over the ranks of all nodes of A [M, K] * B [K, N], one kernel
// launch per call. The kernel is in nodes_gemm_rs_kernel.hpp.
#pragma once
#include <array>

#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/detail/nodes_gemm_rs_kernel.hpp>
#include <fusewire/ops/detail/nodes_no_rows.hpp>
#include <fusewire/ops/gemm_rs.hpp>

namespace fusewire {

/// As gemm_rs, for the ranks of all nodes: W is their number. Partial sums are rounded to Partial, T or float, inside a
/// node, and added in fp32: those of a node in the order of its ranks, these in the order of nodes. So a rank's bits
/// are the same in every run. Tiles have rows of one rank: with few rows, B is read again for each rank.
template <class T, class Partial = T>
  requires is_16_bit_float<T> && (std::is_same_v<Partial, T> || std::is_same_v<Partial, float>)
class nodes_gemm_rs {
 public:
  /// Collective in the network's world of all nodes. Loads the kernels of calls without an epilogue. o.agreed counts
  /// for nothing. Fails: bad_argument; rank_mismatch; out_of_space.
  nodes_gemm_rs(nodes_channel& ch, gemm_rs_options const& o,
                std::source_location where = std::source_location::current())
      : ch_(ch), o_(o), launcher_(ch.near().world(), "nodes_gemm_rs", o.tile, o.reserved_cus, where) {
    constexpr int most = detail::max_extent;
    require(o.max_m >= 1 && o.max_m <= most, where, "nodes_gemm_rs: max_m = ", o.max_m, "; expected 1 to ", most);
    require(o.max_n >= 1 && o.max_n <= most, where, "nodes_gemm_rs: max_n = ", o.max_n, "; expected 1 to ", most);
    require(o.k >= 8 && o.k <= most && o.k % 8 == 0, where, "nodes_gemm_rs: k = ", o.k,
            "; expected a multiple of 8 up to ", most);
    auto const wanted = channel_for(nodes(), ranks() / nodes(), o), found = ch.near().options();
    require<out_of_space>(wanted.max_bytes <= found.max_bytes, where, "nodes_gemm_rs: what ", ranks(), " ranks on ",
                          nodes(), " nodes send for max_m = ", o.max_m, " and max_n = ", o.max_n, " take ",
                          wanted.max_bytes, " bytes; the channel's max_bytes is ", found.max_bytes);
    require<out_of_space>(wanted.flags_per_source <= found.flags_per_source, where, "nodes_gemm_rs: needs ",
                          wanted.flags_per_source, " flags per source; the channel has ", found.flags_per_source);
    ch.near().heap().names().add_launch("nodes_rs", [](std::uint64_t const(&what)[launch_words]) {
      return describe_gemm(variant_of(what) == sizeof(float) ? "nodes_gemm_rs fp32" : "nodes_gemm_rs", what);
    });
    prepare<identity>(where);
    using named = fusewire::heap::named;
    ch.require_equal_on_ranks("nodes_gemm_rs",
                              std::array{named{"max_m", std::uint64_t(o.max_m)}, named{"max_n", std::uint64_t(o.max_n)},
                                         named{"k", std::uint64_t(o.k)}},
                              where);
  }
  nodes_gemm_rs(nodes_gemm_rs const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~nodes_gemm_rs() = default;

  /// What nodes_channel's options should be, at least, for `nodes` nodes of `near` ranks. Requires: options that the
  /// constructor accepts.
  static channel_options channel_for(int nodes, int near, gemm_rs_options const& o) {
    int const per_rank = ceil_div(o.max_m, nodes * near), more = sink::max_tile - 1;
    std::size_t const tiles = std::size_t(per_rank + more) * (std::size_t(o.max_n) + std::size_t(more)) * sizeof(float);
    return {.max_bytes = sink::near_bytes(nodes, near, per_rank, o.max_n) + std::size_t(nodes) * tiles,
            .flags_per_source = nodes * gemm_launcher<T>::max_tile_slices(per_rank, o.max_n, o.tile)};
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    launcher_.load(kernels<Epilogue>{}, where);
    (void)load_kernel(world(), &detail::nodes_no_rows_kernel<>, detail::no_rows_threads, 0, where);
  }

  /// Launches one kernel. Call it on the ranks of all nodes, in the same order, on any stream: see launch(). Can be
  /// captured in a graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <call_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_rs_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    check(call, where);
    int const n = call.b.cols;
    auto const header = [&](gemm_plan const& plan) {
      return gemm_header<T>("nodes_rs", plan, sizeof(Partial), call.m, n, o_.k, 0, where);
    };
    if (call.m == 0) return detail::launch_nodes_no_rows(ch_, stream, header({}), where);
    kernels<detail::planned_epilogue<Epilogue>> const kernel_of;
    auto const p = detail::problem_of(call, ceil_div(call.m, ranks()), ranks());
    gemm_plan const& plan = launcher_.plan(kernel_of, p, where);
    row_shards const rows(call.m, ranks(), plan.tile_m);
    int const first = (ch_.all().rank() + 1) % ranks();
    sum_arguments<T> const g{
        call.c,
        rows,
        rows.per_rank,
        {rows.all_m_tiles(), ceil_div(n, plan.tile_n), first < rows.owners() ? first : 0, plan.group_m},
        o_.k};
    matrix<T const> const a[1] = {call.a};
    launcher_.launch(stream, detail::kernels_to_launch(kernel_of, e), p, plan, a,
                     {.tiles = g.tiles.count(), .where = where}, detail::epilogue_to_launch(e), ch_.view(header(plan)),
                     g);
  }

  /// Rows of C that this rank owns, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m, std::source_location where = std::source_location::current()) const {
    require(m >= 0 && m <= o_.max_m, where, "nodes_gemm_rs: m = ", m, "; expected 0 to max_m = ", o_.max_m);
    return m == 0 ? 0 : row_shards(m, ranks(), 1).rows(ch_.all().rank());
  }

 private:
  using sink = nodes_reduce_scatter_sink<Partial>;
  template <class Epilogue>
  struct kernels {
    static constexpr char const* name = "nodes_gemm_rs_kernel";
    template <class M>
    auto operator()() const {
      return &nodes_gemm_rs_kernel<T, M, Epilogue, Partial>;
    }
  };

  fusewire::world& world() const { return ch_.near().world(); }
  int ranks() const { return ch_.all().size(); }
  int nodes() const { return ranks() / world().size(); }
  void check(gemm_rs_call<T> const& call, std::source_location where) const {
    int const n = call.b.cols, own = rows(call.m, where);
    require(call.a.rows == call.m && call.a.cols == o_.k, where, "nodes_gemm_rs: a is [", call.a.rows, ", ",
            call.a.cols, "]; expected [", call.m, ", ", o_.k, "]");
    require(n >= 1 && n <= o_.max_n, where, "nodes_gemm_rs: b is [", call.b.rows, ", ", n, "]; expected [", o_.k,
            ", 1 to max_n = ", o_.max_n, "]");
    require(call.c.rows == own && call.c.cols == n, where, "nodes_gemm_rs: c is [", call.c.rows, ", ", call.c.cols,
            "]; expected [", own, ", ", n, "] on rank ", ch_.all().rank());
    detail::check_gemm("nodes_gemm_rs", call, o_.k, n, where);
  }

  nodes_channel& ch_;
  gemm_rs_options o_;
  gemm_launcher<T> launcher_;
};

}  // namespace fusewire
