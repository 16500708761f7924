// The host side of kernels that multiply tiles: which mainloop a product takes, the kernels' code, and their launch.
// Every operator here that multiplies has a gemm_launcher, and so can your own kernels: a source, a sink or both,
// with the tuned mainloops.
//
//   product --plan()--> mainloop, tile, blocks that share a tile
//           --launch()--> kernel with that mainloop, what it multiplies, as many blocks as fit and have something to do
#pragma once
#include <map>
#include <string>
#include <tuple>

#include <fusewire/gemm/mainloop_dispatch.hpp>
#include <fusewire/gemm/matrix_operand.hpp>
#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/launch.hpp>
#include <fusewire/ranks/log.hpp>

namespace fusewire {

/// What a launch multiplies: C [shards x rows, N] = A [shards x rows, K] * B [K, N].
template <class T>
struct gemm_problem {
  int rows = 0;                         // of a shard
  matrix<T const> b;                    // [K, N], K a multiple of 8; column-major: b.ld is the distance between columns
  layout b_layout = layout::row_major;  // how b lies
  std::int64_t a_ld = 0;                // of the launch's buffers of A, the largest ld
  /// True: no unfinished work on the stream writes b. It may be loaded before that work ends
  bool b_is_constant = false;
  int shards = 1;                   // the rows of each are cut into tiles by themselves
  int k_shards = 1;                 // multiplied one after the other, each in whole steps
  int groups = 0;                   // of a grouped GEMM, whose tiles multiply the B of their group; 0: there is one B
  std::int64_t b_group_stride = 0;  // elements from one group's B to the next

  /// As plans are made for it.
  gemm_shape shape() const { return {rows, shards, b.cols, b.rows, k_shards, b_layout}; }
  /// B as mainloops take it.
  b_operand<T> operand() const { return {b.data, b.ld, b_layout, b.cols, groups, b_group_stride}; }
};

/// What the blocks of a launch have to do.
struct tile_work {
  int tiles = 0;              // of the kernel's tile scheduler, or more
  int comm_workers = 0;       // groups that communicate, limited to the free blocks, but at least 1; 0: none
  bool comm_exactly = false;  // leading blocks communicate: exactly comm_workers of them
  int min_blocks = 1;         // if they fit
  std::source_location where = std::source_location::current();  // who launches, for messages
};

/// A header for a launch with a plan: `name` (1 to 8 letters), `operator_bits` (what else ranks must agree on, 16
/// bits), and the extents. Ranks with different plans are told so. describe_gemm() reads it. Fails: bad_argument.
template <class T>
launch_header gemm_header(char const* name, gemm_plan const& plan, unsigned operator_bits, int m, int n, int k,
                          int more = 0, std::source_location where = std::source_location::current()) {
  std::uint64_t const variant = std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(operator_bits & 0xffff) << 8 |
                                std::uint64_t(plan.tile_m / 8) << 24 | std::uint64_t(plan.tile_n / 8) << 32 |
                                std::uint64_t(plan.split_k) << 40;
  launch_header h =
      make_header(name, variant, std::uint64_t(m), std::uint64_t(n), std::uint64_t(k), std::uint64_t(more), where);
  h.equal_grids = 0;  // a rank with less room takes fewer
  return h;
}
/// What gemm_header() was told as `operator_bits`.
constexpr unsigned variant_of(std::uint64_t const (&what)[launch_words]) { return unsigned(what[1] >> 8 & 0xffff); }
/// A launch in words, from what its header says; for name_table::add_launch().
inline std::string describe_gemm(std::string const& name, std::uint64_t const (&what)[launch_words]) {
  auto const byte = [&](int i) { return what[1] >> 8 * i & 255; };
  return text(name, byte(0) ? " f16" : " bf16", ", m = ", what[2], ", n = ", what[3], ", k = ", what[4], ", tile ",
              byte(3) * 8, " x ", byte(4) * 8, byte(5) > 1 ? text(", split-k ", byte(5)) : "");
}

/// Plans, loads and launches kernels that multiply. Such a kernel is a template whose parameter is a mainloop; its
/// parameters are any arguments, then the mainloop's operands, then an epilogue. It is named by a function object that
/// leads from a mainloop to it:
///
///     auto const kernel_of = [&]<class M>() { return &my_kernel<M>; };  // without the &, nvcc warns
///
/// Plan: what is chosen for a product; one with more in it than a gemm_plan is made by a function of the caller's.
template <class T, class Plan = gemm_plan>
  requires is_16_bit_float<T>
class gemm_launcher {
 public:
  /// `name`: what messages begin with. `w` outlives the launcher. Fails: bad_argument; runtime_failure.
  gemm_launcher(world const& w, std::string name, gemm_tile const& tile = gemm_tile::automatic, int reserved_cus = 0,
                std::source_location where = std::source_location::current())
      : w_(w), name_(std::move(name)), tile_(tile), reserved_cus_(reserved_cus), memory_(w, where) {
    bool const known = tile.generic ? tile == gemm_tile::small || tile == gemm_tile::large
                                    : tile.m >= 0 && tile.n >= 0 && tile.split_k >= 0;
    require(
        known, where, name_, ": tile = ", in_words(tile), tile.generic ? ", generic" : "",
        "; expected gemm_tile::small, gemm_tile::large, or a tile of a tuned mainloop, whose members are not negative");
    detail::require_reserved(name_.c_str(), w, reserved_cus, where);
  }

