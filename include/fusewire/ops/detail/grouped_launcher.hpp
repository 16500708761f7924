// Plans and launches kernels that multiply groups of rows, whose number and sizes only the device knows.
#pragma once
#include <fusewire/gemm/gemm_launcher.hpp>
#include <fusewire/ops/detail/grouped_gemm_kernel.hpp>
#include <fusewire/ops/grouped_gemm_call.hpp>

namespace fusewire {

/// A gemm_launcher for groups. Kernels take a grouped_gemm_arguments.
template <class T>
class grouped_launcher {
 public:
  /// As gemm_launcher's. Fails: also where the tile names split-k.
  grouped_launcher(world const& w, char const* name, gemm_tile const& tile, int reserved_cus,
                   std::source_location where, int other_shared = 0)
      : name_(name), launcher_(w, name, accepted(name, tile, where), reserved_cus, where, other_shared) {}

  /// As gemm_launcher::load().
  template <class Kernel>
  void load(Kernel const& kernel_of, std::source_location where) const {
    launcher_.load(kernel_of, where);
  }
  /// Checks the call of an epilogue, and returns its plan. Fails: bad_argument.
  template <class Epilogue, class Kernel>
  gemm_plan const& plan(Kernel const& kernel_of, grouped_gemm_call<T> const& call, std::source_location where) {
    check(call, columns_of_value<typename epilogue_of_groups<Epilogue>::type>, where);
    return launcher_.plan(
        kernel_of, problem_of(call),
        [&](char const* why_not, gemm_shape shape, auto const& groups) {
          gemm_tile const named = shape.tile;
          shape.tile.split_k = 1;
          if (!why_not)
            if (auto const tuned = tuned_gemm_plan(shape, groups)) return *tuned;
          gemm_plan g = plain_gemm_plan(named, shape.rows);
          g.why_not_tuned = why_not;
          return g;
        },
        where);
  }
  /// How many blocks of the plan's kernel are co-resident. Fails: bad_argument where none is.
  template <class Kernel>
  int resident(Kernel const& kernel_of, grouped_gemm_call<T> const& call, gemm_plan const& plan,
               std::source_location where) const {
    return launcher_.resident(kernel_of, problem_of(call), plan, where);
  }

  /// What the kernel is told of a call.
  static grouped_gemm_arguments<T> arguments(grouped_gemm_call<T> const& call, gemm_plan const& plan) {
    return {call.c,
            {call.offsets, call.ends ? call.ends : call.offsets + 1, call.groups, call.a.rows},
            divisor(ceil_div(call.b.cols, plan.tile_n)),
            call.a.cols,
            plan.group_m};
  }
  /// Launches the kernel: `arguments`, what the mainloop takes, the epilogue. work: but for its tiles. Fails: as
  /// gemm_launcher::launch(); bad_argument where there can be too many tiles.
  template <class Kernel, class Epilogue, class... P>
  void launch(hipStream_t stream, Kernel const& kernel_of, grouped_gemm_call<T> const& call, gemm_plan const& plan,
              tile_work work, Epilogue const& e, P const&... arguments) const {
    std::int64_t const tiles =
        std::int64_t(ceil_div(call.b.cols, plan.tile_n)) * max_grouped_m_tiles(call.groups, call.a.rows, plan.tile_m);
    constexpr int most = detail::max_extent / 2;
    require(tiles <= most, work.where, name_, ": ", call.groups, " groups of ", call.a.rows, " rows and ", call.b.cols,
            " columns can have ", tiles, " tiles; expected up to ", most);
    matrix<T const> const a[1] = {call.a};
    gemm_problem<T> p = problem_of(call);
    p.rows = call.a.rows, p.shards = 1;  // a group can have them all
    work.tiles = int(tiles);
    launcher_.launch(stream, kernel_of, p, plan, a, work, e, arguments...);
  }

 private:
  static gemm_tile const& accepted(char const* name, gemm_tile const& tile, std::source_location where) {
    require(tile.split_k == 0 || tile.split_k == 1, where, name, ": tile = ", in_words(tile),
            "; expected split-k 1 or any: blocks do not share tiles whose number the host does not know");
    return tile;
  }
  static gemm_problem<T> problem_of(grouped_gemm_call<T> const& call) {
    int const mean = std::max(1, call.a.rows / call.groups),
              rows = call.rows_of_group > 0 ? std::min(call.rows_of_group, call.a.rows) : mean;
    return {.rows = rows,
            .b = call.b,
            .b_layout = call.b_layout,
            .a_ld = call.a.ld,
            .shards = call.groups,
            .groups = call.groups,
            .b_group_stride = call.b_group_stride};
  }

  void check(grouped_gemm_call<T> const& call, int per_value, std::source_location where) const {
    int const rows = call.a.rows, k = call.a.cols, columns = call.c.cols, most = detail::max_extent / per_value;
    require(rows >= 1 && rows <= detail::max_extent && k >= 8 && k <= detail::max_extent && k % 8 == 0, where, name_,
            ": a is [", rows, ", ", k, "]; expected [1 to ", detail::max_extent, ", a multiple of 8 up to ",
            detail::max_extent, "]");
    require(call.c.rows == rows && columns >= 1 && columns <= most, where, name_, ": c is [", call.c.rows, ", ",
            columns, "]; expected [", rows, ", 1 to ", most, "]");
    require(call.groups >= 1 && call.groups <= max_groups, where, name_, ": groups = ", call.groups, "; expected 1 to ",
            max_groups);
    require(call.rows_of_group >= 0, where, name_, ": rows_of_group = ", call.rows_of_group,
            "; expected 0 (choose) or more");
    auto const of_device = [&](char const* name, int const* p, bool may_be_null) {
      require((p != nullptr || may_be_null) && reinterpret_cast<std::uintptr_t>(p) % sizeof(int) == 0, where, name_,
              ": ", name, " = ", static_cast<void const*>(p),
              "; expected an address of device memory that is a multiple of ", sizeof(int));
    };
    of_device("offsets", call.offsets, false);
    of_device("ends", call.ends, true);
    int const n = columns * per_value;
    detail::check_gemm(name_, call, k, n, where);
    bool const by_row = call.b_layout == layout::row_major;
    std::int64_t const extent = by_row ? (k - 1) * call.b.ld + n : (n - 1) * call.b.ld + k,
                       stride = call.b_group_stride;
    require(call.groups == 1 || (stride >= extent && (by_row || stride % 8 == 0)), where, name_,
            ": b_group_stride = ", stride, "; expected at least ", extent, by_row ? "" : " and a multiple of 8");
    std::uint64_t const of_b = sizeof(T) * std::uint64_t((call.groups - 1) * stride + extent),
                        of_offsets = sizeof(int) * std::uint64_t(call.groups + (call.ends ? 0 : 1)),
                        of_ends = sizeof(int) * std::uint64_t(call.groups);
    detail::operand const read[] = {{"b", call.b.data, 1, of_b, of_b},
                                    {"offsets", call.offsets, 1, of_offsets, of_offsets},
                                    {"ends", call.ends, 1, of_ends, of_ends}},
                          written[] = {detail::operand_of("c", call.c)};
    detail::check_operands(name_, written, read, where);
  }

  static constexpr int max_groups = 65535;

  char const* name_;
  gemm_launcher<T> launcher_;
};

}  // namespace fusewire
