// Results of experts back to their tokens' ranks, and added up there, in one kernel. The operator is in
// moe_combine.hpp.
//
//   senders    chunk of a source's tokens: partial result --> inbox of the source, flag of the chunk
//   receivers  chunk of this rank's tokens: flags of all ranks --> partial results of the token's ranks, added --> out
//
// A partial result is what one rank's experts make of a token: its row by_token; by_expert the weighted sum of its
// rows, in the order of its table, in fp32, rounded to T once. So a token costs a row for each rank, not for each
// expert. A receiver adds them in the order of ranks in fp32, and rounds to T once. This rank's own partial results
// stay in registers.
//
// Deadlock: all blocks are resident (launch() checks). Senders wait for nothing; a block of both kinds sends first.
//
// Reuse: the inbox by the channel's argument.
//
// Abandonment: what a timed-out wait leaves is NaN if the channel poisons.
#pragma once
#include <fusewire/comm/moe_chunks.hpp>
#include <fusewire/comm/moe_routing_view.hpp>
#include <fusewire/comm/tile_vectors.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/ops/detail/moe_blocks.hpp>

namespace fusewire {

/// What the kernel gets.
template <class T>
struct moe_combine_arguments {
  moe_routing_view routing;
  matrix<T const> in;    // [max_rows, cols], by the routing's layout
  matrix<T> out;         // [tokens, cols]
  float const* weights;  // [max_received, top_k], or null: 1
  int senders;           // of the grid's blocks; the others receive. 0: each does both
};

namespace detail {

/// Chunks of results, as they are sent and added up. T: f16 or bf16.
template <class T>
class moe_results {
 public:
  using vector = vec16<T>;
  static constexpr int width = per_16_bytes<T>;

  __device__ moe_results(channel_epoch const& e, world_view const& w, moe_combine_arguments<T> const& g)
      : e_(e), w_(w), g_(g), r_(g.routing), vectors_(g.in.cols / width) {}

  __device__ moe_chunks chunks_of(int source) const {
    return moe_chunks::of(r_.tokens[source], vectors_ * int(sizeof(vector)));
  }

  /// Sends the partial results of a chunk of the tokens of the rank `ahead` places after this one.
  /// Called by: every thread of the block.
  __device__ __forceinline__ void send(block b, moe_chunks const& chunks, int ahead, int chunk) const {
    int const source = w_.next(ahead), end = chunks.end(chunk, r_.tokens[source]);
#pragma unroll 1
    for (int t = chunk * chunks.tokens_each; t < end; ++t) {
      int const row = row_of(source, t);
      if (row < 0) continue;
#pragma unroll 1
      for (int v = b.rank(); v < vectors_; v += b.size())
        *at(source, w_.size() - ahead, t, v) = __builtin_bit_cast(platform::native16, partial(row, v));
    }
    e_.signal(b, source, chunk);
  }
  /// Adds up the results of a chunk of this rank's tokens. Called by: every thread of the block.
  __device__ __forceinline__ void receive(block b, moe_chunks const& chunks, int chunk) const {
    wait_all(
        b, w_, w_.size() - 1, [&](int p) { return e_.from(w_.next(p + 1), chunk); }, e_.number(),
        [&](int p) { return w_.next(p + 1); });
    bool const failed = e_.control().should_fill_nan();
    int const end = min(chunks.end(chunk, r_.tokens[w_.rank()]), g_.out.rows);
#pragma unroll 1
    for (int t = chunk * chunks.tokens_each; t < end; ++t) {
      std::uint64_t const ranks = r_.token_ranks[t];
#pragma unroll 1
      for (int v = b.rank(); v < vectors_; v += b.size()) {
        float sum[width] = {};
#pragma unroll 1
        for (int s = 0; s < w_.size(); ++s) {
          if ((ranks >> s & 1) == 0) continue;
          int const ahead = s - w_.rank() + (s < w_.rank() ? w_.size() : 0);
          add(sum, ahead == 0 ? partial(row_of(s, t), v) : __builtin_bit_cast(vector, *at(w_.rank(), ahead, t, v)));
        }
        vector const x = rounded(sum, failed);
        *reinterpret_cast<bytes16*>(g_.out.at(t, v * width)) = __builtin_bit_cast(bytes16, x);
      }
    }
  }

 private:
  /// The number of a token among the received; -1 if it did not come, or the routing is that of a failed launch.
  __device__ int row_of(int source, int t) const {
    int const row = r_.row_of[std::int64_t(source) * r_.shape.max_tokens + t];
    return unsigned(row) < unsigned(r_.shape.max_received()) ? row : -1;
  }
  /// Vector v of what this rank's experts make of a token that has come.
  __device__ __forceinline__ vector partial(int row, int v) const {
    if (row < 0) return {};
    if (r_.shape.layout == moe_layout::by_token) return load_vec16(g_.in.at(row, v * width));
    float sum[width] = {};
#pragma unroll 1
    for (int j = 0; j < r_.shape.top_k; ++j) {
      int const i = row * r_.shape.top_k + j, place = r_.row_places[i];
      if (unsigned(place) >= unsigned(r_.shape.max_rows)) continue;
      add(sum, load_vec16(g_.in.at(place, v * width)), g_.weights ? g_.weights[i] : 1.0f);
    }
    return rounded(sum, false);
  }
  __device__ static void add(float (&sum)[width], vector const& x, float weight = 1) {
#pragma unroll
    for (int j = 0; j < width; ++j) sum[j] += weight * float(x.element[j]);
  }
  __device__ static vector rounded(float const (&sum)[width], bool failed) {
    vector x;
#pragma unroll
    for (int j = 0; j < width; ++j) x.element[j] = T(failed ? __builtin_nanf("") : sum[j]);
    return x;
  }
  /// From the rank `ahead` places after the owner of the inbox.
  __device__ platform::native16* at(int inbox, int ahead, int t, int v) const {
    std::int64_t const row = std::int64_t(ahead - 1) * r_.shape.max_tokens + t;
    return e_.inbox<platform::native16>(inbox) + row * vectors_ + v;
  }

  channel_epoch const& e_;
  world_view const& w_;
  moe_combine_arguments<T> const& g_;
  moe_routing_view const& r_;
  int vectors_;  // of 16 bytes, of a row
};

}  // namespace detail

/// Sends results to the ranks of their tokens and adds them up. Called by: moe_combine, on every rank.
template <class T>
__global__ void __launch_bounds__(moe_threads)
    moe_combine_kernel(__grid_constant__ channel_view const ch, __grid_constant__ moe_combine_arguments<T> const g) {
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::moe_results<T> const results(e, ch.world, g);
  int const others = ch.world.size() - 1;
  int const receiver = b.index() - g.senders, receivers = b.count() - g.senders;
  if (receiver < 0 || g.senders == 0) {
    int most = 0;
    for (int p = 1; p <= others; ++p) most = max(most, results.chunks_of(ch.world.next(p)).count);
#pragma unroll 1
    for (int i = b.index(); i < most * others; i += g.senders == 0 ? b.count() : g.senders) {
      int const ahead = 1 + i % others;
      moe_chunks const chunks = results.chunks_of(ch.world.next(ahead));
      if (i / others < chunks.count) results.send(b, chunks, ahead, i / others);
    }
  }
  if (receiver >= 0) {
    moe_chunks const chunks = results.chunks_of(ch.world.rank());
#pragma unroll 1
    for (int i = receiver; i < chunks.count; i += receivers) results.receive(b, chunks, i);
  }
  e.end(b);
}

}  // namespace fusewire
