// torch.ops.fusewire.gemm_ar: x [M, K] times this rank's w, summed over the ranks; every rank gets all of it.
#include <fusewire/ops/gemm_ar.hpp>

#include "operators.hpp"

namespace fusewire::binding {

static gemm_ar_options options_of(communicator_options const& o, int k) {
  return {.max_m = o.max_m, .max_n = o.max_n, .k = k, .tile = tile_of(o), .agreed = true};
}

template <class T>
product_maker maker_of_gemm_ar() {
  return maker_of<T, gemm_ar<T>, gemm_ar_call<T>, options_of>();
}
template product_maker maker_of_gemm_ar<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
