// torch.ops.fusewire.reduce_scatter, all_reduce, all_reduce_norm: sums over ranks of one 16-bit type.
#include "reductions.hpp"

namespace fusewire::binding {

template <class T>
collective_maker maker_of_sum(collective_kind kind) {
  return kind == collective_kind::all_reduce ? maker_of_reduction<T>() : maker_of_slices<reduce_scatter, T>();
}
template collective_maker maker_of_sum<FUSEWIRE_ELEMENT>(collective_kind);

}  // namespace fusewire::binding
