// Attention on gfx942: the heads of a group are the columns of the matrix instructions, tokens (scores) and d (output)
// their rows.
#pragma once
#include <fusewire/arch/gfx942/mma.hpp>

namespace fusewire {

/// An attention instruction.
/// See wave_attention.hpp.
template <class T>
struct attention_atom {
  /// Heads are columns, tokens and d rows.
  using mma = mma_atom<T>;
  using head_fragment = typename mma::b_fragment;
  using kv_fragment = typename mma::a_fragment;
  using c_fragment = typename mma::c_fragment;
  /// Rows of the token or d side; results of a lane.
  static constexpr int rows = mma::m, values = mma::c_values;
  static constexpr int lane_heads = 1;
  /// As the concept attention_instruction has it.
  static constexpr int sibling = 16;

  __device__ static int head(int lane, int i) { return mma::b_row(lane, i); }
  __device__ static int kv_row(int lane) { return mma::a_row(lane, 0); }
  __device__ static int row(int lane, int i) { return mma::c_row(lane, i); }
  __device__ static int eighth(int lane) { return mma::k_eighth(lane); }
  __device__ static void multiply(c_fragment& c, kv_fragment const& kv, head_fragment const& heads) {
    mma::multiply(c, kv, heads);
  }
};

}  // namespace fusewire
