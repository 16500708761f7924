// How ranks learn where tokens go: each sends its table of experts to all, and counts in all tables what comes to it.
//
//   sender     experts, weights of a segment's tokens --> every rank's inbox, flag
//   counter    segment --> positions of its tokens within the segment, counts by expert
//   the last   counts of all segments --> exclusive prefix sums: where segments and experts begin --> flag `routed`
//
// Order is (source rank, token), never that of arrival: a segment's number says where its counts stand.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/ops/detail/moe_dispatch_arguments.hpp>

namespace fusewire {

/// Shared memory of a block that sends and counts tables.
struct moe_table_shared {
  /// By entry of a token, then by token: an expert of this rank; `none`: of another
  std::uint16_t local[moe_shape::most_top_k * moe_shape::segment_tokens];
  int word;
};

/// The tables of a dispatch.
class moe_table {
 public:
  static constexpr std::uint16_t none = 0xffff;  // no expert of this rank

  __device__ moe_table(channel_epoch const& e, world_view const& w, moe_dispatch_arguments const& g)
      : e_(e), w_(w), g_(g), r_(g.routing), inbox_{g.routing.shape, g.token}, flags_{g.routing.shape.segments()} {}

  /// How many tokens this rank has; no more than there is room for.
  __device__ __forceinline__ int own_tokens() const {
    if (g_.routed) return r_.tokens[w_.rank()];
    return g_.device_tokens ? clamp(*g_.device_tokens, 0, g_.tokens) : g_.tokens;
  }
  /// Entry i of this rank's own table: an expert, or -1.
  __device__ __forceinline__ int own_expert(int i) const {
    std::int64_t const x = g_.wide ? static_cast<std::int64_t const*>(g_.experts)[i]
                                   : std::int64_t(static_cast<std::int32_t const*>(g_.experts)[i]);
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
      look_at_expert(j);
      int const x = own_expert(j);
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
    e_.wait(b, source, segment);
    int const k = r_.shape.top_k, first = segment * moe_shape::segment_tokens,
              n = clamp(tokens_of(source, segment) - first, 0, moe_shape::segment_tokens);
    for (int i = b.rank(); i < n * k; i += b.size())
      shared.local[i % k * moe_shape::segment_tokens + i / k] = std::uint16_t(local_expert(source, first * k + i));
    b.sync();
    wave const g;
#pragma unroll 1
    for (int e = g.index(); e <= r_.shape.experts; e += b.size() / wave::width) {
      int const rows = count(g, shared, e, source, first, n);
      if (g.leader()) *counts(e, r_.counted(source, segment)) = rows;
    }
    b.sync();
  }
  /// Adds up the counts of all segments. Called by: every thread of the last block that has counted.
  __device__ __forceinline__ void finish(block b) const {
    wave const g;
#pragma unroll 1
    for (int e = g.index(); e <= r_.shape.experts; e += b.size() / wave::width) sum(g, e);
    b.sync();
    if (g.index() == 0) place_experts(g);
    for (int s = b.rank(); s < w_.size(); s += b.size()) {
      r_.tokens[s] = tokens_of(s, 0);
      r_.source_rows[s] = *counts(r_.shape.experts, r_.counted(s, 0));
    }
    e_.signal_here(b, w_.rank(), flags_.routed());
  }

 private:
  __device__ std::byte* here() const { return e_.inbox<std::byte>(); }
  __device__ int experts_of_all() const { return w_.size() * r_.shape.experts; }
  __device__ std::int32_t* counts(int expert, int segment) const {
    return r_.counts + expert * r_.shape.counted() + segment;
  }
  __device__ static int bits_below(std::uint64_t mask, int lane) {
    return platform::bits_set(mask & ((std::uint64_t(1) << lane) - 1));
  }

