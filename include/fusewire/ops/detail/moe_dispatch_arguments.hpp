// What a launch of moe_dispatch_kernel is given, and how its inbox is divided.
#pragma once
#include <fusewire/comm/moe_chunks.hpp>
#include <fusewire/comm/moe_routing_view.hpp>

namespace fusewire {

/// Rows of bytes and, beside each, a row of scales.
struct moe_payload {
  std::byte* rows = nullptr;     // a multiple of 16
  std::byte* scales = nullptr;   // a multiple of 4
  std::int64_t row_pitch = 0;    // bytes from one row to the next
  std::int64_t scale_pitch = 0;  // likewise
};

/// Bytes of a token, the same on every rank.
struct moe_token_bytes {
  int row = 0;     // a multiple of 16
  int scales = 0;  // a multiple of 4; may be 0

  /// Of both in an inbox.
  __host__ __device__ constexpr int pitch() const { return row + int(round_up(std::size_t(scales), 16)); }
};

/// The inbox of a dispatch: tables of all ranks, then rows of the other ranks, each at the place of its token. A sender
/// knows these places without counting anything.
struct moe_inbox {
  moe_shape shape;        // of the layer
  moe_token_bytes token;  // of the launch

  /// From one table to the next: counts, experts, weights.
  __host__ __device__ constexpr std::size_t table_bytes() const { return counts_bytes() + 2 * entries_bytes(); }
  /// All of it.
  __host__ __device__ constexpr std::size_t bytes() const {
    return std::size_t(shape.ranks) * table_bytes() +
           std::size_t(shape.ranks - 1) * std::size_t(shape.max_tokens) * std::size_t(token.pitch());
  }

  /// [segments]: how many tokens the source has, which each segment brings.
  __host__ __device__ std::int32_t* tokens(std::byte* inbox, int source) const {
    return reinterpret_cast<std::int32_t*>(inbox + std::size_t(source) * table_bytes());
  }
  /// [max_tokens, top_k]: experts of all ranks; -1: none.
  __host__ __device__ std::int32_t* experts(std::byte* inbox, int source) const {
    return reinterpret_cast<std::int32_t*>(inbox + std::size_t(source) * table_bytes() + counts_bytes());
  }
  /// [max_tokens, top_k].
  __host__ __device__ float* weights(std::byte* inbox, int source) const {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(experts(inbox, source)) + entries_bytes());
  }
  /// A row, and its scales behind it, from the rank `ahead` places after the owner of the inbox.
  __host__ __device__ std::byte* row(std::byte* inbox, int ahead, int t) const {
    std::size_t const i = std::size_t(ahead - 1) * std::size_t(shape.max_tokens) + std::size_t(t);
    return inbox + std::size_t(shape.ranks) * table_bytes() + i * std::size_t(token.pitch());
  }

 private:
  __host__ __device__ constexpr std::size_t counts_bytes() const {
    return round_up(std::size_t(shape.segments()) * 4, 16);
  }
  __host__ __device__ constexpr std::size_t entries_bytes() const {
    return round_up(std::size_t(shape.max_tokens) * std::size_t(shape.top_k) * 4, 16);
  }
};

/// Flags of a source: of the segments of its table, of its chunks, and one that a rank raises for its own blocks.
struct moe_dispatch_flags {
  int segments;  // of a table

  /// How many there are, for up to max_tokens tokens.
  __host__ __device__ static constexpr int count(moe_shape const& s) {
    return s.segments() + 1 + moe_chunks::most_of(s.max_tokens);
  }
  /// Of chunk i.
  __host__ __device__ constexpr int chunk(int i) const { return segments + 1 + i; }
  /// Of the finished routing.
  __host__ __device__ constexpr int routed() const { return segments; }
};

/// What the kernel gets.
struct moe_dispatch_arguments {
  moe_routing_view routing;           // written, or with `routed` read
  moe_token_bytes token;              // of x and its scales
  moe_payload in, out;                // `in` is not written; it has the rows of this rank's tokens
  void const* experts;                // [tokens, top_k]
  bool wide;                          // experts are 64-bit integers, else 32-bit
  float const* weights;               // [tokens, top_k], or null
  int tokens;                         // of this rank, at most
  std::int32_t const* device_tokens;  // how many there are, or null: all
  bool routed;                        // by a routing that an earlier launch has finished
  int senders;                        // of the grid's blocks; the others receive. 0: each does both
};

}  // namespace fusewire
