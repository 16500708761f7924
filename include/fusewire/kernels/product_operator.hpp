// The host side of operators that multiply and send on what comes out.
#pragma once
#include <fusewire/kernels/gemm_launch.hpp>
#include <fusewire/kernels/matrix_operand.hpp>
#include <fusewire/kernels/partial_sums.hpp>
#include <fusewire/runtime/channel.hpp>

namespace fusewire::detail {

/// Options: max_m, max_n, k, tile, reserved_cus.
template <class T, class Options>
  requires is_16_bit_float<T>
class product_operator {
 public:
  static constexpr int max_extent = 1 << 30;  // of any extent: sums of two fit an int

  /// At least as many flags as the blocks that store a shard of up to `rows` rows need, one for each part of a tile.
  static int max_flags(Options const& o, int rows) {
    auto const tiles = [&](int tile_m, int tile_n, int of_rows) {
      return std::int64_t(ceil_div(of_rows, tile_m)) * ceil_div(o.max_n, tile_n);
    };
    std::int64_t count = 0;
    for (int const r : {rows, std::min(rows, 64)}) {  // calls with fewer rows have smaller tiles
      gemm_plan const p = plain_gemm_plan(o.tile, r);
      count = std::max({count, tiles(p.tile_m, p.tile_n, r), std::int64_t(tuned_mainloops<T>::max_parts(r, o.max_n))});
    }
    return int(std::min<std::int64_t>(max_extent, count));
  }
  /// Of a channel's slot: fp32 sums [sources][rows][max_n].
  static std::size_t bytes_of_sums(Options const& o, int sources, int rows) {
    return std::size_t(sources) * std::size_t(rows) * std::size_t(owners_inbox::pitch(o.max_n)) * sizeof(float);
  }

 protected:
  /// launch_name: of its launches, for headers.
  product_operator(char const* name, char const* launch_name, channel& ch, Options const& o, std::source_location where)
      : name_(name), launch_name_(launch_name), ch_(ch), o_(o), memory_(where) {
    int const units = ch.world().compute_units();
    require(o.max_m >= 1 && o.max_m <= max_extent, where, name, ": max_m = ", o.max_m, "; expected 1 to ", max_extent);
    require(o.max_n >= 1 && o.max_n <= max_extent, where, name, ": max_n = ", o.max_n, "; expected 1 to ", max_extent);
    require(o.k >= 8 && o.k <= max_extent && o.k % 8 == 0, where, name, ": k = ", o.k,
            "; expected a multiple of 8 up to ", max_extent);
    require_tile(name, o.tile, where);
    require(o.reserved_cus >= 0 && o.reserved_cus < units, where, name, ": reserved_cus = ", o.reserved_cus,
            "; expected 0 to ", units - 1);
    std::int64_t const tiles = std::int64_t(ceil_div(o.max_m, small_tile::config.block_m) + ch.world().size()) *
                               ceil_div(o.max_n, small_tile::config.block_n);
    require(tiles <= max_extent / 2, where, name, ": max_m = ", o.max_m, " and max_n = ", o.max_n, " are up to ", tiles,
            " tiles; expected up to ", max_extent / 2);
  }

  void require_room(std::size_t bytes, int flags, std::source_location where) const {
    require<out_of_space>(bytes <= ch_.options().max_bytes, where, name_, ": what ", ch_.world().size(),
                          " ranks send for max_m = ", o_.max_m, " and max_n = ", o_.max_n, " take ", bytes,
                          " bytes; the channel's max_bytes is ", ch_.options().max_bytes);
    require<out_of_space>(flags <= ch_.options().flags_per_source, where, name_, ": needs ", flags,
                          " flags per source; the channel has ", ch_.options().flags_per_source);
  }

  void accept(int m, std::source_location where) const {
    require(m >= 1 && m <= o_.max_m, where, name_, ": m = ", m, "; expected 1 to max_m = ", o_.max_m);
  }

  /// c has `rows` rows on this rank, and `copies` times the columns of b.
  template <class Call>
  void check(Call const& call, int rows, int copies, std::source_location where) const {
    int const n = call.b.cols;
    require(call.a.rows == call.m && call.a.cols == o_.k, where, name_, ": a is [", call.a.rows, ", ", call.a.cols,
            "]; expected [", call.m, ", ", o_.k, "]");
    require(n >= 1 && n <= o_.max_n, where, name_, ": b is [", call.b.rows, ", ", n, "]; expected [", o_.k,
            ", 1 to max_n = ", o_.max_n, "]");
    require(call.c.rows == rows && call.c.cols == std::int64_t(copies) * n, where, name_, ": c is [", call.c.rows, ", ",
            call.c.cols, "]; expected [", rows, ", ", std::int64_t(copies) * n, "] on rank ", ch_.world().rank());
    check_product(name_, call, o_.k, n, where);
  }

