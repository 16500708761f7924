// What the blocks of a combine do: chunks of results as they are sent and added up. The figure is in
// moe_combine_kernel.hpp.
#pragma once
#include <fusewire/comm/moe_arrivals.hpp>
#include <fusewire/comm/moe_chunks.hpp>
#include <fusewire/comm/tile_vectors.hpp>

namespace fusewire {

/// What the kernel gets.
template <class T>
struct moe_combine_arguments {
  moe_routing_view routing;  // of the dispatch
  matrix<T const> in;        // [max_rows, cols], by the routing's layout
  matrix<T> out;             // [tokens, cols]
  float const* weights;      // [max_received, top_k], or null: 1
  int senders;               // of the grid's blocks; the others receive. 0: each does both
};

namespace detail {

/// A block's shared memory: what it adds up for a chunk of tokens.
struct moe_partials_shared {
  int tokens[max_ranks];                                       // of each rank
  int row[moe_chunks::most_tokens];                            // -1: no partial result
  std::uint64_t ranks[moe_chunks::most_tokens];                // of this rank's own tokens
  int place[moe_chunks::most_tokens * moe_shape::most_top_k];  // by_expert: rows, -1 for none
  float weight[moe_chunks::most_tokens * moe_shape::most_top_k];
};

/// Chunks of results, as they are sent and added up. T: f16 or bf16. A thread has several vectors of a row, which it
/// loads together. Arrivals: rows of `in` that it waits for, or no_arrivals.
template <class T, class Arrivals>
class moe_results {
 public:
  using vector = vec16<T>;
  static constexpr int width = per_16_bytes<T>, flight = 4;
  using sums = float[flight][width];

  __device__ moe_results(channel_epoch const& e, world_view const& w, moe_combine_arguments<T> const& g,
                         moe_partials_shared& shared, Arrivals const& arrivals)
      : e_(e), w_(w), g_(g), r_(g.routing), s_(shared), arrivals_(arrivals), vectors_(g.in.cols / width) {}

  /// Reads how many tokens each rank has. Called by: every thread of the block, before the others.
  __device__ __forceinline__ void read_tokens(block b) const {
    for (int s = b.rank(); s < w_.size(); s += b.size()) s_.tokens[s] = r_.tokens[s];
    b.sync();
  }
  __device__ __forceinline__ moe_chunks chunks_of(int source) const {
    return moe_chunks::of(s_.tokens[source], vectors_ * int(sizeof(vector)));
  }

  /// Sends the partial results of a chunk of the tokens of the rank `ahead` places after this one.
  /// Called by: every thread of the block.
  __device__ __forceinline__ void send(block b, moe_chunks const& chunks, int ahead, int chunk) const {
    int const source = w_.next(ahead), begin = chunk * chunks.tokens_each, end = chunks.end(chunk, s_.tokens[source]);
    find_rows(b, source, begin, end);
#pragma unroll 1
    for (int t = begin; t < end; ++t) {
      if (s_.row[t - begin] < 0) continue;
#pragma unroll 1
      for (int v = b.rank(); v < vectors_; v += flight * b.size()) {
        sums sum{};
        add_partial(sum, b, t - begin, v);
        for_vectors(b, v, [&](int i, int at) {
          *inbox(source, w_.size() - ahead, t, at) = __builtin_bit_cast(platform::native16, rounded(sum[i]));
        });
      }
    }
    e_.signal(b, source, chunk);
  }
  /// Adds up the results of a chunk of this rank's tokens. Called by: every thread of the block.
  __device__ __forceinline__ void receive(block b, moe_chunks const& chunks, int chunk) const {
    int const me = w_.rank(), begin = chunk * chunks.tokens_each,
              end = min(chunks.end(chunk, s_.tokens[me]), g_.out.rows);
    if (begin + b.rank() < end) s_.ranks[b.rank()] = r_.token_ranks[begin + b.rank()];
    find_rows(b, me, begin, end);
    wait_all(
        b, w_, w_.size() - 1, [&](int p) { return e_.from(w_.next(p + 1), chunk); }, e_.number(),
        [&](int p) { return w_.next(p + 1); });
    bool const failed = e_.control().should_fill_nan();
#pragma unroll 1
    for (int t = begin; t < end; ++t) {
      std::uint64_t const ranks = s_.ranks[t - begin];
#pragma unroll 1
      for (int v = b.rank(); v < vectors_; v += flight * b.size()) {
        sums sum{};
#pragma unroll 1
        for (int s = 0; s < w_.size(); ++s) {
          if ((ranks >> s & 1) == 0) continue;
          if (s == me) {
            sums own{};
            if (s_.row[t - begin] >= 0) add_partial(own, b, t - begin, v);
            for_vectors(b, v, [&](int i, int) { add(sum[i], rounded(own[i]), 1); });
          } else {
            int const ahead = s - me + (s < me ? w_.size() : 0);
            add_vectors(sum, b, v, 1, [&](int at) { return __builtin_bit_cast(vector, *inbox(me, ahead, t, at)); });
          }
        }
        for_vectors(b, v, [&](int i, int at) {
          if (failed)
            for (float& x : sum[i]) x = __builtin_nanf("");
          *reinterpret_cast<bytes16*>(g_.out.at(t, at * width)) = __builtin_bit_cast(bytes16, rounded(sum[i]));
        });
      }
    }
    b.sync();
  }

