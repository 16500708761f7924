// How ranks learn where tokens go: each sends its table of experts to all, and counts in all tables what comes to it.
//
//   sender     experts, weights of a segment's tokens --> every rank's inbox, flag
//   counter    segment --> positions of its tokens within the segment, counts by expert
//   the last   counts of all segments --> exclusive prefix sums: where segments and experts begin --> flag `routed`
//
// Order is (source rank, token), never that of arrival: a segment's number says where its counts stand.
#pragma once
#include <fusewire/device/block_reduce.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/ops/detail/moe_dispatch_arguments.hpp>

namespace fusewire {

/// Shared memory of a block that counts a segment.
struct moe_table_shared {
  static constexpr int mask_words = moe_shape::segment_tokens / 32;  // of a mask of a segment's tokens

  int words[block_reduce_words];  // of block_exclusive_sum()
  int tokens[max_ranks];          // of each source
  int word;                       // of last_to_arrive()

  /// [experts + 1][mask_words], behind this: a bit for each token of the segment that has the expert; last, any.
  __device__ unsigned* masks() { return reinterpret_cast<unsigned*>(this + 1); }
  /// [segment_tokens * top_k], behind the masks: experts of this rank; -1: of others.
  __device__ std::int16_t* local(int experts) {
    return reinterpret_cast<std::int16_t*>(masks() + (experts + 1) * mask_words);
  }
  /// All of it, in bytes.
  static constexpr int bytes(moe_shape const& s) {
    return int(sizeof(moe_table_shared)) + (s.experts + 1) * mask_words * int(sizeof(unsigned)) +
           moe_shape::segment_tokens * s.top_k * int(sizeof(std::int16_t));
  }
};

/// The tables of a dispatch.
class moe_table {
 public:
  /// Of a launch.
  __device__ moe_table(channel_epoch const& e, world_view const& w, moe_dispatch_arguments const& g)
      : e_(e), w_(w), g_(g), r_(g.routing), inbox_{g.routing.shape, g.token}, flags_{g.routing.shape.segments()} {}

  /// How many tokens this rank has; no more than there is room for.
  __device__ __forceinline__ int own_tokens() const {
    if (g_.routed) return r_.tokens[w_.rank()];
    return g_.device_tokens ? clamp(*g_.device_tokens, 0, g_.tokens) : g_.tokens;
  }
  /// Entry i of this rank's own table: an expert, or -1.
  __device__ __forceinline__ int own_expert(int i) const {
    std::int64_t const x = entry(i);
    return x >= 0 && x < experts_of_all() ? int(x) : -1;
  }
  /// Of a source, behind a segment of its table.
  __device__ __forceinline__ int tokens_of(int source, int segment) const {
    return clamp(inbox_.tokens(here(), source)[segment], 0, r_.shape.max_tokens);
  }
  /// Entry i of a source's table: an expert of this rank, or -1.
  __device__ __forceinline__ int local_expert(int source, int i) const {
    unsigned const x = unsigned(inbox_.experts(here(), source)[i] - w_.rank() * r_.shape.experts);
    return x < unsigned(r_.shape.experts) ? int(x) : -1;
  }
  /// Its weight.
  __device__ __forceinline__ float weight(int source, int i) const {
    return g_.weights ? inbox_.weights(here(), source)[i] : 1.0f;
  }

  /// Sends segment i of this rank's table to all ranks, this one as well. Called by: every thread of the block.
  __device__ __forceinline__ void send(block b, int i) const {
    int const k = r_.shape.top_k, tokens = own_tokens(), first = i * moe_shape::segment_tokens * k,
              last = min((i + 1) * moe_shape::segment_tokens, tokens) * k;
    if (i == 0) look_at_tokens(b);
#pragma unroll 1
    for (int j = first + b.rank(); j < last; j += b.size()) {
      int const x = looked_at_expert(j);
      float const weight = g_.weights ? g_.weights[j] : 0;
#pragma unroll 1
      for (int p = 0; p < w_.size(); ++p) {
        std::byte* const to = e_.inbox<std::byte>(w_.next(p));
        inbox_.experts(to, w_.rank())[j] = x;
        if (g_.weights) inbox_.weights(to, w_.rank())[j] = weight;
      }
    }
    if (b.rank() < w_.size()) inbox_.tokens(e_.inbox<std::byte>(b.rank()), w_.rank())[i] = tokens;
    signal_all(b, w_.size(), [&](int p) { return e_.to(w_.next(p), i); }, e_.number());
  }

