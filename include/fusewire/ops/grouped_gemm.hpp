// grouped_gemm: one GEMM for each group of rows, in one kernel launch; how many rows a group has only the device knows.
// The kernel is in grouped_gemm_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/grouped_launcher.hpp>

namespace fusewire {

/// What an operator is made with.
struct grouped_gemm_options {
  /// What is not named is chosen by the shape. split_k: 0 or 1
  gemm_tile tile = gemm_tile::automatic;
  int reserved_cus = 0;  // compute units left to other work
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
      : launcher_(w, "grouped_gemm", o.tile, o.reserved_cus, where) {
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
    gemm_plan const& plan = launcher_.template plan<Epilogue>(kernels<Epilogue>{}, call, where);
    launcher_.launch(stream, kernels<Epilogue>{}, call, plan, {.where = where}, e, launcher_.arguments(call, plan));
  }

  /// Which mainloop a call takes, in words, and why it is not a tuned one where that is so. Fails: as the call.
  template <grouped_epilogue Epilogue = identity>
  std::string describe(grouped_gemm_call<T> const& call, std::source_location where = std::source_location::current()) {
    return text("grouped_gemm: ",
                in_words<T>(launcher_.template plan<Epilogue>(kernels<Epilogue>{}, call, where), call.b_layout));
  }

 private:
  /// operator()<M>() is the kernel with mainloop M.
  template <class Epilogue>
  struct kernels {
    template <class M>
    auto operator()() const {
      return &grouped_gemm_kernel<T, M, Epilogue>;
    }
  };

  grouped_launcher<T> launcher_;
};

}  // namespace fusewire
