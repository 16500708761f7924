// gemm: C [M, N] = A [M, K] * B [K, N] on one rank: the mainloop alone, without a channel. The kernel is in
// gemm_kernel.hpp.
#pragma once
#include <fusewire/kernels/gemm_launch.hpp>
#include <fusewire/kernels/matrix_operand.hpp>

namespace fusewire {

struct gemm_options {
  gemm_tile tile = gemm_tile::automatic;
  int reserved_cus = 0;  // compute units left to other work
};

template <class T>
struct gemm_call {
  matrix<T const> a;  // [M, K], K a multiple of 8
  matrix<T const> b;  // [K, N]; column-major: b.ld is the distance between columns
  matrix<T> c;        // [M, N]; overlaps neither a nor b
  layout b_layout = layout::row_major;
  /// Nothing that the stream has yet to do before this call writes b: its loads may begin early
  bool b_is_constant = false;
};

template <class T>
  requires is_16_bit_float<T>
class gemm {
 public:
  /// Loads the kernels of calls without an epilogue. `w` outlives it. Fails: bad_argument.
  explicit gemm(world const& w, gemm_options const& o = {},
                std::source_location where = std::source_location::current())
      : w_(w), o_(o), memory_(where) {
    require(o.reserved_cus >= 0 && o.reserved_cus < w.compute_units(), where, "gemm: reserved_cus = ", o.reserved_cus,
            "; expected 0 to ", w.compute_units() - 1);
    detail::require_tile("gemm", o.tile, where);
    prepare<identity>(where);
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <epilogue Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    for_each_mainloop<T>(o_.tile, [&]<class M>() {
      load_kernel(w_, &gemm_kernel<T, M, Epilogue>, M::threads, M::shared_bytes(), where);
    });
  }

  /// Launches one kernel. Can be captured in a graph. Launches of one operator must not overlap: they are for one
  /// stream. Fails: bad_argument, before anything is launched; as world::look().
  template <epilogue Epilogue = identity>
  void operator()(hipStream_t stream, gemm_call<T> const& call, Epilogue const& e = {},
                  std::source_location where = std::source_location::current()) {
    detail::start_gemm<T>(w_, stream, call, plan_for<Epilogue>(call, where), memory_, o_.reserved_cus, e, where);
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <epilogue Epilogue = identity>
  std::string describe(gemm_call<T> const& call, std::source_location where = std::source_location::current()) {
    return text("gemm: ", in_words<T>(plan_for<Epilogue>(call, where), call.b_layout));
  }

 private:
  static constexpr int max_extent = 1 << 30;  // of any extent: sums of two fit an int

  template <class Epilogue>
  gemm_plan const& plan_for(gemm_call<T> const& call, std::source_location where) {
    int const m = call.c.rows, n = call.c.cols, k = call.a.cols;
    require(m >= 1 && n >= 1 && m <= max_extent && n <= max_extent, where, "gemm: c is [", m, ", ", n,
            "]; expected 1 to ", max_extent, " of each");
    require(k >= 8 && k <= max_extent && k % 8 == 0 && call.a.rows == m, where, "gemm: a is [", call.a.rows, ", ", k,
            "]; expected [", m, ", a multiple of 8 up to ", max_extent, "]");
    require(
        std::int64_t(ceil_div(m, small_tile::config.block_m)) * ceil_div(n, small_tile::config.block_n) <= max_extent,
        where, "gemm: c is [", m, ", ", n, "], in too many tiles; expected up to ", max_extent);
    detail::check_product("gemm", call, k, n, where);
    b_operand<T> const b{call.b.data, call.b.ld, call.b_layout, n};
    auto const [it, fresh] = plans_.try_emplace({m, n, k, call.b_layout, tuned_mainloops<T>::accepts(call.a.ld, b, k)});
    if (fresh)
      it->second = detail::plan_gemm<T>(w_, {m, 1, n, k, 1, call.b_layout}, o_.tile, call.a.ld, b, o_.reserved_cus,
                                        detail::gemm_kernels<T, Epilogue>{}, where);
    return it->second;
  }

  world const& w_;
  gemm_options o_;
  typename tuned_mainloops<T>::memory memory_;
  std::map<std::tuple<int, int, int, layout, bool>, gemm_plan>
      plans_;  // by m, n, k, layout of B, whether a tuned one may be
};

}  // namespace fusewire
