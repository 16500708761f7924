// gfx942 has no plan of its own yet.
#pragma once
#include <optional>

#include <fusewire/kernels/ag_gemm_plan.hpp>

namespace fusewire {

constexpr bool pull_is_faster(int, int, int, int, gather) { return false; }

template <class Clusters>
std::optional<gemm_plan> tuned_gemm_plan(gemm_shape const&, Clusters const&) {
  return std::nullopt;
}
template <class Clusters>
std::optional<ag_gemm_plan> tuned_ag_gemm_plan(gemm_shape const&, int, gather, Clusters const&) {
  return std::nullopt;
}

}  // namespace fusewire