  /// Counts a segment of a source. Called by: every thread of the block.
  __device__ __forceinline__ void count(block b, moe_table_shared& shared, int source, int segment) const {
    constexpr int words = moe_table_shared::mask_words;
    unsigned* const masks = shared.masks();
    std::int16_t* const local = shared.local(r_.shape.experts);
    int const k = r_.shape.top_k, experts = r_.shape.experts, first = segment * moe_shape::segment_tokens;
    for (int i = b.rank(); i < (experts + 1) * words; i += b.size()) masks[i] = 0;
    e_.wait(b, source, segment);
    int const n = clamp(tokens_of(source, segment) - first, 0, moe_shape::segment_tokens);
    std::int64_t const begin = std::int64_t(source) * r_.shape.max_tokens + first;
    for (int i = b.rank(); i < n * k; i += b.size()) {
      int const e = local_expert(source, first * k + i), t = i / k;
      local[i] = std::int16_t(e);
      if (e < 0) continue;
      platform::atomic_fetch_or<order::relaxed, scope::block>(&masks[e * words + t / 32], 1u << t % 32);
      platform::atomic_fetch_or<order::relaxed, scope::block>(&masks[experts * words + t / 32], 1u << t % 32);
    }
    b.sync();
    for (int i = b.rank(); i < n * k; i += b.size())
      if (int const e = local[i]; e >= 0) r_.positions[begin * k + i] = bits_below(masks + e * words, i / k);
    unsigned const* const any = masks + experts * words;
    for (int t = b.rank(); t < n; t += b.size())
      r_.row_of[begin + t] = any[t / 32] >> t % 32 & 1 ? bits_below(any, t) : -1;
    for (int e = b.rank(); e <= experts; e += b.size())
      *counts(e, r_.counted(source, segment)) = bits_below(masks + e * words, moe_shape::segment_tokens);
    b.sync();
  }
  /// Adds up the counts of all segments. Called by: every thread of the last block that has counted.
  __device__ __forceinline__ void finish(block b, moe_table_shared& shared) const {
    int const experts = r_.shape.experts;
    for (int s = b.rank(); s < w_.size(); s += b.size()) shared.tokens[s] = r_.tokens[s] = tokens_of(s, 0);
    b.sync();
    int begin = 0;  // of an expert's rows
#pragma unroll 1
    for (int e0 = 0; e0 <= experts; e0 += b.size()) {
      int const e = e0 + b.rank(), rows = e <= experts ? sum(shared, e) : 0,
                aligned = e < experts ? ceil_div(rows, r_.shape.alignment) * r_.shape.alignment : 0;
      int all;
      int const before = block_exclusive_sum(b, aligned, shared.words, all);
      if (e < experts) r_.expert_rows[e] = rows, r_.expert_begins[e] = begin + before;
      if (e == experts) r_.source_rows[w_.size()] = rows;
      if (e == experts && r_.shape.layout == moe_layout::by_token) look_at_rows(rows);
      begin += all;
    }
    if (b.leader()) {
      r_.expert_begins[experts] = begin;
      if (r_.shape.layout == moe_layout::by_expert) look_at_rows(begin);
    }
    e_.signal_here(b, w_.rank(), flags_.routed());
  }

 private:
  __device__ std::byte* here() const { return e_.inbox<std::byte>(); }
  __device__ std::int64_t entry(int i) const {
    return g_.wide ? static_cast<std::int64_t const*>(g_.experts)[i]
                   : std::int64_t(static_cast<std::int32_t const*>(g_.experts)[i]);
  }
  __device__ int experts_of_all() const { return w_.size() * r_.shape.experts; }
  __device__ std::int32_t* counts(int expert, int segment) const {
    return r_.counts + std::int64_t(segment) * (r_.shape.experts + 1) + expert;
  }
  /// Bits of a mask below bit t.
  __device__ static int bits_below(unsigned const* mask, int t) {
    int bits = 0;
#pragma unroll
    for (int i = 0; i < moe_table_shared::mask_words; ++i)
      if (i * 32 < t) bits += platform::bits_set(i == t / 32 ? mask[i] & ((1u << t % 32) - 1) : mask[i]);
    return bits;
  }

  /// The exclusive prefix sum, over the segments, of the counts of expert e; returns the sum. A thread for each expert,
  /// which loads several counts together.
  __device__ __forceinline__ int sum(moe_table_shared const& shared, int e) const {
    constexpr int flight = 16;
    int before = 0;
#pragma unroll 1
    for (int i0 = 0; i0 < r_.shape.counted(); i0 += flight) {
      int x[flight];
#pragma unroll
      for (int j = 0; j < flight; ++j) x[j] = is_there(shared, i0 + j) ? *counts(e, i0 + j) : 0;
#pragma unroll
      for (int j = 0; j < flight; ++j) {
        int const i = i0 + j;
        if (i < r_.shape.counted()) *counts(e, i) = before;
        if (i < r_.shape.counted() && e == r_.shape.experts && i % r_.shape.segments() == 0)
          r_.source_rows[i / r_.shape.segments()] = before;
        before += x[j];
      }
    }
    return before;
  }
  /// Whether a segment has tokens.
  __device__ bool is_there(moe_table_shared const& shared, int i) const {
    if (i >= r_.shape.counted()) return false;
    return i % r_.shape.segments() * moe_shape::segment_tokens < shared.tokens[i / r_.shape.segments()];
  }

  // What the device's numbers exceed is noted; check() throws it

  __device__ void look_at_rows(int rows) const {
    if (rows <= r_.shape.max_rows) return;
    // Counts of a launch that was abandoned say nothing
    if (load(&detail::watch_of(w_, w_.rank())->abandoned) == 0)
      detail::note_misuse(w_, misuse::moe_rows, rows, r_.shape.max_rows + 1);
  }
  __device__ void look_at_tokens(block b) const {
    if (!b.leader() || !g_.device_tokens) return;
    int const tokens = *g_.device_tokens;
    if (tokens < 0 || tokens > g_.tokens) detail::note_misuse(w_, misuse::moe_tokens, tokens, g_.tokens + 1);
  }
  /// Entry i of this rank's own table: an expert, or -1.
  __device__ __forceinline__ int looked_at_expert(int i) const {
    std::int64_t const x = entry(i);
    if (x >= -1 && x < experts_of_all()) return int(x);
    detail::note_misuse(w_, misuse::moe_expert, int(clamp<std::int64_t>(x, -(1ll << 31), (1ll << 31) - 1)),
                        experts_of_all(), i / r_.shape.top_k);
    return -1;
  }

  channel_epoch const& e_;
  world_view const& w_;
  moe_dispatch_arguments const& g_;
  moe_routing_view const& r_;
  moe_inbox inbox_;
  moe_dispatch_flags flags_;
};

}  // namespace fusewire
