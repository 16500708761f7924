// grouped_gemm: one GEMM for each group of rows, in one kernel launch; how many rows a group has only the device knows.
// The kernel is in grouped_gemm_kernel.hpp.
#pragma once
#include <fusewire/gemm/gemm_launcher.hpp>
#include <fusewire/ops/detail/grouped_gemm_kernel.hpp>

namespace fusewire {

/// What an operator is made with.
struct grouped_gemm_options {
  /// What is not named is chosen by the shape. split_k: 0 or 1
  gemm_tile tile = gemm_tile::automatic;
  int reserved_cus = 0;  // compute units left to other work
};

/// One call. Group g has rows offsets[g] to offsets[g + 1] - 1 of a and of c, or with `ends` rows offsets[g] to
/// ends[g] - 1, so that groups can begin at aligned rows. Both are read by the kernel. Rows of no group are neither
/// read nor written; nor are rows beyond max_rows, whatever the offsets say.
template <class T>
struct grouped_gemm_call {
  matrix<T const> a;                    // [max_rows, K], K a multiple of 8
  matrix<T const> b;                    // [K, N] of group 0; column-major: b.ld is the distance between columns
  std::int64_t b_group_stride = 0;      // elements from one group's b to the next
  matrix<T> c;                          // [max_rows, N], of a pair epilogue [max_rows, N / 2]; overlaps nothing else
  int const* offsets = nullptr;         // [groups + 1], in memory of the device; with ends [groups]
  int const* ends = nullptr;            // [groups], in memory of the device; null: offsets + 1
  int groups = 0;                       // from 1 on
  layout b_layout = layout::row_major;  // how each b lies
  /// Rows that a group is expected to have, by which a tile is chosen; 0: max_rows / groups. Any number gives right
  /// results
  int rows_of_group = 0;
};

/// Of every group g: C's rows = epilogue(A's rows * B [g] [K, N]), T in and out, fp32 in between. The epilogue sees
/// rows of the whole C; one that has of_group(g) is asked for each group's epilogue. Nobody is waited for.
template <class T>
  requires is_16_bit_float<T>
class grouped_gemm {
 public:
  /// Loads the kernels of calls without an epilogue. `w` outlives it. Fails: bad_argument.
  explicit grouped_gemm(world const& w, grouped_gemm_options const& o = {},
                        std::source_location where = std::source_location::current())
      : launcher_(w, "grouped_gemm", accepted(o.tile, where), o.reserved_cus, where) {
    prepare<identity>(where);
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <grouped_epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    launcher_.load(kernels<Epilogue>{}, where);
  }

  /// Launches one kernel, on any stream: see launch(). Can be captured in a graph, whose replays read the offsets anew;
  /// they must not overlap with other launches of the operator. Fails: bad_argument, before anything is launched; as
  /// world::poll_errors().
  template <grouped_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, grouped_gemm_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    gemm_plan const& plan = plan_for<Epilogue>(call, where);
    int const n_tiles = ceil_div(call.b.cols, plan.tile_n);
    constexpr int most = max_extent / 2;
    std::int64_t const tiles = std::int64_t(n_tiles) * max_grouped_m_tiles(call.groups, call.a.rows, plan.tile_m);
    require(tiles <= most, where, "grouped_gemm: ", call.groups, " groups of ", call.a.rows, " rows and ", call.b.cols,
            " columns can have ", tiles, " tiles; expected up to ", most);
    grouped_gemm_arguments<T> const g{
        call.c,
        {call.offsets, call.ends ? call.ends : call.offsets + 1, call.groups, call.a.rows},
        divisor(n_tiles),
        call.a.cols,
        plan.group_m};
    matrix<T const> const a[1] = {call.a};
    gemm_problem<T> p = problem_of(call);
    p.rows = call.a.rows, p.shards = 1;  // a group can have them all
    launcher_.launch(stream, kernels<Epilogue>{}, p, plan, a, {.tiles = int(tiles), .where = where}, e, g);
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <grouped_epilogue Epilogue = identity>
  std::string describe(grouped_gemm_call<T> const& call, std::source_location where = std::source_location::current()) {
    return text("grouped_gemm: ", in_words<T>(plan_for<Epilogue>(call, where), call.b_layout));
  }

