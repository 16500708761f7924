// ag_gemm: C [M, N] = gather(A) [M, K] * B [K, N] on every rank, one kernel launch per call. The kernels are in
// ag_gemm_kernel.hpp.
#pragma once
#include <optional>

#include <fusewire/ops/ag_gemm_call.hpp>
#include <fusewire/ops/detail/ag_gemm_launch.hpp>

namespace fusewire {

/// C [M, N] = epilogue(gather(A) [M, K] * B [K, N]) on every rank, T in and out, fp32 in between; the epilogue sees
/// rows and columns of this rank's C. Its launches are in the same order on every rank, each on any stream.
template <class T>
  requires is_16_bit_float<T>
class ag_gemm {
 public:
  /// Collective, unless o.agreed. Loads the kernels of calls without an epilogue. Fails: bad_argument; rank_mismatch
  /// when ranks have other options; out_of_space when the channel cannot hold max_m x k elements or their flags.
  ag_gemm(channel& ch, ag_gemm_options const& o, std::source_location where = std::source_location::current())
      : ch_(ch), o_(o), launcher_(ch.world(), "ag_gemm", o.tile, o.reserved_cus, where) {
    o_.local_shard_first &= !o.tile.fixed_order;
    int const ranks = ch.world().size();
    require(o.max_m >= 1 && o.max_m <= max_extent, where, "ag_gemm: max_m = ", o.max_m, "; expected 1 to ", max_extent);
    require(o.gather == gather::k || o.gather == gather::m, where, "ag_gemm: gather = ", int(o.gather),
            "; expected gather::k or gather::m");
    int const multiple = o.gather == gather::k ? 8 * ranks : 8;
    require(o.k >= 1 && o.k <= max_extent && o.k % multiple == 0, where, "ag_gemm: k = ", o.k,
            "; expected a multiple of ", multiple, " up to ", max_extent,
            o.gather == gather::k ? text(" for gather::k with ", ranks, " ranks") : "");
    require(o.comm_blocks >= 0, where, "ag_gemm: comm_blocks = ", o.comm_blocks, "; expected 0 (choose) or more");
    require(o.comm_blocks == 0 || o.tile.generic || tuned_mainloops<T>::comm == comm_placement::leading_blocks, where,
            "ag_gemm: comm_blocks = ", o.comm_blocks, "; expected 0: tuned mainloops have warps that move A, and only ",
            "those of gemm_tile::small and gemm_tile::large have blocks for it");
    require(o.chunk_k >= 0 && o.chunk_k <= max_extent && o.chunk_k % 8 == 0, where, "ag_gemm: chunk_k = ", o.chunk_k,
            "; expected 0 (choose) or a multiple of 8 up to ", max_extent);
    require(o.method == method::push || o.method == method::pull || o.method == method::automatic, where,
            "ag_gemm: method = ", int(o.method), "; expected a value of fusewire::method");
    std::size_t const inbox = max_bytes(ranks, o);
    require<out_of_space>(inbox <= ch.options().max_bytes, where, "ag_gemm: the gathered A, ", o.max_m, " x ", o.k,
                          ", takes ", inbox, " bytes; the channel's max_bytes is ", ch.options().max_bytes);
    int const flags = min_flags(ranks, o);
    require<out_of_space>(flags <= ch.options().flags_per_source, where, "ag_gemm: needs ", flags,
                          " flags per source; the channel has ", ch.options().flags_per_source);
    ch.heap().names().add_launch("ag_gemm", describe_ag_gemm);
    prepare<identity>(where);
    if (o.agreed) return;
    using named = heap::named;
    ch.heap().require_equal_on_ranks(
        "ag_gemm",
        std::array{named{"max_m", std::uint64_t(o.max_m)}, named{"k", std::uint64_t(o.k)},
                   named{"gather", std::uint64_t(o.gather)}, named{"method", std::uint64_t(o.method)},
                   named{"chunk_k", std::uint64_t(o.chunk_k)}},
        where);  // all have loaded their kernels, too
  }

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Requires: options that the
  /// constructor accepts.
  static fusewire::requirements requirements(int ranks, ag_gemm_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  /// What channel_options::max_bytes should be, at least: the gathered A.
  static std::size_t max_bytes(int, ag_gemm_options const& o) {
    return std::size_t(o.max_m) * std::size_t(o.k) * sizeof(T);
  }
  /// What channel_options::flags_per_source should be for these options: with less, down to what the constructor
  /// asks for, A travels in larger chunks. Requires: options that the constructor accepts.
  static int flags_per_source(int ranks, ag_gemm_options const& o) {
    return std::max(min_flags(ranks, o), tuned_flags(ranks, o));
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <local_epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    detail::load_no_rows(ch_.world(), where);
    launcher_.load(detail::ag_gemm_kernels<T, Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be
  /// captured in a graph. After it, a may be overwritten by work on the stream.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <class Epilogue = identity>
    requires local_epilogue<Epilogue> || call_epilogue<Epilogue>
  void operator()(hipStream_t stream, ag_gemm_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    check<detail::planned_epilogue<Epilogue>>(call, where);
    if (call.m == 0)
      return detail::launch_no_rows(
          ch_, stream, gemm_header<T>("ag_gemm", {}, unsigned(o_.gather), 0, call.b.cols, o_.k, 0, where), where);
    launch_ag_gemm(launcher_, ch_, stream, call, o_, plan_for<detail::planned_epilogue<Epilogue>>(call, where),
                   use_pull(call.m, call.b.cols), e, where);
  }

  /// Which mainloop a call takes and how A travels, in words, and why it is not a tuned one where that is so. Fails: as
  /// the call.
  template <local_epilogue Epilogue = identity>
  std::string describe(ag_gemm_call<T> const& call, std::source_location where = std::source_location::current()) {
    check<Epilogue>(call, where);
    if (call.m == 0) return "ag_gemm: no rows";
    ag_gemm_plan const& plan = plan_for<Epilogue>(call, where);
    return text("ag_gemm, ", use_pull(call.m, call.b.cols) ? "pull" : "push", ", chunks of ", plan.chunk_k,
                " columns: ", in_words<T>(plan.gemm, call.b_layout));
  }

  /// Rows of A that this rank holds, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m) const {
    accept(m, std::source_location::current());
    if (m == 0) return 0;
    return gather_map(o_.gather, m, o_.k, ch_.world().size(), 1, o_.k).rows(ch_.world().rank());
  }

 private:
  static constexpr int max_extent = detail::max_extent;
  static constexpr int fixed_chunk_k = 512;  // elements, of a fixed order

  void accept(int m, std::source_location where) const {
    require(m >= 0 && m <= o_.max_m, where, "ag_gemm: m = ", m, "; expected 0 to max_m = ", o_.max_m);
  }
  bool use_pull(int m, int n) const {
    return o_.method == method::pull ||
           (o_.method == method::automatic && pull_is_faster(m, n, o_.k, ch_.world().size(), o_.gather));
  }

  /// A plan for block_mainloop.
  static ag_gemm_plan plain_plan(ag_gemm_options const& o, int m) {
    ag_gemm_plan p{.gemm = plain_gemm_plan(o.tile, m),
                   .chunk_k = o.chunk_k  ? ceil_div(o.chunk_k, k_step) * k_step
                              : m <= 512 ? 512
                                         : 2048};
    p.chunks = o.gather == gather::k ? chunk_order::nest::by_group : chunk_order::nest::by_peer;
    return p;
  }
  static gather_map map_of(int ranks, ag_gemm_options const& o, int m, ag_gemm_plan const& p) {
    return {o.gather, m, o.k, ranks, p.gemm.tile_m, p.chunk_k};
  }

  /// A tuned plan, unless the options name a generic tile, or tuned mainloops cannot read B, or the channel has too few
  /// flags.
  template <class Epilogue>
  ag_gemm_plan const& plan_for(ag_gemm_call<T> const& call, std::source_location where) {
    gemm_problem<T> const p = detail::problem_of_gather(call, o_, ch_.world().size());
    auto const make = [&](char const* why_not, gemm_shape const& shape, auto const& groups) {
      if (!why_not)
        if (auto const tuned = tuned_plan(shape, groups)) return *tuned;
      ag_gemm_plan plain = plain_plan(o_, call.m);
      plain.gemm.why_not_tuned = why_not ? why_not : "the channel has too few flags for it, or its chunks are too many";
      return plain;
    };
    return launcher_.plan(detail::ag_gemm_kernels<T, Epilogue>{}, p, make, where);
  }
  template <class Groups>
  std::optional<ag_gemm_plan> tuned_plan(gemm_shape const& shape, Groups const& groups) const {
    int const ranks = ch_.world().size(), m = shape.rows;
    auto p = tuned_ag_gemm_plan(shape, ranks, o_.gather, use_pull(m, shape.n), o_.comm_blocks, groups);
    if (!p) return p;
    bool const fixed = o_.tile.fixed_order;  // then chunks, whose order is that of the sums, are as for max_m rows
    if (o_.chunk_k > 0 || fixed) p->chunk_k = ceil_div(o_.chunk_k > 0 ? o_.chunk_k : fixed_chunk_k, k_step) * k_step;
    int const flags = ch_.options().flags_per_source, most = fixed ? o_.max_m : m;
    while (map_of(ranks, o_, most, *p).flags_per_source() > flags && p->chunk_k < o_.k) p->chunk_k *= 2;
    gather_map const map = map_of(ranks, o_, most, *p);
    if (with_mainloop<T>(p->gemm, shape.b_layout,
                         [&]<class M>() { return M::traits.slicing == k_slicing::interleaved; }))
      p->gemm.split_k = std::min(p->gemm.split_k, map.k_chunks() * shape.k_shards);
    // The shards' rows, one below the other, and the chunks of all are numbered with an int.
    bool const fits = map.flags_per_source() <= flags && map.m <= max_extent / map.ranks &&
                      std::int64_t(map.max_m_tiles()) * map.k_chunks() <= max_extent / map.ranks;
    return fits ? p : std::nullopt;
  }

  /// Flags that the mainloops need which take any call.
  static int min_flags(int ranks, ag_gemm_options const& o) {
    std::int64_t flags = 0;
    for (int m = 1;; m = m > o.max_m / 2 ? o.max_m : 2 * m) {
      gather_map const g = map_of(ranks, o, m, plain_plan(o, m));
      flags = std::max(flags, std::int64_t(g.m_tiles()) * g.k_chunks());
      if (m >= o.max_m) return int(std::min(flags, std::int64_t(max_extent)));
    }
  }
  /// Enough for the chunks of any tuned plan.
  static int tuned_flags(int ranks, ag_gemm_options const& o) {
    if constexpr (!tuned_mainloops<T>::any) return 0;
    return gather_map(o.gather, o.max_m, o.k, ranks, o.max_m <= 64 ? 64 : 128,
                      std::max(k_step, ceil_div(o.chunk_k, k_step) * k_step))
        .flags_per_source();
  }

  template <class Epilogue>
  void check(ag_gemm_call<T> const& call, std::source_location where) const {
    int const rank = ch_.world().rank();
    accept(call.m, where);
    gather_map const g = map_of(ch_.world().size(), o_, std::max(1, call.m), plain_plan(o_, call.m));
    int const rows = call.m == 0 ? 0 : g.rows(rank), cols = g.cols();
    require(call.a.rows == rows && call.a.cols == cols, where, "ag_gemm: a is [", call.a.rows, ", ", call.a.cols,
            "]; expected [", rows, ", ", cols, "] on rank ", rank, " (",
            o_.gather == gather::k ? "gather::k: M, K/W" : "gather::m: rows of this rank, K", ")");
    constexpr int most = max_extent / columns_of_value<Epilogue>;
    int const columns = call.c.cols;
    require(columns >= 1 && columns <= most && call.c.rows == call.m, where, "ag_gemm: c is [", call.c.rows, ", ",
            columns, "]; expected [", call.m, ", 1 to ", most, "]");
    int const n = columns * columns_of_value<Epilogue>;
    detail::check_gemm("ag_gemm", call, o_.k, n, where);
    std::int64_t const tiles = std::int64_t(ceil_div(call.m, small_tile::config.block_m)) *
                               ceil_div(n, small_tile::config.block_n),
                       chunks = std::int64_t(g.max_m_tiles()) * g.k_chunks() * g.ranks;
    require(tiles <= max_extent && chunks <= max_extent, where, "ag_gemm: c is [", call.m, ", ", n, "], up to ", tiles,
            " tiles, and A travels in ", chunks, " chunks; expected up to ", max_extent, " of each");
  }

  channel& ch_;
  ag_gemm_options o_;
  gemm_launcher<T, ag_gemm_plan> launcher_;
};

}  // namespace fusewire
