// torch.ops.fusewire.ag_gemm: x [M / W, K] of every rank, gathered, times this rank's w.
#include <fusewire/ops/ag_gemm.hpp>

#include "operators.hpp"

namespace fusewire::binding {

static ag_gemm_options options_of(communicator_options const& o, int k) {
  return {.max_m = o.max_m, .k = k, .gather = gather::m, .agreed = true};
}

template <class T>
product_maker maker_of_ag_gemm() {
  return maker_of<T, ag_gemm<T>, ag_gemm_call<T>, options_of>();
}
template product_maker maker_of_ag_gemm<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
