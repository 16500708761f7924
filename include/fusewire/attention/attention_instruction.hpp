// What attention asks of an architecture's matrix instruction.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// The matrix instruction with one side for heads (Q and the weights) and one for tokens or d (K and V), its `rows`. A
/// lane holds `lane_heads` heads, head(lane, i), in the head fragments and in the results alike; four lanes share a
/// head, `sibling` apart. Of each head it has values / lane_heads results of an atom: rows row(lane, 0), row(lane, 1),
/// ...
template <class A>
concept attention_instruction =
    requires(int lane, typename A::head_fragment h, typename A::kv_fragment kv, typename A::c_fragment c) {
      requires A::values / A::lane_heads * 4 == A::rows&& platform::wave_size / 4 * A::lane_heads == 16;
      A::head(lane, 0);
      A::kv_row(lane);
      A::row(lane, 0);
      A::eighth(lane);
      A::multiply(c, kv, h);
    };

}  // namespace fusewire
