// gemm_rs: C of rank r = rows of rank r of the sum over ranks of A [M, K] * B [K, N], one kernel launch per call. The
// kernel is in gemm_rs_kernel.hpp.
#pragma once
#include <algorithm>

#include <fusewire/ops/detail/gemm_rs_kernel.hpp>
#include <fusewire/ops/detail/fused_gemm_operator.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct gemm_rs_options {
  int max_m = 0;  // capacity: rows of A
  int max_n = 0;  // capacity: columns of B
  int k = 0;      // columns of A, a multiple of 8: this rank's share of what is summed, as large on every rank
  gemm_tile tile = gemm_tile::automatic;  // what is not named is chosen by the shape
  int reserved_cus = 0;                   // compute units left to other work
  /// True: the caller knows that the ranks' options are equal. The constructor is local then, and compares nothing.
  /// Ranks that are threads make their operators before any of them launches: to load a kernel may wait for another's
  bool agreed = false;
};

/// One call. All ranks pass the same m, n and layout, and b's with the same alignment.
template <class T>
struct gemm_rs_call {
  matrix<T const> a;  // [M, K]
  matrix<T const> b;  // [K, N]; column-major: b.ld is the distance between columns
  /// [rows of this rank, N]: rows [r R, (r + 1) R) of the sum, R = ceil(M / W); the last ranks may have fewer, or none;
  /// overlaps neither a nor b
  matrix<T> c;
  int m = 0;                            // rows of A, 0 to max_m
  layout b_layout = layout::row_major;  // how b lies
  /// True: no unfinished work on the stream writes b. It may be loaded before that work ends
  bool b_is_constant = false;
};

/// Every rank's partial sums are rounded to Partial, T or float, and travel so; they are added in fp32, in the order of
/// ranks: the same bits in every run. docs/operators.md has the error bounds. The epilogue sees the sum, with the row
/// counted within this rank's rows.
template <class T, class Partial = T>
  requires std::is_same_v<Partial, T> || std::is_same_v<Partial, float>
class gemm_rs : fused_gemm_operator<T, gemm_rs_options> {
  using base = fused_gemm_operator<T, gemm_rs_options>;
  using base::ch_, base::o_;

 public:
  /// Collective, unless o.agreed. Loads the kernels of calls without an epilogue. Fails: bad_argument; rank_mismatch
  /// when ranks have other options; out_of_space when the channel cannot hold the sums or their flags.
  gemm_rs(channel& ch, gemm_rs_options const& o, std::source_location where = std::source_location::current())
      : base("gemm_rs", "gemm_rs", ch, o, where) {
    base::require_room(max_bytes(ch.world().size(), o), flags_per_source(ch.world().size(), o), where);
    ch.heap().names().add_launch("gemm_rs", [](std::uint64_t const(&what)[launch_words]) {
      return describe_gemm(variant_of(what) == sizeof(float) ? "gemm_rs fp32" : "gemm_rs", what);
    });
    prepare<identity>(where);
    if (!o.agreed) base::require_equal_on_ranks(where);
  }

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Requires: options that the
  /// constructor accepts.
  static fusewire::requirements requirements(int ranks, gemm_rs_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, gemm_rs_options const& o) {
    return base::template reduce_scatter_bytes<Partial>(o, ranks);
  }
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int ranks, gemm_rs_options const& o) { return base::reduce_scatter_flags(o, ranks); }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    base::template load<Epilogue>(kernels<Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be
  /// captured in a graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <call_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_rs_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    base::check(call, rows(call.m, where), 1, where);
    base::start(stream, kernels<detail::planned_epilogue<Epilogue>>{}, call, base::shards_of(call.m), sizeof(Partial),
                e, where);
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <epilogue Epilogue = identity>
  std::string describe(gemm_rs_call<T> const& call, std::source_location where = std::source_location::current()) {
    base::check(call, rows(call.m, where), 1, where);
    return text("gemm_rs: ",
                base::template plan_in_words<Epilogue>(kernels<Epilogue>{}, call, base::shards_of(call.m), where));
  }

  /// Rows of C that this rank owns, for a call with `m` rows in all. Fails: bad_argument.
  int rows(int m, std::source_location where = std::source_location::current()) const {
    base::accept(m, where);
    return m == 0 ? 0 : row_shards(m, ch_.world().size(), 1).rows(ch_.world().rank());
  }

 private:
  template <class Epilogue>
  struct kernels {
    static constexpr char const* name = "gemm_rs_kernel";
    template <class M>
    auto operator()() const {
      return &gemm_rs_kernel<T, M, Epilogue, Partial>;
    }
  };
};

}  // namespace fusewire