 private:
  /// The rows of tokens [begin, end) of a source, when they are there. Called by: every thread of the block.
  __device__ __forceinline__ void find_rows(block b, int source, int begin, int end) const {
    int const k = r_.shape.top_k;
    if (begin + b.rank() < end) {
      int const row = r_.row_of[std::int64_t(source) * r_.shape.max_tokens + begin + b.rank()];
      // A routing of a failed launch may say anything
      s_.row[b.rank()] = unsigned(row) < unsigned(r_.shape.max_received()) ? row : -1;
    }
    b.sync();
    if (r_.shape.layout == moe_layout::by_token) return;
    for (int i = b.rank(); i < (end - begin) * k; i += b.size()) {
      int const row = s_.row[i / k], at = row * k + i % k, place = row < 0 ? -1 : r_.row_places[at];
      s_.place[i] = unsigned(place) < unsigned(r_.shape.max_rows) ? place : -1;
      s_.weight[i] = row >= 0 && g_.weights ? g_.weights[at] : 1;
      if constexpr (Arrivals::any)
        if (s_.place[i] >= 0) arrivals_.wait(r_.row_experts[at], s_.place[i]);
    }
    b.sync();
  }
  /// Adds what this rank's experts make of token i of the chunk to its vectors from v on.
  __device__ __forceinline__ void add_partial(sums& sum, block b, int i, int v) const {
    auto const add_row = [&](int row, float weight) {
      add_vectors(sum, b, v, weight, [&](int at) { return load_vec16(g_.in.at(row, at * width)); });
    };
    if (r_.shape.layout == moe_layout::by_token) return add_row(s_.row[i], 1);
    int const k = r_.shape.top_k;
#pragma unroll 1
    for (int j = i * k; j < (i + 1) * k; ++j)
      if (s_.place[j] >= 0) add_row(s_.place[j], s_.weight[j]);
  }
  /// Calls visit(i, at) for this thread's vectors of a row from v on: the i-th is vector `at`.
  template <class Visit>
  __device__ __forceinline__ void for_vectors(block b, int v, Visit const& visit) const {
#pragma unroll
    for (int i = 0; i < flight; ++i)
      if (v + i * b.size() < vectors_) visit(i, v + i * b.size());
  }
  template <class Load>
  __device__ __forceinline__ void add_vectors(sums& sum, block b, int v, float weight, Load const& load) const {
    vector x[flight];
    for_vectors(b, v, [&](int i, int at) { x[i] = load(at); });
    for_vectors(b, v, [&](int i, int) { add(sum[i], x[i], weight); });
  }
  static __device__ __forceinline__ void add(float (&sum)[width], vector const& x, float weight) {
#pragma unroll
    for (int j = 0; j < width; ++j) sum[j] += weight * float(x.element[j]);
  }
  static __device__ __forceinline__ vector rounded(float const (&sum)[width]) {
    vector x;
#pragma unroll
    for (int j = 0; j < width; ++j) x.element[j] = T(sum[j]);
    return x;
  }
  /// From the rank `ahead` places after the owner of the inbox.
  __device__ platform::native16* inbox(int owner, int ahead, int t, int v) const {
    std::int64_t const row = std::int64_t(ahead - 1) * r_.shape.max_tokens + t;
    return e_.inbox<platform::native16>(owner) + row * vectors_ + v;
  }

  channel_epoch const& e_;
  world_view const& w_;
  moe_combine_arguments<T> const& g_;
  moe_routing_view const& r_;
  moe_partials_shared& s_;
  Arrivals const& arrivals_;
  int vectors_;  // of 16 bytes, of a row
};

/// Combines: sends results to the ranks of their tokens, and adds up those that come. `arrivals`: see moe_results.
/// Called by: every thread of every block of the launch.
template <class T, class Arrivals>
__device__ __forceinline__ void combine_results(block b, channel_epoch const& e, world_view const& w,
                                                moe_combine_arguments<T> const& g, moe_partials_shared& shared,
                                                Arrivals const& arrivals) {
  moe_results<T, Arrivals> const results(e, w, g, shared, arrivals);
  results.read_tokens(b);
  int const others = w.size() - 1;
  int const receiver = b.index() - g.senders, receivers = b.count() - g.senders;
  if (receiver < 0 || g.senders == 0) {
    int most = 0;
    for (int p = 1; p <= others; ++p) most = max(most, results.chunks_of(w.next(p)).count);
#pragma unroll 1
    for (int i = b.index(); i < most * others; i += g.senders == 0 ? b.count() : g.senders) {
      int const ahead = 1 + i % others;
      moe_chunks const chunks = results.chunks_of(w.next(ahead));
      if (i / others < chunks.count) results.send(b, chunks, ahead, i / others);
    }
  }
  if (receiver >= 0) {
    moe_chunks const chunks = results.chunks_of(w.rank());
#pragma unroll 1
    for (int i = receiver; i < chunks.count; i += receivers) results.receive(b, chunks, i);
  }
}

}  // namespace detail

}  // namespace fusewire
