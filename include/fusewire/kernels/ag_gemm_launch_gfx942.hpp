// gfx942 has no AG+GEMM kernels beside those of ag_gemm_kernels.hpp.
#pragma once
#include <fusewire/kernels/ag_gemm_call.hpp>
#include <fusewire/runtime/channel.hpp>

namespace fusewire {

template <class T>
class tuned_ag_gemm {
 public:
  tuned_ag_gemm(channel const&, ag_gemm_options const&) {}

  template <class Epilogue>
  void prepare(std::source_location) const {}

  static int flags_per_source(int, ag_gemm_options const&) { return 0; }

  static bool pull_is_faster(int, int, int, int, gather) { return false; }

  template <class Epilogue>
  bool launch(hipStream_t, launch_header const&, ag_gemm_call<T> const&, bool, Epilogue const&, std::source_location) const {
    return false;
  }
};

}  // namespace fusewire
