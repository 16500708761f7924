// Reductions and prefix sums over the threads of a block, in an order that only the block's size decides: the same bits
// in every run.
#pragma once
#include <fusewire/core/group.hpp>

namespace fusewire {

/// Words of shared memory that block_reduce() needs: one for each wave of the largest block.
inline constexpr int block_reduce_words = 1024 / wave::width;

/// combine() over x of all threads, in every thread. combine: of two floats, commutative. Lanes of a wave are combined
/// as a butterfly, waves in their order.
/// Called by: every thread of a block of whole waves. `shared`: block_reduce_words floats, which the block may use
/// again after the call.
template <class Combine>
__device__ float block_reduce(block b, float x, float* shared, Combine const& combine) {
#pragma unroll
  for (int lane = wave::width / 2; lane > 0; lane /= 2) x = combine(x, platform::shuffle_xor(x, lane));
  wave const w;
  if (w.leader()) shared[w.index()] = x;
  b.sync();
  x = shared[0];
  for (int i = 1; i < b.size() / wave::width; ++i) x = combine(x, shared[i]);
  b.sync();
  return x;
}
/// The sum of x. As block_reduce().
__device__ inline float block_sum(block b, float x, float* shared) {
  return block_reduce(b, x, shared, [](float p, float q) { return p + q; });
}
/// The largest x. As block_reduce().
__device__ inline float block_max(block b, float x, float* shared) {
  return block_reduce(b, x, shared, [](float p, float q) { return p < q ? q : p; });
}

/// The sum of x over the threads before this one; `all` becomes that of all threads. As block_reduce(), but for
/// `shared`: block_reduce_words integers.
__device__ inline int block_exclusive_sum(block b, int x, int* shared, int& all) {
  wave const w;
  int up_to = x;
#pragma unroll
  for (int d = 1; d < wave::width; d *= 2) {
    int const before = platform::shuffle(up_to, (w.rank() - d) & (wave::width - 1));
    if (w.rank() >= d) up_to += before;
  }
  if (w.rank() == wave::width - 1) shared[w.index()] = up_to;
  b.sync();
  int sum = up_to - x;
  all = 0;
  for (int i = 0; i < b.size() / wave::width; ++i) {
    if (i == w.index()) sum += all;
    all += shared[i];
  }
  b.sync();
  return sum;
}

}  // namespace fusewire
