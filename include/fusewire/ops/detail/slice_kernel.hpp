// Collectives that copy: all-gather and all-to-all in one kernel. Each rank sends every other one a slice of bytes. The
// operators are in all_gather.hpp, all_to_all.hpp and all_to_all_v.hpp.
//
//   slice for rank p --put--> rank p
//   rank p: own slice --> out;  wait for all ranks' slices --> out
//
//   equal_slices     all slices have as many bytes; all-gather sends each rank the same one
//   counted_slices   how many rows a slice has stands in device memory; ranks tell each other in LL words
//
// Slices are cut into rows of a vector or two of each thread, and these into chunks. With flags some blocks send and
// some take, so that links stay busy. With LL words every block does both, one after the other.
//
// Deadlock: all blocks are resident (launch() checks). Counts and chunks are sent without waiting, then taken.
//
// Order: flags publish a chunk's vectors; LL words carry their launch. A rank raises a chunk's flag on itself, too:
// then what it sends of this chunk has been read, to all ranks, and equal slices may be overwritten by what comes. With
// LL words the thread that takes a vector has sent it before.
//
// Reuse: the inbox and the LL buffers by the channel's argument.
//
// Abandonment: what a timed-out wait leaves are bytes of 0xff, NaN in each type, with LL words; with flags if the
// channel poisons. Counts that do not come are 0.
#pragma once
#include <fusewire/comm/byte_slice.hpp>
#include <fusewire/ops/detail/early_ticket.hpp>
#include <fusewire/ops/detail/for_chunks.hpp>
#include <fusewire/ops/detail/row_plan.hpp>

namespace fusewire {

/// Slices of one size, at equal distances.
struct equal_slices {
  static constexpr bool equal = true;  // a chunk exists in all slices or in none
  struct table {};                     // shared memory of a block

  std::byte const* in;             // of rank 0
  std::byte* out;                  // from rank 0
  std::int64_t bytes;              // of a slice
  std::int64_t in_step, out_step;  // bytes from one rank's slice to the next's; all ranks get the same one: 0

  /// Nothing has to be exchanged before.
  __device__ void begin(block, channel_epoch const&, world_view const&, row_arguments const&, table&) const {}
  /// What this rank sends to `peer`.
  __device__ byte_slice<std::byte const> sent(table const&, int peer) const { return {in + peer * in_step, bytes}; }
  /// Where what `source` sends is stored.
  __device__ byte_slice<std::byte> received(table const&, int source) const { return {out + source * out_step, bytes}; }
  /// Bytes that `source` sends.
  __device__ std::int64_t coming(table const&, int) const { return bytes; }
  /// Whether all ranks are sent the same.
  __device__ bool same() const { return in_step == 0; }
};

/// Integers of 4 or 8 bytes in device memory.
struct device_indices {
  void* data = nullptr;  // may be null
  bool wide = false;     // 8 bytes

  /// Element i. Requires: data.
  __device__ std::int64_t operator[](int i) const {
    return wide ? static_cast<std::int64_t const*>(data)[i] : static_cast<std::int32_t const*>(data)[i];
  }
  /// Stores element i, if there is memory for it.
  __device__ void set(int i, std::int64_t x) const {
    if (!data) return;
    if (wide) static_cast<std::int64_t*>(data)[i] = x;
    else static_cast<std::int32_t*>(data)[i] = std::int32_t(x);
  }
};

/// Slices of rows, whose numbers stand in device memory.
struct counted_slices {
  static constexpr bool equal = false;  // see equal_slices
  /// Rows, by the other rank: what is sent and received, and where it begins.
  struct table {
    int sent[max_ranks], sent_from[max_ranks];        // in `in`
    int received[max_ranks], received_at[max_ranks];  // in `out`
  };

  std::byte const* in;                                            // [in_rows]
  std::byte* out;                                                 // [out_rows]
  std::int64_t row;                                               // bytes
  int in_rows, out_rows, max_rows;                                // max_rows: of a slice
  device_indices in_counts, in_offsets, out_counts, out_offsets;  // [W]
  ll_buffer_view counts;                                          // a record of one word

