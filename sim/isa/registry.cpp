#include "registry.hpp"

namespace fusewire::sim {

void add_scalar(registry&);
void add_control(registry&);
void add_integer(registry&);
void add_float(registry&);
void add_convert(registry&);
void add_compare(registry&);
void add_lane(registry&);
void add_packed(registry&);
void add_mfma(registry&);
void add_memory(registry&);
void add_atomic(registry&);
void add_lds(registry&);

registry const& instructions() {
  static registry const all = [] {
    registry r;
    for (auto family : {add_scalar, add_control, add_integer, add_float, add_convert, add_compare, add_lane, add_packed,
                        add_mfma, add_memory, add_atomic, add_lds})
      family(r);
    return r;
  }();
  return all;
}

}  // namespace fusewire::sim
