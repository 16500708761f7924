// Where the tokens of a layer of experts go: what moe_dispatch finds out, and moe_combine and later calls use again.
#pragma once
#include <cstddef>
#include <cstdint>

#include <fusewire/core/math.hpp>

namespace fusewire {

/// How a rank receives rows.
enum class moe_layout {
  by_token,  // a row for each token that comes, in the order of (source rank, token)
  by_expert  // a row for each (expert of the rank, token), in the order of (expert, source rank, token)
};

/// The sizes of a layer of experts: the same on every rank.
struct moe_shape {
  int ranks = 1;                             // of the world
  int max_tokens = 0;                        // capacity: tokens of a rank
  int experts = 0;                           // of a rank
  int top_k = 0;                             // experts of a token
  int max_rows = 0;                          // capacity: rows that a rank receives, in its layout
  int alignment = 1;                         // of an expert's first row, by_expert
  moe_layout layout = moe_layout::by_token;  // of what a rank receives

  static constexpr int most_top_k = 16;        // of any layer
  static constexpr int most_experts = 1024;    // of a rank
  static constexpr int segment_tokens = 256;   // of a source, that a block counts together
  static constexpr int most_tokens = 1 << 17;  // of a rank

  /// Whether a routing of one serves the other.
  friend constexpr bool operator==(moe_shape const&, moe_shape const&) = default;

  /// Tokens that a rank receives at most.
  __host__ __device__ constexpr int max_received() const {
    int const all = ranks * max_tokens;
    return layout == moe_layout::by_token && max_rows < all ? max_rows : all;
  }
  /// The most rows that can come.
  __host__ __device__ constexpr std::int64_t worst_rows() const {
    std::int64_t const all = std::int64_t(ranks) * max_tokens;
    return layout == moe_layout::by_token ? all : all * min(top_k, experts) + std::int64_t(experts) * (alignment - 1);
  }
  /// Segments of max_tokens tokens.
  __host__ __device__ constexpr int segments() const { return ceil_div(max_tokens, segment_tokens); }
  /// Whether every block that receives counts all tables by itself: few entries, in which nothing is shared.
  __host__ __device__ constexpr bool counts_alone() const {
    return segments() == 1 && ranks * max_tokens * top_k <= 2048 && ranks * (experts + 1) <= 600;
  }
  /// Rows of moe_routing_view::counts.
  __host__ __device__ constexpr int counted() const { return ranks * segments(); }
};

/// A routing in device memory, passed to kernels by value. What the dispatch of a call writes, on each rank. `received`
/// counts tokens that came to this rank, in the order of (source rank, token); a token comes once, however many of its
/// experts the rank has.
struct moe_routing_view {
  moe_shape shape;            // the sizes of the arrays
  std::int32_t* tokens;       // [ranks]: tokens of each rank in the call
  std::int32_t* source_rows;  // [ranks + 1]: exclusive prefix sums of what each source has sent; the last: all received
  std::int32_t* expert_rows;  // [experts]: rows of each expert of this rank
  /// [experts + 1]: where they begin, by_expert; the last: where the last one ends, aligned
  std::int32_t* expert_begins;
  std::int32_t* expert_ends;   // [experts]: the first row behind an expert's, by_expert
  std::int32_t* row_tokens;    // [max_received]: source rank * max_tokens + token
  std::int32_t* row_experts;   // [max_received, top_k]: the token's experts, from this rank's first on; -1: none here
  float* row_weights;          // [max_received, top_k]: their weights; 0: none here
  std::int32_t* row_places;    // [max_received, top_k]: their rows by_expert; -1: none here
  std::int32_t* row_of;        // [ranks, max_tokens]: a token's number among the received; -1: it did not come
  std::uint64_t* token_ranks;  // [max_tokens]: a bit for each rank that has experts of this rank's token
  // Of a dispatch alone
  std::int32_t* counts;     // [ranks x segments, experts + 1]: by expert and, last, of all
  std::int32_t* positions;  // [ranks, max_tokens, top_k]: in a segment and an expert
  unsigned* ticket;         // 0 between launches

  /// Bytes that a routing takes. Requires: sizes that moe_routing accepts.
  static std::size_t bytes(moe_shape const& s) {
    return std::size_t(reinterpret_cast<std::uintptr_t>(at(nullptr, s).ticket)) + 256;
  }
  /// A routing in `memory`: bytes(s) bytes on the device, at a multiple of 256, which are 0 at first.
  static moe_routing_view at(void* memory, moe_shape const& s) {
    auto next = reinterpret_cast<std::uintptr_t>(memory);
    auto const take = [&]<class T>(T*& array, std::size_t count) {
      array = reinterpret_cast<T*>(next);
      next += round_up(count * sizeof(T), 256);
    };
    auto const n = [](int x) { return std::size_t(x); };
    std::size_t const received = n(s.max_received()), k = n(s.top_k), sent = n(s.ranks) * n(s.max_tokens);
    moe_routing_view r{};
    r.shape = s;
    take(r.tokens, n(s.ranks)), take(r.source_rows, n(s.ranks) + 1);
    take(r.expert_rows, n(s.experts)), take(r.expert_begins, n(s.experts) + 1);
    take(r.expert_ends, n(s.experts));
    take(r.row_tokens, received), take(r.row_experts, received * k);
    take(r.row_weights, received * k), take(r.row_places, received * k);
    take(r.row_of, sent), take(r.token_ranks, n(s.max_tokens));
    take(r.counts, (n(s.experts) + 1) * n(s.counted())), take(r.positions, sent * k);
    take(r.ticket, 1);
    return r;
  }

  /// The number of segment `segment` of a source, among counted().
  __host__ __device__ int counted(int source, int segment) const { return source * shape.segments() + segment; }
};

}  // namespace fusewire
