// The host side of operators that multiply and send on what comes out, on top of gemm_launcher.
#pragma once
#include <fusewire/ops/detail/gemm_launch.hpp>
#include <fusewire/ops/detail/no_rows.hpp>
#include <fusewire/comm/row_shards.hpp>
#include <fusewire/comm/tile_vectors.hpp>

namespace fusewire {

/// What such an operator has besides its kernel: the checks of its options and calls, and the launch. A base class.
/// Options: max_m, max_n, k, tile, reserved_cus. A call of the operator: a, b, c, m, b_layout, b_is_constant.
template <class T, class Options>
  requires is_16_bit_float<T>
class fused_gemm_operator {
 public:
  /// At least as many flags as the blocks that store a shard of up to `rows` rows need, one for each k slice of a tile.
  static int max_flags(Options const& o, int rows) { return gemm_launcher<T>::max_tile_slices(rows, o.max_n, o.tile); }
  /// Bytes of a channel's slot that holds partial sums [sources][rows][max_n].
  template <class Partial>
  static std::size_t bytes_of_partials(Options const& o, int sources, int rows) {
    return std::size_t(sources) * std::size_t(rows) * std::size_t(inbox_pitch<Partial>(o.max_n)) * sizeof(Partial);
  }
  /// Up to as many rows, tiles of a sum have rows of several owners: cut by owner, each would read B again.
  static constexpr int max_mixed_rows = 128;
  /// Flags for the tiles of reduce_scatter_sink.
  static int reduce_scatter_flags(Options const& o, int ranks) {
    return std::max(max_flags(o, ceil_div(o.max_m, ranks)), max_flags(o, std::min(o.max_m, max_mixed_rows)));
  }
  /// Bytes of an inbox of reduce_scatter_sink.
  template <class Partial>
  static std::size_t reduce_scatter_bytes(Options const& o, int ranks) {
    return bytes_of_partials<Partial>(o, ranks, ceil_div(o.max_m, ranks)) +
           bytes_of_partials<Partial>(o, 1, std::min(o.max_m, max_mixed_rows));
  }

 protected:
  /// `name` in messages, `launch_name` (up to 8 letters) in headers. Loads nothing. Fails: bad_argument.
  fused_gemm_operator(char const* name, char const* launch_name, channel& ch, Options const& o,
                      std::source_location where)
      : name_(name), launch_name_(launch_name), ch_(ch), o_(o),
        launcher_(ch.world(), name, o.tile, o.reserved_cus, where) {
    constexpr int max_extent = detail::max_extent;
    require(o.max_m >= 1 && o.max_m <= max_extent, where, name, ": max_m = ", o.max_m, "; expected 1 to ", max_extent);
    require(o.max_n >= 1 && o.max_n <= max_extent, where, name, ": max_n = ", o.max_n, "; expected 1 to ", max_extent);
    require(o.k >= 8 && o.k <= max_extent && o.k % 8 == 0, where, name, ": k = ", o.k,
            "; expected a multiple of 8 up to ", max_extent);
    std::int64_t const tiles = std::int64_t(ceil_div(o.max_m, small_tile::config.block_m) + ch.world().size()) *
                               ceil_div(o.max_n, small_tile::config.block_n);
    require(tiles <= max_extent / 2, where, name, ": max_m = ", o.max_m, " and max_n = ", o.max_n, " are up to ", tiles,
            " tiles; expected up to ", max_extent / 2);
  }

  /// What the channel must hold. Fails: out_of_space.
  void require_room(std::size_t bytes, int flags, std::source_location where) const {
    require<out_of_space>(bytes <= ch_.options().max_bytes, where, name_, ": what ", ch_.world().size(),
                          " ranks send for max_m = ", o_.max_m, " and max_n = ", o_.max_n, " take ", bytes,
                          " bytes; the channel's max_bytes is ", ch_.options().max_bytes);
    require<out_of_space>(flags <= ch_.options().flags_per_source, where, name_, ": needs ", flags,
                          " flags per source; the channel has ", ch_.options().flags_per_source);
  }

  /// Collective. The options are those of all ranks, and all ranks have loaded their kernels. `operator_bits`: what
  /// else must be equal. Fails: rank_mismatch.
  void require_equal_on_ranks(std::source_location where, int operator_bits = 0) const {
    using named = heap::named;
    ch_.heap().require_equal_on_ranks(
        name_,
        std::array{named{"max_m", std::uint64_t(o_.max_m)}, named{"max_n", std::uint64_t(o_.max_n)},
                   named{"k", std::uint64_t(o_.k)}, named{"shots", std::uint64_t(operator_bits)}},
        where);
  }

  /// Rows of a call. Fails: bad_argument.
  void accept(int m, std::source_location where) const {
    require(m >= 0 && m <= o_.max_m, where, name_, ": m = ", m, "; expected 0 to max_m = ", o_.max_m);
  }