  /// Loads every mainloop's kernel of kernel_of, and for one rank the local ones.
  template <class Epilogue, class Kernel>
  void load(Kernel const& kernel_of, std::source_location where) const {
    for_each_mainloop<T>(o_.tile, [&]<class M>() {
      if (ch_.world().size() == 1)
        load_kernel(ch_.world(), &gemm_kernel<T, M, Epilogue>, M::threads, M::shared_bytes(), where);
      else load_kernel(ch_.world(), kernel_of.template operator()<M>(), M::threads, M::shared_bytes(), where);
    });
  }

  /// Launches kernel_of.operator()<M>() with the mainloop of the call's plan. The rows of the product are cut into
  /// `shards` shards, the one of rank `first` comes first. `variant`: what else the ranks have to agree on; it stands
  /// in the header. One rank alone sends nothing: its product is the result.
  template <class Kernel, class Call, class Epilogue>
  void start(hipStream_t stream, Kernel const& kernel_of, Call const& call, int shards, int first,
             std::uint64_t variant, Epilogue const& epilogue, std::source_location where) {
    world const& w = ch_.world();
    int const n = call.b.cols;
    b_operand<T> const b{call.b.data, call.b.ld, call.b_layout, n};
    gemm_plan const& plan = plan_for<Epilogue>(kernel_of, call, shards, where);
    if (w.size() == 1) return start_gemm<T>(w, stream, call, plan, memory_, o_.reserved_cus, epilogue, where);
    with_mainloop<T>(plan, call.b_layout, [&]<class M>() {
      row_shards const rows(call.m, shards, M::tile_m);
      int const after = first * rows.tile_rows;  // the first one's first tile row, if it has one
      sum_arguments<T> const g{
          call.c,
          rows,
          {rows.all_tile_rows(), ceil_div(n, M::tile_n), after < rows.all_tile_rows() ? after : 0, plan.band},
          o_.k};
      matrix<T const> const a[1] = {call.a};
      auto x = make_operands<M>(a, b, o_.k, call.b_is_constant, plan, rows.per_rank,
                                last_tile_rows(rows.per_rank, M::tile_m), memory_, where);
      if constexpr (M::communicates_first) set_blocks(x, 0, g.tiles.count());
      std::uint64_t const tile =
          std::uint64_t(M::tile_m / 8) << 24 | std::uint64_t(M::tile_n / 8) << 32 | std::uint64_t(plan.parts) << 40;
      launch_header header = make_header(launch_name_, std::uint64_t(std::is_same_v<T, f16>) | variant << 16 | tile,
                                         std::uint64_t(call.m), std::uint64_t(n), std::uint64_t(o_.k), 0, where);
      header.same_blocks = 0;  // a rank with less room takes fewer
      launch_tiles<M>(name_, w, stream, plan, g.tiles.count(), o_.reserved_cus, where,
                      kernel_of.template operator()<M>(), ch_.view(header), g, x, epilogue);
    });
  }

  /// The call's plan, as start() takes it.
  template <class Epilogue, class Kernel, class Call>
  gemm_plan const& plan_for(Kernel const& kernel_of, Call const& call, int shards, std::source_location where) {
    world const& w = ch_.world();
    int const n = call.b.cols;
    b_operand<T> const b{call.b.data, call.b.ld, call.b_layout, n};
    auto const [it, fresh] =
        plans_.try_emplace({call.m, n, call.b_layout, tuned_mainloops<T>::accepts(call.a.ld, b, o_.k), shards});
    auto const plan = [&](int rows, int of_shards, auto const& kernels) {
      return plan_gemm<T>(w, {rows, of_shards, n, o_.k, 1, call.b_layout}, o_.tile, call.a.ld, b, o_.reserved_cus,
                          kernels, where);
    };
    if (fresh)
      it->second = w.size() == 1 ? plan(call.m, 1, gemm_kernels<T, Epilogue>{})
                                 : plan(ceil_div(call.m, shards), shards, kernel_of);
    return it->second;
  }

  /// A launch in words, from what its header says.
  static std::string describe(std::string const& name, std::uint64_t const (&what)[launch_words]) {
    auto const variant = [&](int i) { return what[1] >> 8 * i & 255; };
    return text(name, variant(0) ? " f16" : " bf16", ", m = ", what[2], ", n = ", what[3], ", k = ", what[4], ", tile ",
                variant(3) * 8, " x ", variant(4) * 8, variant(5) > 1 ? text(" in ", variant(5), " parts") : "");
  }

  char const *name_, *launch_name_;
  channel& ch_;
  Options o_;

 private:
  typename tuned_mainloops<T>::memory memory_;
  std::map<std::tuple<int, int, layout, bool, int>, gemm_plan>
      plans_;  // by m, n, layout of B, whether a tuned one may be, shards
};

}  // namespace fusewire::detail
