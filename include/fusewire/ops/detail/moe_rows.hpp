// What the blocks of a dispatch do: chunks of tokens as they are sent and received, and the order of it all. The figure
// is in moe_dispatch_kernel.hpp.
#pragma once
#include <fusewire/comm/moe_arrivals.hpp>
#include <fusewire/device/ticket.hpp>
#include <fusewire/ops/detail/moe_table.hpp>

namespace fusewire {

namespace detail {

/// A block's shared memory when it sends or receives a chunk.
struct moe_chunk_shared {
  int tokens[max_ranks];  // of each source
  std::uint64_t ranks[moe_chunks::most_tokens];
  int row[moe_chunks::most_tokens];
  int place[moe_chunks::most_tokens * moe_shape::most_top_k];
};

/// Copies a row of bytes, a multiple of Word's, to the places that to(copy) calls copy(place) for.
/// Called by: every thread of the block.
template <class Word, class To>
__device__ __forceinline__ void copy_row(block b, std::byte const* from, int bytes, To const& to) {
  constexpr int flight = 4;
  int const words = bytes / int(sizeof(Word));
  auto const* const f = reinterpret_cast<Word const*>(from);
#pragma unroll 1
  for (int i = b.rank(); i < words; i += flight * b.size()) {
    Word x[flight];
#pragma unroll
    for (int j = 0; j < flight; ++j)
      if (i + j * b.size() < words) x[j] = f[i + j * b.size()];
    to([&](std::byte* place) {
      auto* const t = reinterpret_cast<Word*>(place);
#pragma unroll
      for (int j = 0; j < flight; ++j)
        if (i + j * b.size() < words) t[i + j * b.size()] = x[j];
    });
  }
}

/// Chunks of tokens, as they are sent and received.
class moe_rows {
 public:
  __device__ moe_rows(channel_epoch const& e, world_view const& w, moe_dispatch_arguments const& g,
                      moe_table const& table, moe_chunk_shared& shared)
      : e_(e), w_(w), g_(g), r_(g.routing), table_(table), inbox_{g.routing.shape, g.token},
        flags_{g.routing.shape.segments()}, s_(shared) {}

  /// Sends a chunk of this rank's tokens. Called by: every thread of the block.
  __device__ __forceinline__ void send(block b, moe_chunks const& chunks, int chunk, int tokens) const {
    int const begin = chunk * chunks.tokens_each, end = chunks.end(chunk, tokens);
    find_ranks(b, begin, end);
#pragma unroll 1
    for (int t = begin; t < end; ++t) {
      std::uint64_t const ranks = s_.ranks[t - begin];
      auto const to_all = [&](int offset) {
        return [this, ranks, t, offset](auto const& copy) {
#pragma unroll 1
          for (int p = 1; p < w_.size(); ++p)
            if (ranks >> w_.next(p) & 1) copy(inbox_.row(e_.inbox<std::byte>(w_.next(p)), w_.size() - p, t) + offset);
        };
      };
      copy_row<platform::native16>(b, g_.in.rows + t * g_.in.row_pitch, g_.token.row, to_all(0));
      if (g_.token.scales > 0)
        copy_row<std::uint32_t>(b, g_.in.scales + t * g_.in.scale_pitch, g_.token.scales, to_all(g_.token.row));
    }
    signal_all(b, w_.size() - 1, [&](int p) { return e_.to(w_.next(p + 1), flags_.chunk(chunk)); }, e_.number());
  }

