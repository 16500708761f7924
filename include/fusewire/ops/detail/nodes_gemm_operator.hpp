// The host side of operators over nodes that multiply and send on what comes out, on top of fused_gemm_operator.
#pragma once
#include <array>

#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/detail/fused_gemm_operator.hpp>
#include <fusewire/ops/detail/nodes_no_rows.hpp>

namespace fusewire {

/// What such an operator has besides its kernel. A base class.
template <class T, class Options>
class nodes_gemm_operator : protected fused_gemm_operator<T, Options> {
 protected:
  using base = fused_gemm_operator<T, Options>;  ///< The operator of a node.

  /// As fused_gemm_operator(). Fails: bad_argument.
  nodes_gemm_operator(char const* name, char const* launch_name, nodes_channel& ch, Options const& o,
                      std::source_location where)
      : base(name, launch_name, ch.near(), o, where), all_(ch) {}

  /// What the channel must hold. Fails: out_of_space.
  void require_room(channel_options const& wanted, std::source_location where) const {
    auto const& o = base::o_;
    auto const found = base::ch_.options();
    require<out_of_space>(wanted.max_bytes <= found.max_bytes, where, base::name_, ": what ", ranks(), " ranks on ",
                          nodes(), " nodes send for max_m = ", o.max_m, " and max_n = ", o.max_n, " take ",
                          wanted.max_bytes, " bytes; the channel's max_bytes is ", found.max_bytes);
    require<out_of_space>(wanted.flags_per_source <= found.flags_per_source, where, base::name_, ": needs ",
                          wanted.flags_per_source, " flags per source; the channel has ", found.flags_per_source);
  }

  /// Collective in the network's world of all nodes. Fails: rank_mismatch.
  void require_equal_on_ranks(std::source_location where) const {
    using named = fusewire::heap::named;
    auto const& o = base::o_;
    all_.require_equal_on_ranks(base::name_,
                                std::array{named{"max_m", std::uint64_t(o.max_m)},
                                           named{"max_n", std::uint64_t(o.max_n)}, named{"k", std::uint64_t(o.k)}},
                                where);
  }

  /// Loads every mainloop's kernel of kernel_of.
  template <class Kernel>
  void load(Kernel const& kernel_of, std::source_location where) const {
    base::launcher_.load(kernel_of, where);
    (void)load_kernel(base::ch_.world(), &detail::nodes_no_rows_kernel<>, detail::no_rows_threads, 0, where);
  }

  /// As fused_gemm_operator::start(). `owners`: ranks whose rows are reduced by themselves; rank `me` of them is this
  /// one. The rows are cut into `shards` shards, of all owners or of one for all.
  template <class Kernel, class Call, class Epilogue>
  void start(hipStream_t stream, Kernel const& kernel_of, Call const& call, int owners, int me, int shards,
             unsigned operator_bits, Epilogue const& epilogue, std::source_location where) {
    int const n = call.b.cols;
    auto const header = [&](gemm_plan const& plan) {
      return gemm_header<T>(base::launch_name_, plan, operator_bits, call.m, n, base::o_.k, 0, where);
    };
    if (call.m == 0) return detail::launch_nodes_no_rows(all_, stream, header({}), where);
    auto const p = detail::problem_of(call, ceil_div(call.m, shards), shards);
    gemm_plan const& plan = base::launcher_.plan(kernel_of, p, where);
    row_shards const rows(call.m, shards, plan.tile_m);
    int const first = me + 1 < rows.owners() ? me + 1 : 0;
    sum_arguments<T> const g{call.c,
                             rows,
                             ceil_div(call.m, owners),
                             {rows.all_m_tiles(), ceil_div(n, plan.tile_n), first, plan.group_m},
                             base::o_.k};
    matrix<T const> const a[1] = {call.a};
    base::launcher_.launch(stream, detail::kernels_to_launch(kernel_of, epilogue), p, plan, a,
                           {.tiles = g.tiles.count(), .where = where}, detail::epilogue_to_launch(epilogue),
                           all_.view(header(plan)), g);
  }

  /// Ranks of all nodes.
  int ranks() const { return all_.all().size(); }
  /// This rank, of all nodes.
  int rank() const { return all_.all().rank(); }
  /// Ranks of a node.
  int near_ranks() const { return base::ch_.world().size(); }
  /// How many nodes there are.
  int nodes() const { return ranks() / near_ranks(); }

 private:
  nodes_channel& all_;
};

}  // namespace fusewire
