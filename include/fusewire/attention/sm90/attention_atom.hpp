// Attention on sm_80 and later: the heads of a group are the rows of the matrix instructions, tokens (scores) and d
// (output) their columns.
#pragma once
#include <fusewire/arch/sm90/mma.hpp>

namespace fusewire {

/// Waves of a block, and the second argument of __launch_bounds__: blocks of an SM. One large block has fewer parts to
/// combine than two small ones; with d = 64 two hide more of each other's waits.
__host__ __device__ constexpr int attention_waves(int d) { return d == 128 ? 8 : 4; }
__host__ __device__ constexpr int attention_bound(int d) { return d == 128 ? 1 : 2; }
/// Blocks of an SM, at most: as many as fit, which has 64 warps.
constexpr int attention_blocks(int d) { return 64 / attention_waves(d); }
/// SMs of a device, at most: H100, H200.
inline constexpr int attention_units = 132;
/// Blocks that attend to nothing.
inline constexpr int attention_spare_blocks = 0;
/// Whether V is loaded a step ahead, as K is: more bytes in flight, where that leaves registers.
__host__ __device__ constexpr bool attention_values_ahead(int d) { return d == 64; }
/// Whether loads are waited for in their order.
inline constexpr bool attention_in_order = false;
/// Lanes that read the parts of a quad (softmax_reduce.hpp), as numbers of bits: where splits are many; of ranks.
inline constexpr int log_split_readers = 2;
/// See log_split_readers.
__host__ __device__ constexpr int log_rank_readers(int) { return 0; }
/// Parts that a reader asks for at once.
inline constexpr int parts_at_once = 4;

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
