// Attention on sm_80 and later: the heads of a group are the rows of the matrix instructions, tokens (scores) and d
// (output) their columns.
#pragma once
#include <fusewire/arch/sm90/mma.hpp>

namespace fusewire {

/// An attention instruction.
/// See wave_attention.hpp.
template <class T>
struct attention_atom {
  /// Heads are rows, tokens and d columns.
  using mma = mma_atom<T>;
  using head_fragment = typename mma::a_fragment;
  using kv_fragment = typename mma::b_fragment;
  using c_fragment = typename mma::c_fragment;
  static constexpr int rows = mma::n, values = mma::c_values;
  static constexpr int lane_heads = 2;
  static constexpr int sibling = 1;

  __device__ static int head(int lane, int i) { return mma::a_row(lane, i); }
  __device__ static int kv_row(int lane) { return mma::b_row(lane, 0); }
  __device__ static int row(int lane, int i) { return mma::c_col(lane, i); }
  __device__ static int eighth(int lane) { return mma::k_eighth(lane); }
  __device__ static void multiply(c_fragment& c, kv_fragment const& kv, head_fragment const& heads) {
    mma::multiply(c, heads, kv);
  }
};

}  // namespace fusewire
