// gemm_ar: C [M, N] = the sum over ranks of A [M, K] * B [K, N], on every rank, one kernel launch per call. The kernels
// are in gemm_ar_kernel.hpp.
#pragma once
#include <algorithm>

#include <fusewire/ops/detail/gemm_ar_kernel.hpp>
#include <fusewire/ops/detail/fused_gemm_operator.hpp>
#include <fusewire/ops/reduce_algorithm.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct gemm_ar_options {
  int max_m = 0;  // capacity: rows of A
  int max_n = 0;  // capacity: columns of B
  int k = 0;      // columns of A, a multiple of 8: this rank's share of what is summed, as large on every rank
  fusewire::reduce_algorithm shots =
      reduce_algorithm::automatic;        // one or two; automatic chooses by the number of rows
  gemm_tile tile = gemm_tile::automatic;  // what is not named is chosen by the shape
  int reserved_cus = 0;                   // compute units left to other work
  /// True: the caller knows that the ranks' options are equal. The constructor is local then, and compares nothing.
  /// Ranks that are threads make their operators before any of them launches: to load a kernel may wait for another's
  bool agreed = false;
};

/// One call. All ranks pass the same m, n and layout, and b's with the same alignment.
template <class T>
struct gemm_ar_call {
  matrix<T const> a;                    // [M, K]
  matrix<T const> b;                    // [K, N]; column-major: b.ld is the distance between columns
  matrix<T> c;                          // [M, N]; overlaps neither a nor b
  int m = 0;                            // rows of A, 0 to max_m
  layout b_layout = layout::row_major;  // how b lies
  /// True: no unfinished work on the stream writes b. It may be loaded before that work ends
  bool b_is_constant = false;
};

/// Every rank's partial sums are rounded to Partial, T or float, and travel so; they are added in fp32, in the order of
/// ranks: the same bits on every rank and in every run. docs/operators.md has the error bounds. The epilogue sees the
/// sum: with two shots the owner's epilogue does, and every rank gets its result.
template <class T, class Partial = T>
  requires std::is_same_v<Partial, T> || std::is_same_v<Partial, float>
class gemm_ar : fused_gemm_operator<T, gemm_ar_options> {
  using base = fused_gemm_operator<T, gemm_ar_options>;
  using base::ch_, base::o_;

 public:
  /// Up to as many rows `automatic` takes one shot: measured on two H200s, projected for more ranks
  /// (docs/decisions/reductions.md).
  static constexpr int one_shot_rows(int ranks) { return ranks <= 2 ? 128 : 8; }

  /// Collective, unless o.agreed. Loads the kernels of calls without an epilogue. Fails: bad_argument; rank_mismatch
  /// when ranks have other options; out_of_space when the channel cannot hold the sums or their flags.
  gemm_ar(channel& ch, gemm_ar_options const& o, std::source_location where = std::source_location::current())
      : base("gemm_ar", "gemm_ar", ch, o, where) {
    require(o.shots == reduce_algorithm::automatic || o.shots == reduce_algorithm::one_shot ||
                o.shots == reduce_algorithm::two_shot,
            where, "gemm_ar: shots = ", int(o.shots), "; expected a value of fusewire::reduce_algorithm");
    base::require_room(max_bytes(ch.world().size(), o), flags_per_source(ch.world().size(), o), where);
    ch.heap().names().add_launch("gemm_ar", [](std::uint64_t const(&what)[launch_words]) {
      unsigned const variant = variant_of(what);  // shots, bytes of a partial sum
      return describe_gemm(
          text("gemm_ar", variant >> 8 == sizeof(float) ? " fp32" : "", variant & 1 ? " one-shot" : " two-shot"), what);
    });
    prepare<identity>(where);
    if (!o.agreed) base::require_equal_on_ranks(where, int(o.shots));
  }

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Requires: options that the
  /// constructor accepts.
  static fusewire::requirements requirements(int ranks, gemm_ar_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, gemm_ar_options const& o) {
    std::size_t const results = std::size_t(o.max_m) * std::size_t(inbox_pitch<T>(o.max_n)) * sizeof(T);
    return std::max(
        base::template bytes_of_partials<Partial>(o, ranks, one_shot_max(ranks, o)),
        o.shots == reduce_algorithm::one_shot ? 0 : base::template reduce_scatter_bytes<Partial>(o, ranks) + results);
  }
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int ranks, gemm_ar_options const& o) {
    return std::max(one_shot_max(ranks, o) > 0 ? base::max_flags(o, one_shot_max(ranks, o)) : 0,
                    o.shots == reduce_algorithm::one_shot ? 0 : 2 * base::reduce_scatter_flags(o, ranks));
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    if (o_.shots != reduce_algorithm::two_shot) base::template load<Epilogue>(one_shot<Epilogue>{}, where);
    if (o_.shots != reduce_algorithm::one_shot) base::template load<Epilogue>(two_shot<Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be
  /// captured in a graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <call_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_ar_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    base::accept(call.m, where);
    base::check(call, call.m, 1, where);
    int const ranks = ch_.world().size();
    constexpr unsigned partial = sizeof(Partial) << 8;
    if (call.m <= one_shot_max(ranks, o_))
      base::start(stream, one_shot<detail::planned_epilogue<Epilogue>>{}, call, 1, 1 | partial, e, where);
    else
      base::start(stream, two_shot<detail::planned_epilogue<Epilogue>>{}, call, base::shards_of(call.m), partial, e,
                  where);
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <epilogue Epilogue = identity>
  std::string describe(gemm_ar_call<T> const& call, std::source_location where = std::source_location::current()) {
    base::accept(call.m, where);
    base::check(call, call.m, 1, where);
    if (call.m <= one_shot_max(ch_.world().size(), o_))
      return "gemm_ar, one-shot: " + base::template plan_in_words<Epilogue>(one_shot<Epilogue>{}, call, 1, where);
    return "gemm_ar, two-shot: " +
           base::template plan_in_words<Epilogue>(two_shot<Epilogue>{}, call, base::shards_of(call.m), where);
  }

 private:
  template <class Epilogue>
  struct one_shot {
    static constexpr char const* name = "gemm_ar_one_shot";
    template <class M>
    auto operator()() const {
      return &gemm_ar_one_shot<T, M, Epilogue, Partial>;
    }
  };
  template <class Epilogue>
  struct two_shot {
    static constexpr char const* name = "gemm_ar_two_shot";
    template <class M>
    auto operator()() const {
      return &gemm_ar_two_shot<T, M, Epilogue, Partial>;
    }
  };

  static int one_shot_max(int ranks, gemm_ar_options const& o) {
    return o.shots == reduce_algorithm::one_shot   ? o.max_m
           : o.shots == reduce_algorithm::two_shot ? 0
                                                   : std::min(o.max_m, one_shot_rows(ranks));
  }
};

}  // namespace fusewire