  /// Reads what this rank sends, tells the others, and has them tell what they send: the blocks that take need it.
  __device__ void begin(block b, channel_epoch const& e, world_view const& w, row_arguments const& g, table& t) const {
    ll_slot const slot(counts, w, e.number());
    for (int p = b.rank(); p < w.size(); p += b.size()) {
      std::int64_t from = 0;
      if (in_offsets.data) from = in_offsets[p];
      else
        for (int q = 0; q < p; ++q) from += clamp(in_counts[q], std::int64_t(0), std::int64_t(in_rows));
      from = clamp(from, std::int64_t(0), std::int64_t(in_rows));
      t.sent_from[p] = int(from);
      t.sent[p] = int(clamp(in_counts[p], std::int64_t(0), min(in_rows - from, std::int64_t(max_rows))));
      if (b.index() == 0 && p != w.rank()) slot.send(p, 0, 0, t.sent[p]);
    }
    b.sync();
    if (g.senders > 0 && b.index() < g.first + g.senders) return;
    ll_reader words(e, w);
    for (int s = b.rank(); s < w.size(); s += b.size()) {
      int count = t.sent[s];
      if (s != w.rank()) {
        do count = words.as<int>(slot.from(s, 0), s);
        while (words.again());
      }
      t.received[s] = words.gave_up() ? 0 : count;
    }
    b.sync();
    for (int s = b.rank(); s < w.size(); s += b.size()) {
      int at = 0;
      for (int q = 0; q < s; ++q) at += t.received[q];
      t.received_at[s] = at;
      if (b.index() != b.count() - 1) continue;
      out_counts.set(s, t.received[s]);
      out_offsets.set(s, at);
    }
    b.sync();
  }
  /// See equal_slices.
  __device__ byte_slice<std::byte const> sent(table const& t, int peer) const {
    return {in + t.sent_from[peer] * row, t.sent[peer] * row};
  }
  /// Likewise; rows that `out` does not have are left out.
  __device__ byte_slice<std::byte> received(table const& t, int source) const {
    int const at = min(t.received_at[source], out_rows);
    return {out + at * row, min(t.received[source], out_rows - at) * row};
  }
  /// Likewise.
  __device__ std::int64_t coming(table const& t, int source) const { return t.received[source] * row; }
  /// Likewise.
  __device__ bool same() const { return false; }
};

namespace detail {

/// What a block does with rows of slices.
template <class Exchange, int Vectors>
struct slice_rows {
  using vector = vec16<std::byte>;

  block b;
  row_arguments const& g;
  Exchange const& exchange;