  /// Reads how many tokens each source has, behind `routed`; returns the most chunks of any of them. Called by: every
  /// thread of the block.
  __device__ __forceinline__ int read_tokens(block b) const {
    for (int s = b.rank(); s < w_.size(); s += b.size()) s_.tokens[s] = table_.counted_tokens(s);
    b.sync();
    int most = 0;
    for (int s = 0; s < w_.size(); ++s) most = max(most, chunks_of(s).count);
    return most;
  }
  /// The chunks of a source's tokens, behind read_tokens().
  __device__ __forceinline__ moe_chunks chunks_of(int source) const {
    return moe_chunks::of(tokens_of(source), g_.token.pitch());
  }
  /// Receives a chunk of a source's tokens, behind `routed`, and tells `arrivals`. Called by: every thread of the
  /// block.
  template <class Arrivals>
  __device__ __forceinline__ void receive(block b, moe_chunks const& chunks, int source, int chunk,
                                          Arrivals const& arrivals) const {
    int const begin = chunk * chunks.tokens_each, end = chunks.end(chunk, tokens_of(source)), k = r_.shape.top_k;
    if (begin + b.rank() < end) s_.row[b.rank()] = row_of(source, begin + b.rank());
    b.sync();
    for (int i = b.rank(); i < (end - begin) * k; i += b.size())
      s_.place[i] = place_of(source, begin + i / k, i % k, s_.row[i / k]);
    b.sync();
    bool const own = source == w_.rank();
    if (!own) e_.wait(b, source, flags_.chunk(chunk));
    int const ahead = source - w_.rank() + (source < w_.rank() ? w_.size() : 0);
#pragma unroll 1
    for (int t = begin; t < end; ++t) {
      int const row = s_.row[t - begin];
      if (row < 0) continue;
      std::byte const* const came = own ? nullptr : inbox_.row(e_.inbox<std::byte>(), ahead, t);
      auto const to_places = [&](std::byte* out, std::int64_t pitch) {
        return [this, out, pitch, row, k, places = s_.place + (t - begin) * k](auto const& copy) {
          if (r_.shape.layout == moe_layout::by_token) return copy(out + row * pitch);
#pragma unroll 1
          for (int j = 0; j < k; ++j)
            if (places[j] >= 0) copy(out + places[j] * pitch);
        };
      };
      copy_row<platform::native16>(b, own ? g_.in.rows + t * g_.in.row_pitch : came, g_.token.row,
                                   to_places(g_.out.rows, g_.out.row_pitch));
      if (g_.token.scales > 0)
        copy_row<std::uint32_t>(b, own ? g_.in.scales + t * g_.in.scale_pitch : came + g_.token.row, g_.token.scales,
                                to_places(g_.out.scales, g_.out.scale_pitch));
    }
    if constexpr (Arrivals::any) count_arrived(b, end - begin, arrivals);
    b.sync();
  }

 private:
  /// Of a source. The same in all lanes, so that barriers are outside of divided code.
  __device__ int tokens_of(int source) const { return platform::uniform(s_.tokens[source]); }
  /// Tells `arrivals` of the rows by_expert of the chunk's `tokens` tokens, which the block has stored. One wave does
  /// it, so that there is one release. Called by: every thread of the block.
  template <class Arrivals>
  __device__ __forceinline__ void count_arrived(block b, int tokens, Arrivals const& arrivals) const {
    int const k = r_.shape.top_k;
    platform::drain_stores();
    b.sync();
    wave const w;
    if (platform::uniform(w.index()) > 0) return;
    platform::fence<order::release, scope::device>();
#pragma unroll 1
    for (int i = w.rank(); i < tokens * k; i += w.size()) {
      int const place = s_.place[i], row = s_.row[i / k];
      bool counts = place >= 0;
      for (int j = i / k * k; j < i; ++j) counts &= s_.place[j] != place;  // an expert that a token names twice
      if (counts) arrivals.add(r_.row_experts[std::int64_t(row) * k + i % k], place);
    }
  }
  /// A bit for each rank that has experts of a token, of tokens [begin, end). Called by: every thread of the block.
  __device__ __forceinline__ void find_ranks(block b, int begin, int end) const {
    int const t = begin + b.rank(), k = r_.shape.top_k;
    if (t < end) s_.ranks[b.rank()] = g_.routed ? r_.token_ranks[t] : 0;
    b.sync();
    if (g_.routed) return;
    for (int i = b.rank(); i < (end - begin) * k; i += b.size())
      if (int const x = table_.own_expert(begin * k + i); x >= 0)
        platform::atomic_fetch_or<order::relaxed, scope::block>(
            &s_.ranks[i / k], std::uint64_t(1) << unsigned(x) / unsigned(r_.shape.experts));
    b.sync();
    if (t < end) r_.token_ranks[t] = s_.ranks[b.rank()];
  }
  /// The number of a token among the received, -1 if it did not come.
  __device__ int row_of(int source, int t) const {
    std::int32_t& known = r_.row_of[std::int64_t(source) * r_.shape.max_tokens + t];
    int row = g_.routed ? known : table_.counted_row(source, t);
    if (unsigned(row) >= unsigned(r_.shape.max_received())) row = -1;
    if (!g_.routed) {
      known = row;
      if (row >= 0) r_.row_tokens[row] = source * r_.shape.max_tokens + t;
    }
    return row;
  }
  /// The row by_expert of entry j of a token, -1 if it has none here.
  __device__ int place_of(int source, int t, int j, int row) const {
    if (row < 0) return -1;
    int const k = r_.shape.top_k, i = row * k + j;
    int place = -1;
    if (g_.routed) {
      place = r_.row_places[i];
    } else {
      int const e = table_.local_expert(source, t * k + j);
      if (e >= 0) place = table_.counted_place(e, source, t, j);
      r_.row_experts[i] = e, r_.row_places[i] = place;
      r_.row_weights[i] = e >= 0 ? table_.weight(source, t * k + j) : 0;
    }
    return unsigned(place) < unsigned(r_.shape.max_rows) ? place : -1;
  }

