// gfx942 has no mainloop beside block_mainloop.
#pragma once
#include <fusewire/tile/gemm.hpp>

namespace fusewire {

template <class T>
struct tuned_mainloops {
  static constexpr bool any = false;
  static bool accepts(b_operand<T> const&) { return false; }
  static int max_parts(int, int) { return 0; }
};

}  // namespace fusewire
