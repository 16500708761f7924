// nodes_gemm_ar: C [M, N] = the sum over the ranks of all nodes of A [M, K] * B [K, N], on every rank, one kernel
// launch per call. The kernel is in nodes_gemm_ar_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/nodes_gemm_ar_kernel.hpp>
#include <fusewire/ops/detail/nodes_gemm_operator.hpp>
#include <fusewire/ops/gemm_ar.hpp>

namespace fusewire {

/// As gemm_ar with two shots, for the ranks of all nodes. Partial sums are rounded to Partial, T or float, inside a
/// node, and added in fp32: those of a node in the order of its ranks, these in the order of nodes. So the bits are the
/// same on every rank and in every run. The epilogue sees the sum at the rank of each node that reduces the row: once
/// per node.
template <class T, class Partial = T>
  requires std::is_same_v<Partial, T> || std::is_same_v<Partial, float>
class nodes_gemm_ar : nodes_gemm_operator<T, gemm_ar_options> {
  using base = nodes_gemm_operator<T, gemm_ar_options>;

 public:
  /// Collective in the network's world of all nodes. Loads the kernels of calls without an epilogue. o.shots and
  /// o.agreed count for nothing. Fails: bad_argument; rank_mismatch; out_of_space.
  nodes_gemm_ar(nodes_channel& ch, gemm_ar_options const& o,
                std::source_location where = std::source_location::current())
      : base("nodes_gemm_ar", "nodes_ar", ch, o, where) {
    base::require_room(channel_for(base::nodes(), base::near_ranks(), o), where);
    ch.near().heap().names().add_launch("nodes_ar", [](std::uint64_t const(&what)[launch_words]) {
      return describe_gemm(variant_of(what) == sizeof(float) ? "nodes_gemm_ar fp32" : "nodes_gemm_ar", what);
    });
    prepare<identity>(where);
    base::require_equal_on_ranks(where);
  }
  nodes_gemm_ar(nodes_gemm_ar const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~nodes_gemm_ar() = default;

  /// What nodes_channel's options should be, at least, for `nodes` nodes of `near` ranks. Requires: options that the
  /// constructor accepts.
  static channel_options channel_for(int nodes, int near, gemm_ar_options const& o) {
    std::size_t const rails = std::size_t(nodes) * std::size_t(ceil_div(o.max_m, near)) *
                              std::size_t(o.max_n + max_tile_n) * sizeof(float),
                      results = std::size_t(o.max_m) * std::size_t(inbox_pitch<T>(o.max_n)) * sizeof(T);
    return {
        .max_bytes = base::template reduce_scatter_bytes<Partial>(o, near) + results + 255 + (nodes > 1 ? rails : 0),
        .flags_per_source = 2 * base::reduce_scatter_flags(o, near)};
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
  void operator()(hipStream_t stream, gemm_ar_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    base::accept(call.m, where);
    base::check(call, call.m, 1, base::rank(), where);
    base::start(stream, kernels<detail::planned_epilogue<Epilogue>>{}, call, base::near_ranks(),
                base::rank() % base::near_ranks(), base::shards_of(call.m), sizeof(Partial), e, where);
  }

 private:
  static constexpr int max_tile_n = 256;  // columns of a tile, at most

  template <class Epilogue>
  struct kernels {
    static constexpr char const* name = "nodes_gemm_ar_kernel";
    template <class M>
    auto operator()() const {
      static_assert(M::traits.tile_n <= max_tile_n);
      return &nodes_gemm_ar_kernel<T, M, Epilogue, Partial>;
    }
  };
};

}  // namespace fusewire
