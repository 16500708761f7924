// gemm: C [M, N] = A [M, K] * B [K, N] on one rank: the mainloop alone, without a channel. The kernel is in
// gemm_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/gemm_launch.hpp>

namespace fusewire {

/// What an operator is made with.
struct gemm_options {
  gemm_tile tile = gemm_tile::automatic;  // what is not named is chosen by the shape
  int reserved_cus = 0;                   // compute units left to other work
};

/// One call.
template <class T>
struct gemm_call {
  matrix<T const> a;                    // [M, K], K a multiple of 8
  matrix<T const> b;                    // [K, N]; column-major: b.ld is the distance between columns
  matrix<T> c;                          // [M, N], of a pair epilogue [M, N / 2]; overlaps neither a nor b
  layout b_layout = layout::row_major;  // how b lies
  /// True: no unfinished work on the stream writes b. It may be loaded before that work ends
  bool b_is_constant = false;
};

/// C [M, N] = epilogue(A [M, K] * B [K, N]) of one rank, T in and out, fp32 in between. Nobody is waited for.
template <class T>
  requires is_16_bit_float<T>
class gemm {
 public:
  /// Loads the kernels of calls without an epilogue. `w` outlives it. Fails: bad_argument.
  explicit gemm(world const& w, gemm_options const& o = {},
                std::source_location where = std::source_location::current())
      : launcher_(w, "gemm", o.tile, o.reserved_cus, where) {
    prepare<identity>(where);
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <local_epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    launcher_.load(detail::gemm_kernels<T, Epilogue>{}, where);
  }

  /// Launches one kernel, on any stream: see launch(). Can be captured in a graph; replays of it must not overlap with
  /// other launches of the operator. Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <local_epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    detail::start_gemm(launcher_, stream, call, plan_for<Epilogue>(call, where), e, nullptr, where);
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <local_epilogue Epilogue = identity>
  std::string describe(gemm_call<T> const& call, std::source_location where = std::source_location::current()) {
    return text("gemm: ", in_words<T>(plan_for<Epilogue>(call, where), call.b_layout));
  }

 private:
  template <class Epilogue>
  gemm_plan const& plan_for(gemm_call<T> const& call, std::source_location where) {
    constexpr int max_extent = detail::max_extent;
    int const m = call.c.rows, columns = call.c.cols, k = call.a.cols, most = max_extent / columns_of_value<Epilogue>,
              n = columns * columns_of_value<Epilogue>;
    require(m >= 1 && columns >= 1 && m <= max_extent && columns <= most, where, "gemm: c is [", m, ", ", columns,
            "]; expected [1 to ", max_extent, ", 1 to ", most, "]");
    require(k >= 8 && k <= max_extent && k % 8 == 0 && call.a.rows == m, where, "gemm: a is [", call.a.rows, ", ", k,
            "]; expected [", m, ", a multiple of 8 up to ", max_extent, "]");
    detail::check_gemm("gemm", call, k, n, where);
    return launcher_.plan(detail::gemm_kernels<T, Epilogue>{}, detail::problem_of(call, m), where);
  }

  gemm_launcher<T> launcher_;
};

}  // namespace fusewire
