// What flash_decode is made with and called with.
#pragma once
#include <cstdint>

#include <fusewire/launch/channel.hpp>
#include <fusewire/ops/reduce_algorithm.hpp>

namespace fusewire {

/// Which results a rank gets. replicated: those of all query heads. heads: those of the heads that it owns; see
/// flash_decode::heads_of().
enum class output { replicated, heads };

/// Base of the logarithm in which log-sum-exp is told.
enum class lse_base { e, two };

/// What an operator is made with; the same on every rank.
struct flash_decode_options {
  int max_batch = 0;  // capacity: sequences
  int q_heads = 0;    // a multiple of kv_heads, up to 16 times as many
  /// KV heads of one token in the cache; query heads share them in equal groups.
  int kv_heads = 0;
  int head_dim = 128;    // d of Q, K and V: 64, 96, 128, 192 or 256
  int page_size = 16;    // tokens, a power of two
  int max_pages = 0;     // of one sequence on one rank: columns of the block table
  float scale = 0;       // of the scores; 0: 1 / sqrt(d)
  int reserved_cus = 0;  // compute units left to other work
  /// How ranks reduce a result; two shots save time if the batch is large. Results by heads take one shot.
  fusewire::reduce_algorithm shots = reduce_algorithm::automatic;
  fusewire::output output = fusewire::output::replicated;  // which results a rank gets
  fusewire::lse_base lse_base = fusewire::lse_base::e;     // of flash_decode_call::lse
};

/// One call. All ranks pass the same q and batch, and each its own shard: any division of the tokens over the ranks
/// will do.
template <class T>
struct flash_decode_call {
  T const* q = nullptr;                       // [batch, q_heads, d]
  T const* k_cache = nullptr;                 // [pages, page_size, kv_heads, d]
  T const* v_cache = nullptr;                 // [pages, page_size, kv_heads, d]
  std::int32_t const* block_table = nullptr;  // [batch, max_pages]; entries past a sequence's last page are not read
  /// [batch]: tokens of this rank's shard, 0 to max_pages x page_size; a negative one counts as 0, as a graph's unused
  /// rows need it. A checked build (FUSEWIRE_CHECKED) and fusewire-sim look at every length before a page is followed,
  /// and check() throws bad_argument. Elsewhere a longer sequence is cut there
  std::int32_t const* lengths = nullptr;
  /// [batch, q_heads, d], the same bits on every rank; with output::heads [batch, own heads, d], the same bits of
  /// those, and not looked at on a rank without heads. 0 where no rank has a token. NaN where a wait timed out
  T* out = nullptr;
  /// [batch, q_heads] or [batch, own heads], log of the sum of exp(score), natural or to base 2; -infinity where no
  /// rank has a token. May be null. Neither overlaps anything else of the call
  float* lse = nullptr;
  int batch = 0;  // 1 to max_batch
  /// [batch]: tokens of this rank's shard that lie before a sliding window, and are left out, as 0 to the length; null:
  /// none. For decode_features::sliding_window. A token's place in its sequence is what the caller's division of the
  /// tokens says: where lengths come from. One rank, and a window of w tokens: max(0, length - w)
  std::int32_t const* window_begins = nullptr;
  /// A score s counts as soft_cap * tanh(s / soft_cap); 0: as s. The same on every rank. For decode_features::soft_cap
  float soft_cap = 0;
  /// Pages of each cache; 0: unknown. If it is known, a checked build (FUSEWIRE_CHECKED) and fusewire-sim look at every
  /// page number before it is followed: check() throws bad_argument
  int pages = 0;
  /// True: of what this call reads, unfinished work on the stream writes nothing but q and the K and V of each shard's
  /// last token. All else may be loaded before that work ends
  bool kv_is_ready = false;
};

/// A launch of flash_decode in words, from what its header says.
inline std::string describe_flash_decode(std::uint64_t const (&what)[launch_words]) {
  return text("flash_decode", what[1] & 1 ? " f16" : " bf16", what[1] & 2 ? ", output::heads" : "",
              what[1] & 4 ? ", batch_invariant" : "", ", head_dim = ", what[1] >> 8, ", batch = ", what[2],
              ", q_heads = ", what[3], ", kv_heads = ", what[4], ", max_batch = ", what[5]);
}

}  // namespace fusewire
