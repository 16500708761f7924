// gemm_all_scatter: C [M, W n] on every rank, of which rank r computes columns [r n, (r + 1) n) = A [M, K] * B [K, n],
// one kernel launch per call. The kernel is in gemm_all_scatter_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/gemm_all_scatter_kernel.hpp>
#include <fusewire/ops/detail/fused_gemm_operator.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct gemm_all_scatter_options {
  int max_m = 0;                          // capacity: rows of A
  int max_n = 0;                          // capacity: columns of B, one rank's
  int k = 0;                              // columns of A, a multiple of 8
  gemm_tile tile = gemm_tile::automatic;  // what is not named is chosen by the shape
  int reserved_cus = 0;                   // compute units left to other work
  /// True: the caller knows that the ranks' options are equal. The constructor is local then, and compares nothing.
  /// Ranks that are threads make their operators before any of them launches: to load a kernel may wait for another's
  bool agreed = false;
};

/// One call. All ranks pass the same m, n and layout, and b's with the same alignment.
template <class T>
struct gemm_all_scatter_call {
  matrix<T const> a;                    // [M, K]
  matrix<T const> b;                    // [K, n]; column-major: b.ld is the distance between columns
  matrix<T> c;                          // [M, W n]; overlaps neither a nor b
  int m = 0;                            // rows of A, 0 to max_m
  layout b_layout = layout::row_major;  // how b lies
  /// True: no unfinished work on the stream writes b. It may be loaded before that work ends
  bool b_is_constant = false;
};

/// The epilogue sees this rank's columns, counted from 0; every rank gets its results, the same bits in every run.
template <class T>
class gemm_all_scatter : fused_gemm_operator<T, gemm_all_scatter_options> {
  using base = fused_gemm_operator<T, gemm_all_scatter_options>;
  using base::ch_, base::o_;

 public:
  /// Collective, unless o.agreed. Loads the kernels of calls without an epilogue. Fails: bad_argument; rank_mismatch
  /// when ranks have other options; out_of_space when the channel cannot hold the products or their flags.
  gemm_all_scatter(channel& ch, gemm_all_scatter_options const& o,
                   std::source_location where = std::source_location::current())
      : base("gemm_all_scatter", "gemm_as", ch, o, where) {
    base::require_room(max_bytes(ch.world().size(), o), flags_per_source(ch.world().size(), o), where);
    ch.heap().names().add_launch(
        "gemm_as", [](std::uint64_t const(&what)[launch_words]) { return describe_gemm("gemm_all_scatter", what); });
    prepare<identity>(where);
    if (!o.agreed) base::require_equal_on_ranks(where);
  }

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Requires: options that the
  /// constructor accepts.
  static fusewire::requirements requirements(int ranks, gemm_all_scatter_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, gemm_all_scatter_options const& o) {
    return std::size_t(ranks) * std::size_t(o.max_m) * std::size_t(inbox_pitch<T>(o.max_n)) * sizeof(T);
  }
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int, gemm_all_scatter_options const& o) { return base::max_flags(o, o.max_m); }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    base::template load<Epilogue>(kernels<Epilogue>{}, where);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be
  /// captured in a graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <call_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_all_scatter_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    base::accept(call.m, where);
    base::check(call, call.m, ch_.world().size(), where);
    base::start(stream, kernels<detail::planned_epilogue<Epilogue>>{}, call, 1, 0, e, where);
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <epilogue Epilogue = identity>
  std::string describe(gemm_all_scatter_call<T> const& call,
                       std::source_location where = std::source_location::current()) {
    base::accept(call.m, where);
    base::check(call, call.m, ch_.world().size(), where);
    return "gemm_all_scatter: " + base::template plan_in_words<Epilogue>(kernels<Epilogue>{}, call, 1, where);
  }

 private:
  template <class Epilogue>
  struct kernels {
    static constexpr char const* name = "gemm_all_scatter_kernel";
    template <class M>
    auto operator()() const {
      return &gemm_all_scatter_kernel<T, M, Epilogue>;
    }
  };
};

}  // namespace fusewire
