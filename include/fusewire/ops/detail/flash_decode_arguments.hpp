// What a launch of flash_decode_kernel is given: its arguments, and a block's threads and LDS.
#pragma once
#include <fusewire/attention/head_partition.hpp>
#include <fusewire/attention/kv_schedule.hpp>
#include <fusewire/attention/query_fragments.hpp>
#include <fusewire/attention/split_kv_workspace.hpp>
#include <fusewire/attention/wave_attention.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/device/ll_buffer_view.hpp>

namespace fusewire {

/// What a flash_decode can do beside plain attention. Whoever does not ask for it does not pay for it: it has kernels
/// of its own.
struct decode_features {
  bool soft_cap = false;        // flash_decode_call::soft_cap
  bool sliding_window = false;  // flash_decode_call::window_begins
  /// A sequence's result has the same bits whatever other sequences a call has. Takes workspace for each piece of a
  /// head item of every sequence
  bool batch_invariant = false;

  /// As a kernel takes them: nvcc has no kernels with a template argument of a class type.
  constexpr unsigned bits() const {
    return unsigned(soft_cap) | unsigned(sliding_window) << 1 | unsigned(batch_invariant) << 2;
  }
  /// Those of bits().
  static __host__ __device__ constexpr decode_features of(unsigned bits) {
    return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
  }
};

/// What a launch of flash_decode_kernel works on.
template <class T>
struct decode_arguments {
  T const *q, *k, *v;         // [batch, q heads, d], [pages, page size, kv heads, d] twice
  std::int32_t const* pages;  // [batch, max_pages]
  T* out;                     // [batch, own heads, d]
  float* lse;                 // [batch, own heads], or null
  /// Tokens, and how they are divided among blocks. Lengths are checked if lengths.max_tokens is more than the pages
  /// hold
  decode_lengths lengths;
  int max_pages, page_shift, group;  // group: query heads per KV head
  bool two_shot;                     // head item i is reduced by rank i % W alone
  bool kv_is_ready;         // of what is read, what the stream does just before writes at most q and the last tokens
  score_map scores;         // in units of log 2
  float lse_unit;           // what a unit of log 2 is in lse
  ll_buffer_view inbox;     // a record for each head item that the operator has room for
  split_kv_view workspace;  // of head items that blocks share
  divisor vec4s;            // of a head item: fours of neighbouring elements of o
  int pages_to_check;       // of the caches; 0: page numbers are not looked at
  bool scattered;           // each rank has the results of its own heads; else all have all
  index_range own;          // the query heads whose results this rank has
  head_partition owners;    // if scattered, of all query heads
};

/// Threads of a block, for a head of d.
__host__ __device__ constexpr int decode_threads(int d) { return decode_policy_for(d).waves * platform::wave_size; }

/// LDS of a block: where its parts begin, in bytes, for heads of d.
struct decode_shared {
  static constexpr int q = 32;  // behind the words of kv_splits
  /// An address for each rank.
  __host__ __device__ static constexpr int peers(int d) { return q + wave_attention_q_bytes(d); }
  /// Each wave's (m, l) [heads], then each wave's o [heads][wave_attention_pitch(d)].
  __host__ __device__ static constexpr int scales(int d) { return peers(d) + max_ranks * int(sizeof(void*)); }
  /// All of it; heads: query heads that share a KV head.
  __host__ __device__ static constexpr int bytes(int heads, int d) {
    return scales(d) + decode_policy_for(d).waves * heads * of_head(d);
  }
  /// Query heads that can share a KV head, at most.
  static constexpr int most_heads(int d) {
    decode_policy const p = decode_policy_for(d);
    return min(16, (p.shared_bytes - scales(d)) / (p.waves * of_head(d)));
  }

 private:
  __host__ __device__ static constexpr int of_head(int d) {
    return int(sizeof(softmax_scale)) + wave_attention_pitch(d) * int(sizeof(float));
  }
};

}  // namespace fusewire