  /// The first byte of a chunk of a slice.
  __device__ std::int64_t first_byte(int chunk) const {
    return std::int64_t(chunk) * g.rows_per_chunk * g.sections.vectors * 16;
  }
  /// Calls visit(r) for the rows of a chunk that slices of so many bytes have.
  template <class Visit>
  __device__ __forceinline__ void for_rows(int chunk, std::int64_t bytes, Visit const& visit) const {
    std::int64_t const row = std::int64_t(g.sections.vectors) * 16;
    int const begin = chunk * g.rows_per_chunk, end = min(begin + g.rows_per_chunk, g.sections.rows);
#pragma unroll 1
    for (int r = begin; r < end && r * row < bytes; ++r) visit(r);
  }
  /// Calls visit(i, v, first byte) for this thread's vectors of row r of a slice.
  template <class Visit>
  __device__ __forceinline__ void for_vectors(int r, std::int64_t bytes, Visit const& visit) const {
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
      int const v = b.rank() + i * b.size();
      std::int64_t const at = (std::int64_t(r) * g.sections.vectors + v) * 16;
      if (at < bytes) visit(i, v, at);
    }
  }
  __device__ __forceinline__ void load(vector (&x)[Vectors], int r, byte_slice<std::byte const> const& from) const {
    for_vectors(r, from.bytes, [&](int i, int, std::int64_t at) { x[i] = load_of_slice(from, at); });
  }
  __device__ __forceinline__ void put(vector const (&x)[Vectors], int r, std::int64_t bytes, int ahead) const {
    for_vectors(r, bytes, [&](int i, int v, std::int64_t) { exchange.put(0, ahead, r, v, x[i]); });
  }
  /// Copies a chunk within this rank.
  __device__ __forceinline__ void copy(int chunk, byte_slice<std::byte const> const& from,
                                       byte_slice<std::byte> const& to) const {
    if (from.data == to.data) return;
    for_rows(chunk, to.bytes, [&](int r) {
      vector x[Vectors];
      load(x, r, {from.data, to.bytes});
      for_vectors(r, to.bytes, [&](int i, int, std::int64_t at) { store_to_slice(to, at, x[i]); });
    });
  }
  /// Stores a chunk that `source` has sent.
  __device__ __forceinline__ void take(int chunk, int source, byte_slice<std::byte> const& to) const {
    for_rows(chunk, to.bytes, [&](int r) {
      typename Exchange::reader reader(exchange, 0);
      vector x[Vectors];
      do {
        typename Exchange::loaded found[Vectors];
        for_vectors(r, to.bytes, [&](int i, int v, std::int64_t) { found[i] = reader.load(source, r, v); });
        for_vectors(r, to.bytes, [&](int i, int, std::int64_t) { x[i] = reader.value(found[i]); });
      } while (reader.again([&](auto const& visit) {
        for_vectors(r, to.bytes, [&](int, int v, std::int64_t) { visit(source, r, v); });
      }));
      bool const failed = reader.failed();
      for_vectors(r, to.bytes, [&](int i, int, std::int64_t at) {
        if (failed)
          for (std::byte& y : x[i].element) y = std::byte(0xff);
        store_to_slice(to, at, x[i]);
      });
    });
  }
};

}  // namespace detail

/// Slices: equal_slices or counted_slices. Called by: the operators, on every rank.
template <template <class> class Exchange, int Vectors, class Slices>
__global__ void __launch_bounds__(row_plan::array_threads)
    exchange_slices(__grid_constant__ channel_view const ch, __grid_constant__ row_arguments const g,
                    __grid_constant__ Slices const slices) {
  __shared__ typename Slices::table table;
  block const b;
  channel_epoch const e = ch.begin(b);
  detail::early_ticket const ticket(b, e);
  int const ranks = ch.world.size(), rank = ch.world.rank();
  Exchange<std::byte> const exchange(e, ch.world, g.sections);
  detail::slice_rows<Exchange<std::byte>, Vectors> const rows{b, g, exchange};
  slices.begin(b, e, ch.world, g, table);
  std::int64_t longest = 0;  // of what this rank sends
  for (int p = 0; p < ranks; ++p) longest = max(longest, slices.sent(table, p).bytes);
  detail::for_chunks(b, g.first, g.senders, g.sections.chunks, [&](int chunk) {
    if (rows.first_byte(chunk) >= longest) return;
    rows.for_rows(chunk, longest, [&](int r) {
      detail::vec16<std::byte> x[Vectors];
      for (int p = 1; p < ranks; ++p) {
        auto const from = slices.sent(table, ch.world.next(p));
        if (p == 1 || !slices.same()) rows.load(x, r, from);
        rows.put(x, r, from.bytes, p);
      }
    });
    exchange.sent(b, 0, chunk);
  });
  detail::for_chunks(b, g.first + g.senders, g.reducers, g.sections.chunks, [&](int chunk) {
    rows.copy(chunk, slices.sent(table, rank), slices.received(table, rank));
    if constexpr (Slices::equal) exchange.wait(b, 0, chunk);
    for (int p = ranks - 1; p > 0; --p) {  // the nearest one behind has sent to this rank first
      int const source = ch.world.next(p);
      auto const to = slices.received(table, source);
      if constexpr (!Slices::equal) {
        if (rows.first_byte(chunk) >= to.bytes) continue;
        exchange.wait(b, 0, chunk, source);
      }
      rows.take(chunk, source, to);
    }
  });
  if (b.index() == 0) exchange.refresh(b, [&](int source) { return int((slices.coming(table, source) + 15) / 16); });
  ticket.end(b);
}

}  // namespace fusewire