  channel_epoch const& e_;
  world_view const& w_;
  moe_dispatch_arguments const& g_;
  moe_routing_view const& r_;
  moe_table const& table_;
  moe_inbox inbox_;
  moe_dispatch_flags flags_;
  moe_chunk_shared& s_;
};

/// Dispatches: sends this rank's tokens, finds out where tokens go, and receives. `arrivals`: told when this rank knows
/// where its rows go, and of the rows that have come; or no_arrivals.
/// Called by: every thread of the first `blocks` blocks of the launch. `shared`: moe_dispatch_shared() bytes.
template <class Arrivals>
__device__ __forceinline__ void dispatch_tokens(block b, int blocks, channel_epoch const& e, world_view const& w,
                                                moe_dispatch_arguments const& g, void* shared,
                                                Arrivals const& arrivals) {
  auto& of_chunk = *static_cast<moe_chunk_shared*>(shared);
  auto& of_table = *reinterpret_cast<moe_table_shared*>(&of_chunk + 1);
  moe_table const table(e, w, g, of_table);
  moe_rows const rows(e, w, g, table, of_chunk);
  moe_routing_view const& r = g.routing;
  int const ranks = w.size(), segments = r.shape.segments();
  int const receiver = b.index() - g.senders, receivers = blocks - g.senders;
  if (receiver < 0 || g.senders == 0) {
    int const step = g.senders == 0 ? blocks : g.senders;
#pragma unroll 1
    for (int i = b.index(); i < segments && !g.routed; i += step) table.send(b, i);
    int const tokens = platform::uniform(table.own_tokens());
    moe_chunks const chunks = moe_chunks::of(tokens, g.token.pitch());
#pragma unroll 1
    for (int i = b.index(); i < chunks.count; i += step) rows.send(b, chunks, i, tokens);
  }
  if (receiver < 0) return;
  int const routed = moe_dispatch_flags{segments}.routed();
  bool const shares = !g.routed && !r.shape.counts_alone();  // the counting of tables with other blocks
  bool knows = receiver == 0;                                // the whole routing, and tells the others
  if (shares) {
    int const counters = min(receivers, r.shape.counted());
#pragma unroll 1
    for (int i = receiver; i < r.shape.counted(); i += receivers) table.count(b, i % ranks, i / ranks);
    knows = receiver < counters && last_to_arrive(b, r.ticket, unsigned(counters), &of_table.word);
    if (knows) table.finish(b);
  } else if (!g.routed) {
    table.count_all(b, receiver == 0);
  }
  if (shares || Arrivals::any) {
    if (platform::uniform(int(knows)) != 0) {
      arrivals.prepare(b);
      e.signal_here(b, w.rank(), routed);
    }
    e.wait(b, w.rank(), routed);
  }
  int const most = platform::uniform(rows.read_tokens(b));
#pragma unroll 1
  for (int i = receiver; i < most * ranks; i += receivers) {
    int const source = platform::uniform(w.next(i % ranks));
    moe_chunks const chunks = rows.chunks_of(source);
    if (i / ranks < chunks.count) rows.receive(b, chunks, source, i / ranks, arrivals);
  }
}

}  // namespace detail

/// Shared memory of a block, in bytes, for the experts of a rank.
inline constexpr int moe_dispatch_shared(moe_shape const& s) {
  return int(sizeof(detail::moe_chunk_shared)) + moe_table_shared::bytes(s);
}

}  // namespace fusewire
