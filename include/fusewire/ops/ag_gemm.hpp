// ag_gemm: C [M, N] = gather(A) [M, K] * B [K, N] on every rank, one kernel launch per call. The kernels are in
// ag_gemm_kernel.hpp.
#pragma once
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
    of_ranks().template check_options<T>(where);
    std::size_t const inbox = max_bytes(ranks, o);
    require<out_of_space>(inbox <= ch.options().max_bytes, where, "ag_gemm: the gathered A, ", o.max_m, " x ", o.k,
                          ", takes ", inbox, " bytes; the channel's max_bytes is ", ch.options().max_bytes);
    int const flags = of_ranks().min_flags();
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
    detail::ag_gemm_ranks const all{"ag_gemm", o, ranks, 0, 0};
    return std::max(all.min_flags(), all.template tuned_flags<T>());
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
    of_ranks().template check_call<detail::planned_epilogue<Epilogue>>(call, where);
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
    of_ranks().template check_call<Epilogue>(call, where);
    if (call.m == 0) return "ag_gemm: no rows";
    ag_gemm_plan const& plan = plan_for<Epilogue>(call, where);
    return text("ag_gemm, ", use_pull(call.m, call.b.cols) ? "pull" : "push", ", chunks of ", plan.chunk_k,
                " columns: ", in_words<T>(plan.gemm, call.b_layout));
  }

  /// Rows of A that this rank holds, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m) const { return of_ranks().rows(m, std::source_location::current()); }

 private:
  detail::ag_gemm_ranks of_ranks() const {
    return {"ag_gemm", o_, ch_.world().size(), ch_.world().rank(), ch_.options().flags_per_source};
  }
  bool use_pull(int m, int n) const {
    return o_.method == method::pull ||
           (o_.method == method::automatic && pull_is_faster(m, n, o_.k, ch_.world().size(), o_.gather));
  }
  template <class Epilogue>
  ag_gemm_plan const& plan_for(ag_gemm_call<T> const& call, std::source_location where) {
    return of_ranks().plan(
        launcher_, detail::ag_gemm_kernels<T, Epilogue>{}, call, [&](int n) { return use_pull(call.m, n); }, where);
  }

  channel& ch_;
  ag_gemm_options o_;
  gemm_launcher<T, ag_gemm_plan> launcher_;
};

}  // namespace fusewire
