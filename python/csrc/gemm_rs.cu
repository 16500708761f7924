// torch.ops.fusewire.gemm_rs: x [M, K] times this rank's w, summed over the ranks; rank r gets rows of it.
#include <fusewire/ops/gemm_rs.hpp>

#include "operators.hpp"

namespace fusewire::binding {

static gemm_rs_options options_of(communicator_options const& o, int k) {
  return {.max_m = o.max_m, .max_n = o.max_n, .k = k, .tile = tile_of(o), .agreed = true};
}

template <class T>
product_maker maker_of_gemm_rs() {
  return maker_of<T, gemm_rs<T>, gemm_rs_call<T>, options_of>();
}
template product_maker maker_of_gemm_rs<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
