// How ranks learn where tokens go: each sends its table of experts to all, and counts in all tables what comes to it.
//
//   sender     experts, weights of a segment's tokens --> every rank's inbox, flag
//   counter    segment --> positions of its tokens within the segment, counts by expert
//   the last   counts of all segments --> exclusive prefix sums: where segments and experts begin --> flag `routed`
//
// Where tables are small, each block counts all of them, and the sums stay in its shared memory.
//
// Order is (source rank, token), never that of arrival: a segment's number says where its counts stand.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/ops/detail/moe_dispatch_arguments.hpp>
#include <fusewire/ops/detail/moe_table_shared.hpp>

namespace fusewire {

/// The tables of a dispatch.
class moe_table {
 public:
  /// Of a launch.
  __device__ moe_table(channel_epoch const& e, world_view const& w, moe_dispatch_arguments const& g,
                       moe_table_shared& shared)
      : e_(e), w_(w), g_(g), r_(g.routing), s_(shared), inbox_{g.routing.shape, g.token},
        flags_{g.routing.shape.segments()} {}

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
  __device__ __forceinline__ void count(block b, int source, int segment) const {
    constexpr int words = moe_table_shared::mask_words;
    unsigned* const masks = s_.masks();
    std::int16_t* const local = s_.local(r_.shape.experts);
    int const k = r_.shape.top_k, experts = r_.shape.experts, first = segment * moe_shape::segment_tokens;
    for (int i = b.rank(); i < (experts + 1) * words; i += b.size()) masks[i] = 0;
    e_.wait(b, source, segment);
    int const n = clamp(tokens_of(source, segment) - first, 0, moe_shape::segment_tokens);
    std::int64_t const begin = std::int64_t(source) * r_.shape.max_tokens + first;
    for (int i = b.rank(); i < n * k; i += b.size()) {
      int const e = local_expert(source, first * k + i);
      local[i] = std::int16_t(e);
      if (e >= 0) mark(masks, e, i / k);
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
  /// Adds up the counts of all segments, for `routed`. Called by: every thread of the last block that has counted.
  __device__ __forceinline__ void finish(block b) const {
    for (int s = b.rank(); s < w_.size(); s += b.size()) s_.tokens[s] = r_.tokens[s] = tokens_of(s, 0);
    b.sync();
    place_experts(b, true, sum_of_segments{*this}, [&](int e, int begin) { r_.expert_begins[e] = begin; });
    b.sync();
  }
  /// Counts all tables for this block alone (moe_shape::counts_alone). `writes`: one block writes the routing's sums.
  /// Called by: every thread of the block.
  __device__ __forceinline__ void count_all(block b, bool writes) const {
    constexpr int words = moe_table_shared::mask_words, flight = 8;
    unsigned* const masks = s_.masks();
    int *const firsts = s_.firsts(r_.shape), *const begins = s_.begins(r_.shape);
    int const k = r_.shape.top_k, columns = r_.shape.experts + 1, entries = r_.shape.max_tokens * k,
              all = w_.size() * entries;
    for (int i = b.rank(); i < w_.size() * columns * words; i += b.size()) masks[i] = 0;
    wait_all(b, w_, w_.size(), [&](int s) { return e_.from(s, 0); }, e_.number(), [](int s) { return s; });
    for (int s = b.rank(); s < w_.size(); s += b.size()) {
      s_.tokens[s] = tokens_of(s, 0);
      if (writes) r_.tokens[s] = s_.tokens[s];
    }
    b.sync();
#pragma unroll 1
    for (int i0 = b.rank(); i0 < all; i0 += flight * b.size()) {
      int x[flight];
#pragma unroll
      for (int j = 0; j < flight; ++j) {
        int const i = i0 + j * b.size(), source = i / entries, entry = i % entries;
        x[j] = i < all && entry / k < s_.tokens[source] ? local_expert(source, entry) : -1;
      }
#pragma unroll
      for (int j = 0; j < flight; ++j) {
        int const i = i0 + j * b.size();
        if (x[j] >= 0) mark(masks + i / entries * columns * words, x[j], i % entries / k);
      }
    }
    b.sync();
    auto const sum_of = [&](int e) {
      int before = 0;
      for (int s = 0; s < w_.size(); ++s) {
        if (writes && e == r_.shape.experts) r_.source_rows[s] = before;
        firsts[s * columns + e] = before;
        before += bits_below(masks + (s * columns + e) * words, moe_shape::segment_tokens);
      }
      return before;
    };
    place_experts(b, writes, sum_of, [&](int e, int begin) {
      begins[e] = begin;
      if (writes) r_.expert_begins[e] = begin;
    });
    b.sync();
  }

  /// How many tokens a source has, behind count_all() or `routed`.
  __device__ __forceinline__ int counted_tokens(int source) const {
    return r_.shape.counts_alone() && !g_.routed ? s_.tokens[source] : r_.tokens[source];
  }
  /// The number of a token among the received, -1 if it did not come, as counted in this launch.
  __device__ __forceinline__ int counted_row(int source, int t) const {
    int const experts = r_.shape.experts;
    if (r_.shape.counts_alone()) {
      unsigned const* const any = mask(source, experts);
      return any[t / 32] >> t % 32 & 1 ? s_.firsts(r_.shape)[source * (experts + 1) + experts] + bits_below(any, t)
                                       : -1;
    }
    int const in_segment = r_.row_of[std::int64_t(source) * r_.shape.max_tokens + t],
              first = *counts(experts, r_.counted(source, t / moe_shape::segment_tokens));
    return in_segment < 0 ? -1 : first + in_segment;
  }
  /// The row by_expert of a token, of which entry j is expert e, as counted in this launch.
  __device__ __forceinline__ int counted_place(int e, int source, int t, int j) const {
    if (r_.shape.counts_alone())
      return s_.begins(r_.shape)[e] + s_.firsts(r_.shape)[source * (r_.shape.experts + 1) + e] +
             bits_below(mask(source, e), t);
    return r_.expert_begins[e] + *counts(e, r_.counted(source, t / moe_shape::segment_tokens)) +
           r_.positions[(std::int64_t(source) * r_.shape.max_tokens + t) * r_.shape.top_k + j];
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
  /// Of a source's first segment, behind count_all().
  __device__ unsigned const* mask(int source, int e) const {
    return s_.masks() + (source * (r_.shape.experts + 1) + e) * moe_table_shared::mask_words;
  }
  /// Notes in a segment's masks that token t has expert e.
  __device__ void mark(unsigned* masks, int e, int t) const {
    for (int const column : {e, r_.shape.experts})
      platform::atomic_fetch_or<order::relaxed, scope::block>(&masks[column * moe_table_shared::mask_words + t / 32],
                                                              1u << t % 32);
  }
  /// Bits of a mask below bit t.
  __device__ static int bits_below(unsigned const* mask, int t) {
    int bits = 0;
#pragma unroll
    for (int i = 0; i < moe_table_shared::mask_words; ++i)
      if (i * 32 < t) bits += platform::bits_set(i == t / 32 ? mask[i] & ((1u << t % 32) - 1) : mask[i]);
    return bits;
  }

  /// Where experts begin, each at a multiple of the alignment; sum(e): its rows; begins(e, row). For e = experts they
  /// are all rows, and the end. Called by: every thread of the block.
  template <class Sum, class Begins>
  __device__ __forceinline__ void place_experts(block b, bool writes, Sum const& sum, Begins const& begins) const {
    int const experts = r_.shape.experts;
    int begin = 0;
#pragma unroll 1
    for (int e0 = 0; e0 <= experts; e0 += b.size()) {
      int const e = e0 + b.rank(), rows = e <= experts ? sum(e) : 0,
                aligned = e < experts ? ceil_div(rows, r_.shape.alignment) * r_.shape.alignment : 0;
      int all;
      int const at = begin + block_exclusive_sum(b, aligned, s_.words, all);
      begin += all;
      if (e <= experts) begins(e, at);
      if (writes && e < experts) r_.expert_rows[e] = rows, r_.expert_ends[e] = at + rows;
      if (writes && e == experts) {
        r_.source_rows[w_.size()] = rows;
        look_at_rows(r_.shape.layout == moe_layout::by_token ? rows : at);
      }
    }
  }

  /// The exclusive prefix sum, over the segments, of the counts of expert e; returns the sum. A thread for each expert,
  /// which loads several counts together.
  __device__ __forceinline__ int sum(int e) const {
    constexpr int flight = 16;
    int before = 0;
#pragma unroll 1
    for (int i0 = 0; i0 < r_.shape.counted(); i0 += flight) {
      int x[flight];
#pragma unroll
      for (int j = 0; j < flight; ++j) x[j] = is_there(i0 + j) ? *counts(e, i0 + j) : 0;
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
  /// sum(), inlined: as a lambda it is a function of its own in a program of many kernels.
  struct sum_of_segments {
    moe_table const& table;
    __device__ __forceinline__ int operator()(int e) const { return table.sum(e); }
  };
  /// Whether a segment has tokens.
  __device__ bool is_there(int i) const {
    if (i >= r_.shape.counted()) return false;
    return i % r_.shape.segments() * moe_shape::segment_tokens < s_.tokens[i / r_.shape.segments()];
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
  moe_table_shared& s_;
  moe_inbox inbox_;
  moe_dispatch_flags flags_;
};

}  // namespace fusewire