  /// Loads the kernels with all mainloops that plans may name, before the first launch that can wait; see
  /// load_kernel().
  template <class Kernel>
  void load(Kernel const& kernel_of, std::source_location where = std::source_location::current()) const {
    for_each_mainloop<T>(tile_, [&]<class M>() {
      load_kernel(w_, kernel_of.template operator()<M>(), M::traits.threads, M::shared_bytes(), where);
    });
  }

  /// The plan of a product, made once and kept: a tuned mainloop if there is one for it. The ranks of a launch get the
  /// same plan where their devices are alike. Fails: bad_argument.
  template <class Kernel>
  Plan const& plan(Kernel const& kernel_of, gemm_problem<T> const& p,
                   std::source_location where = std::source_location::current()) {
    return plan(
        kernel_of, p,
        [&](char const* why_not, gemm_shape const& shape, auto const& groups) {
          if (!why_not)
            if (auto const tuned = tuned_gemm_plan(shape, groups)) return *tuned;
          gemm_plan g = plain_gemm_plan(tile_, p.rows);
          g.why_not_tuned = why_not;
          return g;
        },
        where);
  }
  /// The same of a plan that make(why_not, shape, groups) returns. why_not: why a tuned mainloop cannot read the
  /// product; null if it can. shape: of the product, with the tile that the caller names. groups(g): how many groups of
  /// the g.split_k blocks that share a tile are co-resident with gemm_plan g.
  template <class Kernel, class Make>
  Plan const& plan(Kernel const& kernel_of, gemm_problem<T> const& p, Make const& make, std::source_location where) {
    int const n = p.b.cols, k = p.b.rows;
    require(p.rows >= 1 && p.shards >= 1 && n >= 1 && k >= 8 && k % 8 == 0, where, name_, ": a product of ", p.shards,
            " x [", p.rows, ", ", k, "] and [", k, ", ", n, "]; expected k a multiple of 8 and none of them 0");
    require(std::int64_t(p.shards) * ceil_div(p.rows, small_tile::config.block_m) *
                    ceil_div(n, small_tile::config.block_n) <=
                detail::max_extent,
            where, name_, ": c is [", std::int64_t(p.shards) * p.rows, ", ", n, "], in too many tiles; expected up to ",
            detail::max_extent);
    detail::check_b(name_.c_str(), p.b, p.b_layout, k, n, where);
    char const* const why_not = why_not_tuned(tile_, p.a_ld, p.operand(), k);
    key_of_plan const key{detail::address_of(kernel_of.template operator()<block_mainloop<T, small_tile>>()),
                          p.rows,
                          p.shards,
                          n,
                          k,
                          p.k_shards,
                          p.b_layout,
                          why_not == nullptr};
    auto it = plans_.find(key);
    if (it != plans_.end()) return it->second;
    gemm_shape shape = p.shape();
    shape.tile = tile_;
    Plan const made = make(why_not, shape, [&](gemm_plan const& g) {
      return with_mainloop<T>(
          g, p.b_layout, [&]<class M>() { return groups<M>(kernel_of.template operator()<M>(), g.split_k, where); });
    });
    gemm_plan const& g = plan_of(made);
    require(!tile_.names_tuned() || g.tuned, where, name_, ": tile = ", in_words(tile_), " for a product of ", p.shards,
            " x [", p.rows, ", ", k, "] and [", k, ", ", n, "]: ",
            g.why_not_tuned ? g.why_not_tuned
                            : text("there is no such plan; tiles for this B are ", tuned_tiles_in_words<T>(p.b_layout),
                                   ", those of up to 64 rows for as few rows of ",
                                   "A, and blocks that share tiles must be co-resident",
                                   tile_.fixed_order ? "; fixed_order leaves out those of up to 64 rows, those of 256, "
                                                       "and split-k"
                                                     : ""));
    detail::log(w_.rank(), [&] {
      return text(name_, ": plan of ", p.shards, " x [", p.rows, ", ", k, "] and [", k, ", ", n,
                  "]: ", in_words<T>(g, p.b_layout));
    });
    return plans_.emplace(key, made).first->second;
  }

  /// How many blocks of the plan's kernel are co-resident. Fails: bad_argument where none is.
  template <class Kernel>
  int resident(Kernel const& kernel_of, gemm_problem<T> const& p, gemm_plan const& plan,
               std::source_location where = std::source_location::current()) const {
    return with_mainloop<T>(plan, p.b_layout, [&]<class M>() {
      return blocks<M>(kernel_of.template operator()<M>(), plan.split_k, where);
    });
  }

