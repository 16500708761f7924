// Attention on gfx942: the heads of a group are the columns of the matrix instructions, tokens (scores) and d (output)
// their rows.
#pragma once
#include <fusewire/arch/gfx942/mma.hpp>

namespace fusewire {

/// Waves of a block, and the second argument of __launch_bounds__: waves of a SIMD.
__host__ __device__ constexpr int attention_waves(int) { return 4; }
/// Waves of a SIMD, at least: the second argument of __launch_bounds__.
__host__ __device__ constexpr int attention_bound(int) { return 2; }
/// Blocks of a compute unit, at most. With d = 128 those of one have 64 KB of K and V in flight, twice what the unit
/// can wait for, and half as many splits are to be summed up.
constexpr int attention_blocks(int d) { return d == 128 ? 1 : 2; }
/// Compute units of a device, at most: MI300X, MI325X.
inline constexpr int attention_units = 304;
/// Blocks that attend to nothing, where there is more than one: what block 0 does for the channel takes longer than the
/// others' work where a shard is short.
inline constexpr int attention_spare_blocks = 1;
/// Whether V is loaded a step ahead, as K is.
__host__ __device__ constexpr bool attention_values_ahead(int) { return true; }
/// Whether loads are waited for in their order. Then entries of the page table stay as they are loaded until their step
/// asks for K, because arithmetic with one waits for all that was asked for before it; and rows are exchanged between
/// lanes all at once, because each exchange is waited for.
inline constexpr bool attention_in_order = true;
/// Lanes that read the parts of a quad (softmax_reduce.hpp), as numbers of bits: where splits are many; of so many
/// ranks.
inline constexpr int log_split_readers = 3;
/// See log_split_readers.
__host__ __device__ constexpr int log_rank_readers(int ranks) { return ranks > 4 ? 3 : ranks > 2 ? 2 : 1; }
/// Parts that a reader asks for at once.
inline constexpr int parts_at_once = 2;

/// An attention instruction.
/// See wave_attention.hpp.
template <class T>
struct attention_atom {
  /// Heads are columns, tokens and d rows.
  using mma = mma_atom<T>;
  using head_fragment = typename mma::b_fragment;
  using kv_fragment = typename mma::a_fragment;
  using c_fragment = typename mma::c_fragment;
  /// Of the side of tokens or d; results of a lane.
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