  /// Tokens of a segment with expert e, or for e = experts those with any of this rank.
  __device__ __forceinline__ int count(wave g, moe_table_shared const& shared, int e, int source, int first,
                                       int n) const {
    int const k = r_.shape.top_k;
    bool const any = e == r_.shape.experts;
    int rows = 0;
#pragma unroll 1
    for (int t0 = 0; t0 < n; t0 += wave::width) {
      int const t = t0 + g.rank();
      unsigned hits = 0;
      for (int j = 0; j < k && t < n; ++j) {
        std::uint16_t const x = shared.local[j * moe_shape::segment_tokens + t];
        hits |= unsigned(any ? x != none : x == e) << j;
      }
      std::uint64_t const mask = platform::ballot(hits != 0);
      int const position = rows + bits_below(mask, g.rank());
      std::int64_t const place = std::int64_t(source) * r_.shape.max_tokens + first + t;
      if (any && t < n) r_.row_of[place] = hits ? position : -1;
      for (; !any && hits; hits &= hits - 1) r_.positions[place * k + lowest(hits)] = position;
      rows += platform::bits_set(mask);
    }
    return rows;
  }
  __device__ static int lowest(unsigned bits) { return platform::bits_set((bits & -bits) - 1); }

  /// The exclusive prefix sum, over the segments, of the counts of expert e.
  __device__ __forceinline__ void sum(wave g, int e) const {
    int before = 0;
#pragma unroll 1
    for (int i0 = 0; i0 < r_.shape.counted(); i0 += wave::width) {
      int const i = i0 + g.rank(), mine = i < r_.shape.counted() ? *counts(e, i) : 0, up_to = wave_sum(g, mine);
      if (i < r_.shape.counted()) *counts(e, i) = before + up_to - mine;
      before += platform::readlane(up_to, wave::width - 1);
    }
    if (!g.leader()) return;
    if (e < r_.shape.experts) {
      r_.expert_rows[e] = before;
    } else {
      r_.source_rows[w_.size()] = before;
      if (r_.shape.layout == moe_layout::by_token) look_at_rows(before);
    }
  }
  /// Where experts begin, each at a multiple of the alignment.
  __device__ __forceinline__ void place_experts(wave g) const {
    int before = 0;
#pragma unroll 1
    for (int e0 = 0; e0 < r_.shape.experts; e0 += wave::width) {
      int const e = e0 + g.rank(), rows = e < r_.shape.experts ? r_.expert_rows[e] : 0,
                aligned = ceil_div(rows, r_.shape.alignment) * r_.shape.alignment, up_to = wave_sum(g, aligned);
      if (e < r_.shape.experts) r_.expert_begins[e] = before + up_to - aligned;
      before += platform::readlane(up_to, wave::width - 1);
    }
    if (!g.leader()) return;
    r_.expert_begins[r_.shape.experts] = before;
    if (r_.shape.layout == moe_layout::by_expert) look_at_rows(before);
  }
  /// The sum of x over the lanes up to this one.
  __device__ static int wave_sum(wave g, int x) {
#pragma unroll
    for (int d = 1; d < wave::width; d *= 2) {
      int const y = platform::shuffle(x, (g.rank() - d) & (wave::width - 1));
      if (g.rank() >= d) x += y;
    }
    return x;
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
  __device__ void look_at_expert(int i) const {
    std::int64_t const x = g_.wide ? static_cast<std::int64_t const*>(g_.experts)[i]
                                   : std::int64_t(static_cast<std::int32_t const*>(g_.experts)[i]);
    if (x < -1 || x >= experts_of_all())
      detail::note_misuse(w_, misuse::moe_expert, int(clamp<std::int64_t>(x, -(1ll << 31), (1ll << 31) - 1)),
                          experts_of_all(), i / r_.shape.top_k);
  }

  channel_epoch const& e_;
  world_view const& w_;
  moe_dispatch_arguments const& g_;
  moe_routing_view const& r_;
  moe_inbox inbox_;
  moe_dispatch_flags flags_;
};

}  // namespace fusewire