  /// Launches the kernel with the plan's mainloop, as many blocks as fit and have something to do. a: the launch's
  /// buffers of A, as the source numbers them, each with whole 16 bytes in its rows. arguments: what the kernel's first
  /// parameters are. Can be captured in a graph. Launches of one launcher must not overlap.
  /// Requires: plan is p's.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <class Kernel, int Buffers, class Epilogue, class... P>
  void launch(hipStream_t stream, Kernel const& kernel_of, gemm_problem<T> const& p, gemm_plan const& plan,
              matrix<T const> const (&a)[Buffers], tile_work const& work, Epilogue const& epilogue,
              P const&... arguments) const {
    auto const where = work.where;
    for (matrix<T const> const& m : a) {
      detail::check_matrix(name_.c_str(), "a", m.data, m.ld, m.cols, 8, where);
      require(m.ld <= p.a_ld, where, name_, ": a.ld = ", m.ld, "; expected up to a_ld = ", p.a_ld, " of the product");
    }
    with_mainloop<T>(plan, p.b_layout, [&]<class M>() {
      auto const kernel = kernel_of.template operator()<M>();
      int const split_k = plan.split_k, tiles = work.tiles, fit = blocks<M>(kernel, split_k, where),
                at_once = groups<M>(kernel, split_k, where);
      require(split_k == 1 || tiles <= at_once, where, name_, ": ", split_k, " blocks for each of ", tiles, " tiles; ",
              at_once, " groups of them are co-resident");
      auto x = make_operands<M>(a, p.operand(), p.b.rows, p.b_is_constant, plan, p.rows,
                                last_tile_rows(p.rows, M::traits.tile_m), memory_, where);
      int count;
      if constexpr (M::traits.comm == comm_placement::leading_blocks) {
        int const room = split_k > 1 ? fit - tiles * split_k : fit / 4, wanted = work.comm_workers,
                  comm = wanted == 0 || work.comm_exactly ? wanted : std::max(1, std::min(wanted, room));
        // With split-k all work items must be resident: the k slice of a block is that of its first item
        require(split_k == 1 || comm + tiles * split_k <= fit, where, name_, ": ", comm,
                " blocks that communicate and ", tiles, " tiles with split-k ", split_k, "; ", fit,
                " blocks are co-resident");
        set_blocks(x, comm, tiles);
        count = std::min(fit, std::max(work.min_blocks, comm + tiles * split_k));
      } else {
        count = std::min(at_once, std::max(tiles, ceil_div(work.comm_workers, split_k))) * split_k;
      }
      fusewire::launch(
          w_, stream,
          {.blocks = count,
           .threads = M::traits.threads,
           .shared_bytes = M::shared_bytes(),
           .cluster = M::traits.clusters ? split_k : 1,
           .programmatic = M::traits.comm == comm_placement::idle_warps && detail::may_be_early(reserved_cus_),
           .where = where},
          kernel, arguments..., x, epilogue);
    });
  }

  /// At least as many as the k slices of all tiles of a shard of C of up to `rows` rows and n columns, whatever the
  /// plan: so many flags, if each slice has one.
  static int max_tile_slices(int rows, int n, gemm_tile const& tile = gemm_tile::automatic) {
    std::int64_t count = 0;
    for (int const r : {rows, std::min(rows, 64)}) {  // launches with fewer rows have smaller tiles
      gemm_plan const p = plain_gemm_plan(tile, r);
      count = std::max({count, std::int64_t(ceil_div(r, p.tile_m)) * ceil_div(n, p.tile_n),
                        std::int64_t(tuned_mainloops<T>::max_slices(r, n))});
    }
    return int(std::min<std::int64_t>(detail::max_extent, count));
  }

 private:
  static gemm_plan const& plan_of(gemm_plan const& p) { return p; }
  static gemm_plan const& plan_of(auto const& p) { return p.gemm; }

  using key_of_plan = std::tuple<void const*, int, int, int, int, int, layout, bool>;

  /// Groups of `split_k` blocks that share a tile, resident together: clusters, if the mainloop has them.
  template <class M, class... P>
  int groups(void (*kernel)(P...), int split_k, std::source_location where) const {
    return resident_groups<M>(w_, kernel, split_k, reserved_cus_, where);
  }
  template <class M, class... P>
  int blocks(void (*kernel)(P...), int split_k, std::source_location where) const {
    int const cluster = M::traits.clusters ? split_k : 1, fit = groups<M>(kernel, cluster, where) * cluster;
    detail::require_resident(name_.c_str(), w_, fit, M::traits.threads, M::shared_bytes(), reserved_cus_, where);
    return fit;
  }

  world const& w_;
  std::string name_;
  gemm_tile tile_;
  int reserved_cus_;
  typename tuned_mainloops<T>::memory memory_;
  std::map<key_of_plan, Plan> plans_;  // by kernel, shape, and whether a tuned mainloop may be
};

}  // namespace fusewire
