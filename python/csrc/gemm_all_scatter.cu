// torch.ops.fusewire.gemm_all_scatter: x [M, K] times every rank's w, side by side on every rank.
#include <fusewire/ops/gemm_all_scatter.hpp>

#include "operators.hpp"

namespace fusewire::binding {

static gemm_all_scatter_options options_of(communicator_options const& o, int k) {
  return {.max_m = o.max_m, .max_n = ceil_div(o.max_n, o.size), .k = k, .tile = tile_of(o), .agreed = true};
}

template <class T>
product_maker maker_of_gemm_all_scatter() {
  return maker_of<T, gemm_all_scatter<T>, gemm_all_scatter_call<T>, options_of>();
}
template product_maker maker_of_gemm_all_scatter<FUSEWIRE_ELEMENT>();

}  // namespace fusewire::binding