  /// c has `rows` rows on this rank, and `copies` times the columns of b. Fails: bad_argument.
  template <class Call>
  void check(Call const& call, int rows, int copies, std::source_location where) const {
    check(call, rows, copies, ch_.world().rank(), where);
  }
  /// The same, with this rank's number for the message.
  template <class Call>
  void check(Call const& call, int rows, int copies, int rank, std::source_location where) const {
    int const n = call.b.cols;
    require(call.a.rows == call.m && call.a.cols == o_.k, where, name_, ": a is [", call.a.rows, ", ", call.a.cols,
            "]; expected [", call.m, ", ", o_.k, "]");
    require(n >= 1 && n <= o_.max_n, where, name_, ": b is [", call.b.rows, ", ", n, "]; expected [", o_.k,
            ", 1 to max_n = ", o_.max_n, "]");
    require(call.c.rows == rows && call.c.cols == std::int64_t(copies) * n, where, name_, ": c is [", call.c.rows, ", ",
            call.c.cols, "]; expected [", rows, ", ", std::int64_t(copies) * n, "] on rank ", rank);
    detail::check_gemm(name_, call, o_.k, n, where);
  }

  /// Shards whose rows are cut into tiles by themselves, when rows are reduced by their owners.
  int shards_of(int m) const { return m <= max_mixed_rows ? 1 : ch_.world().size(); }

  /// Loads every mainloop's kernel of kernel_of, and for one rank the local ones.
  template <class Epilogue, class Kernel>
  void load(Kernel const& kernel_of, std::source_location where) const {
    detail::load_no_rows(ch_.world(), where);
    if (alone()) launcher_.load(detail::gemm_kernels<T, Epilogue>{}, where);
    else launcher_.load(kernel_of, where);
  }

  /// Launches kernel_of.operator()<M>() with the mainloop of the call's plan. The rows of the product are cut into
  /// `shards` shards, round robin from the next rank's on. `operator_bits`: what else the ranks have to agree on; see
  /// gemm_header(). One rank alone sends nothing: its product is the result. A call without rows multiplies nothing.
  template <class Kernel, class Call, class Epilogue>
  void start(hipStream_t stream, Kernel const& kernel_of, Call const& call, int shards, unsigned operator_bits,
             Epilogue const& epilogue, std::source_location where) {
    if (call.m == 0)
      return detail::launch_no_rows(
          ch_, stream, gemm_header<T>(launch_name_, {}, operator_bits, 0, call.b.cols, o_.k, 0, where), where);
    gemm_plan const& plan = plan_for<detail::planned_epilogue<Epilogue>>(kernel_of, call, shards, where);
    if (alone())
      return detail::start_gemm(launcher_, stream, call, plan, epilogue, detail::memory_of_one_launch(ch_.view({})),
                                where);
    row_shards const rows(call.m, shards, plan.tile_m);
    auto const p = detail::problem_of(call, rows.per_rank, shards);
    int const n = call.b.cols, next = ch_.world().rank() + 1, first = next < rows.owners() ? next : 0;
    sum_arguments<T> const g{call.c,
                             rows,
                             ceil_div(call.m, ch_.world().size()),
                             {rows.all_m_tiles(), ceil_div(n, plan.tile_n), first, plan.group_m},
                             o_.k};
    launch_header const header = gemm_header<T>(launch_name_, plan, operator_bits, call.m, n, o_.k, 0, where);
    matrix<T const> const a[1] = {call.a};
    launcher_.launch(stream, detail::kernels_to_launch(kernel_of, epilogue), p, plan, a,
                     {.tiles = g.tiles.count(), .where = where}, detail::epilogue_to_launch(epilogue), ch_.view(header),
                     g);
  }

  /// The call's plan in words.
  template <class Epilogue, class Kernel, class Call>
  std::string plan_in_words(Kernel const& kernel_of, Call const& call, int shards, std::source_location where) {
    if (call.m == 0) return "no rows";
    return in_words<T>(plan_for<Epilogue>(kernel_of, call, shards, where), call.b_layout);
  }

  /// The call's plan, as start() takes it.
  template <class Epilogue, class Kernel, class Call>
  gemm_plan const& plan_for(Kernel const& kernel_of, Call const& call, int shards, std::source_location where) {
    if (alone()) return launcher_.plan(detail::gemm_kernels<T, Epilogue>{}, detail::problem_of(call, call.m), where);
    return launcher_.plan(kernel_of, detail::problem_of(call, ceil_div(call.m, shards), shards), where);
  }

  char const *name_, *launch_name_;  // as it was made
  channel& ch_;                      // as it was made
  Options o_;                        // as it was made
  gemm_launcher<T> launcher_;        // plans, loads and launches

 private:
  bool alone() const { return ch_.world().size() == 1; }
};

}  // namespace fusewire
