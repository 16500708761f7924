// nodes_gemm_rs: C of rank r = rows of rank r of the sum over the ranks of all nodes of A [M, K] * B [K, N], one kernel
// launch per call. The kernel is in nodes_gemm_rs_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/nodes_gemm_operator.hpp>
#include <fusewire/ops/detail/nodes_gemm_rs_kernel.hpp>
#include <fusewire/ops/gemm_rs.hpp>

namespace fusewire {

/// As gemm_rs, for the ranks of all nodes: W is their number. Partial sums are rounded to Partial, T or float, inside a
/// node, and added in fp32: those of a node in the order of its ranks, these in the order of nodes. So a rank's bits
/// are the same in every run. Tiles have rows of one rank: with few rows, B is read again for each rank.
template <class T, class Partial = T>
  requires std::is_same_v<Partial, T> || std::is_same_v<Partial, float>
class nodes_gemm_rs : nodes_gemm_operator<T, gemm_rs_options> {
  using base = nodes_gemm_operator<T, gemm_rs_options>;

 public:
  /// Collective in the network's world of all nodes. Loads the kernels of calls without an epilogue. o.agreed counts
  /// for nothing. Fails: bad_argument; rank_mismatch; out_of_space.
  nodes_gemm_rs(nodes_channel& ch, gemm_rs_options const& o,
                std::source_location where = std::source_location::current())
      : base("nodes_gemm_rs", "nodes_rs", ch, o, where) {
    base::require_room(channel_for(base::nodes(), base::near_ranks(), o), where);
    ch.near().heap().names().add_launch("nodes_rs", [](std::uint64_t const(&what)[launch_words]) {
      return describe_gemm(variant_of(what) == sizeof(float) ? "nodes_gemm_rs fp32" : "nodes_gemm_rs", what);
    });
    prepare<identity>(where);
    base::require_equal_on_ranks(where);
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
    base::load(kernels<Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on the ranks of all nodes, in the same order, on any stream: see launch(). Can be
  /// captured in a graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <call_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_rs_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    base::check(call, rows(call.m, where), 1, base::rank(), where);
    base::start(stream, kernels<detail::planned_epilogue<Epilogue>>{}, call, base::ranks(), base::rank(), base::ranks(),
                sizeof(Partial), e, where);
  }

  /// Rows of C that this rank owns, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m, std::source_location where = std::source_location::current()) const {
    base::accept(m, where);
    return m == 0 ? 0 : row_shards(m, base::ranks(), 1).rows(base::rank());
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
};

}  // namespace fusewire
