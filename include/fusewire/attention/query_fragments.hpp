// Q of one head item in LDS, as the fragments of the matrix instructions that the waves of a block share.
#pragma once
#include <fusewire/arch/mma.hpp>
#include <fusewire/attention/attention_atom.hpp>
#include <fusewire/core/group.hpp>

namespace fusewire {

/// Bytes of LDS for Q, which the waves of a block share: 16 heads of d elements.
__host__ __device__ constexpr int wave_attention_q_bytes(int d) { return 16 * d * 2; }
/// A thread's fragments of Q, of 16 bytes each: load() before K and V are issued, store() after it. D: elements of a
/// head; Threads: of the block.
template <class T, int D, int Threads>
struct query_fragments {
  using atom = attention_atom<T>;                              // its matrix instruction
  static constexpr int all = wave_attention_q_bytes(D) / 16;   // of the block
  static constexpr int count = (all + Threads - 1) / Threads;  // of a thread

  /// `q`: [heads, D], 1 to 16 heads. Called by: every thread of the block.
  __device__ void load(T const* q, int heads) {
#pragma unroll
    for (int n = 0; n < count; ++n) {
      int const i = (platform::opaque_thread_index() + n * Threads) % all, lane = i % wave::width,
                number = i / wave::width, head = atom::head(lane, number % atom::lane_heads);
      fragment[n] = *reinterpret_cast<platform::native16 const*>(
          q + (head < heads ? head : 0) * D + number / atom::lane_heads * 32 + atom::eighth(lane) * 8);
    }
  }
  /// Called by: every thread of the block, which syncs before Q is used.
  __device__ void store(block b, bytes16* shared) const {
#pragma unroll
    for (int n = 0; n < count; ++n)
      if (int const i = b.rank() + n * Threads; i < all)
        *reinterpret_cast<platform::native16*>(shared + i) = fragment[n];
  }

  platform::native16 fragment[count];  // those of this thread
};

}  // namespace fusewire