 private:
  static constexpr int max_extent = detail::max_extent;

  /// operator()<M>() is the kernel with mainloop M.
  template <class Epilogue>
  struct kernels {
    template <class M>
    auto operator()() const {
      return &grouped_gemm_kernel<T, M, Epilogue>;
    }
  };

  static gemm_tile const& accepted(gemm_tile const& tile, std::source_location where) {
    require(tile.split_k == 0 || tile.split_k == 1, where, "grouped_gemm: tile = ", in_words(tile),
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

  template <class Epilogue>
  gemm_plan const& plan_for(grouped_gemm_call<T> const& call, std::source_location where) {
    using of_group = typename epilogue_of_groups<Epilogue>::type;
    check(call, columns_of_value<of_group>, where);
    return launcher_.plan(
        kernels<Epilogue>{}, problem_of(call),
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

  static void check(grouped_gemm_call<T> const& call, int per_value, std::source_location where) {
    int const rows = call.a.rows, k = call.a.cols, columns = call.c.cols, most = max_extent / per_value;
    require(rows >= 1 && rows <= max_extent && k >= 8 && k <= max_extent && k % 8 == 0, where, "grouped_gemm: a is [",
            rows, ", ", k, "]; expected [1 to ", max_extent, ", a multiple of 8 up to ", max_extent, "]");
    require(call.c.rows == rows && columns >= 1 && columns <= most, where, "grouped_gemm: c is [", call.c.rows, ", ",
            columns, "]; expected [", rows, ", 1 to ", most, "]");
    require(call.groups >= 1 && call.groups <= max_groups, where, "grouped_gemm: groups = ", call.groups,
            "; expected 1 to ", max_groups);
    require(call.rows_of_group >= 0, where, "grouped_gemm: rows_of_group = ", call.rows_of_group,
            "; expected 0 (choose) or more");
    auto const of_device = [&](char const* name, int const* p, bool may_be_null) {
      require((p != nullptr || may_be_null) && reinterpret_cast<std::uintptr_t>(p) % sizeof(int) == 0, where,
              "grouped_gemm: ", name, " = ", static_cast<void const*>(p),
              "; expected an address of device memory that is a multiple of ", sizeof(int));
    };
    of_device("offsets", call.offsets, false);
    of_device("ends", call.ends, true);
    int const n = columns * per_value;
    detail::check_gemm("grouped_gemm", call, k, n, where);
    bool const by_row = call.b_layout == layout::row_major;
    std::int64_t const extent = by_row ? (k - 1) * call.b.ld + n : (n - 1) * call.b.ld + k,
                       stride = call.b_group_stride;
    require(call.groups == 1 || (stride >= extent && (by_row || stride % 8 == 0)), where,
            "grouped_gemm: b_group_stride = ", stride, "; expected at least ", extent,
            by_row ? "" : " and a multiple of 8");
    std::uint64_t const of_b = sizeof(T) * std::uint64_t((call.groups - 1) * stride + extent),
                        of_offsets = sizeof(int) * std::uint64_t(call.groups + (call.ends ? 0 : 1)),
                        of_ends = sizeof(int) * std::uint64_t(call.groups);
    detail::operand const read[] = {{"b", call.b.data, 1, of_b, of_b},
                                    {"offsets", call.offsets, 1, of_offsets, of_offsets},
                                    {"ends", call.ends, 1, of_ends, of_ends}},
                          written[] = {detail::operand_of("c", call.c)};
    detail::check_operands("grouped_gemm", written, read, where);
  }

  static constexpr int max_groups = 65535;

  gemm_launcher<T> launcher_;
};

}  // namespace fusewire
