// All-reduce of rows in one kernel, with an epilogue that sees whole rows. The operator is in all_reduce.hpp.
//
//   one-shot   row --put--> every rank
//              every rank: wait for all ranks' rows --> add up in the order of ranks --> epilogue
//   two-shot   row --put--> the rank that owns it (section 0)
//              the owner: wait for all ranks' rows --> add up --put--> every rank (section 1), epilogue
//              the others: wait for the sum --> epilogue
//
// Rows are cut into chunks. With flags some blocks send, some reduce and some take, so that links stay busy while sums
// are computed. With LL words every block does all three, one after the other: a few rows travel soonest so.
// row_exchange.hpp has the two ways to send rows.
//
// For each element a rank sends W - 1 elements with one shot, 2 (W - 1) / W with two. With two ranks both send the
// same, so one shot is never slower.
//
// Deadlock: all blocks are resident (launch() checks). Blocks send without waiting, reduce what was sent, and take what
// was reduced. A block that does several of these does them in this order.
//
// Order: flags publish a chunk's vectors; LL words carry their launch. A rank raises a chunk's flag on itself, too:
// then its summands have been read, and the epilogue may overwrite them. With LL words, and in the rows that two-shot
// sums up or takes, they have been read by the same block or sent before the sum could come.
//
// Reuse: the inbox and the LL buffer by the channel's argument.
//
// Abandonment: what a timed-out wait leaves is NaN with LL words, and with flags if the channel poisons.
//
// Same bits on every rank, in every run, with both algorithms and whatever the number of rows: a sum is added up in
// fp32 in the order of ranks, and rounded to T once.
#pragma once
#include <fusewire/comm/row_epilogue.hpp>

namespace fusewire {

/// What the kernels get.
template <class T>
struct all_reduce_arguments {
  row_view<T const> in;  // this rank's summands
  int rows;              // of `in`
  int rows_per_chunk;    // what one flag publishes
  /// Blocks that send, that reduce after them, and that take after these; all 0: each block does all
  int senders, reducers, takers;
  row_sections sections;  // one-shot: the rows of all; two-shot: those of an owner
};

namespace detail {

/// What both kernels do with rows of `in`, which begin at multiples of 16 bytes if `aligned`.
template <class T, class Exchange, int Vectors>
struct all_reduce_rows {
  using values = row_values<T, Vectors>;
  using vector = vec16<T>;

  block b;
  world_view const& w;
  all_reduce_arguments<T> const& g;
  Exchange const& exchange;
  bool aligned;

  /// Calls visit(row, row in the section, columns) for the rows of a chunk of the section that begins at row `first`.
  template <class Visit>
  __device__ __forceinline__ void for_rows(int first, int chunk, Visit const& visit) const {
    int const begin = chunk * g.rows_per_chunk,
              end = min(min(begin + g.rows_per_chunk, g.sections.rows), g.rows - first);
#pragma unroll 1
    for (int r = begin; r < end; ++r) visit(first + r, r, g.in.cols_of(first + r));
  }
  /// Sends a chunk of `in`, which begins at row `first`, to the rank `ahead` places after this one.
  __device__ __forceinline__ void send(int first, int chunk, int ahead) const {
    for_rows(first, chunk, [&](int row, int r, int cols) {
      vector x[Vectors];
      load(x, row, cols);
      put(0, x, r, cols, ahead);
    });
  }
  /// Sends a chunk of `in` to all other ranks.
  __device__ __forceinline__ void send_to_all(int chunk) const {
    for_rows(0, chunk, [&](int row, int r, int cols) {
      vector x[Vectors];
      load(x, row, cols);
      for (int p = 1; p < w.size(); ++p) put(0, x, r, cols, p);
    });
  }
  /// Sends a sum to all other ranks.
  __device__ __forceinline__ void send_sum(values const& sum, int r, int cols) const {
    vector x[Vectors];
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int j = 0; j < values::width; ++j) x[v].element[j] = T(sum.x[v][j]);
    for (int p = 1; p < w.size(); ++p) put(1, x, r, cols, p);
  }

  /// The sum of row r of section 0 over all ranks, rounded to T.
  __device__ __forceinline__ void reduce(values& sum, int row, int r, int cols) const {
    constexpr int sources = Vectors == 1 ? Exchange::in_flight : 1;  // loaded together
    typename Exchange::reader reader(exchange, 0);
    vector local[Vectors];
    if constexpr (sources > 1) load(local, row, cols);  // with the first of the others
    do {
      clear(sum);
#pragma unroll 1
      for (int s0 = 0; s0 < w.size(); s0 += sources) {
        typename Exchange::loaded x[sources][Vectors];
#pragma unroll
        for (int i = 0; i < sources; ++i)
          if (is_remote(s0 + i)) load(reader, x[i], s0 + i, r, cols);
        platform::sched_barrier();
#pragma unroll
        for (int i = 0; i < sources; ++i) {
          if (is_remote(s0 + i)) add(sum, reader, x[i], cols);
          else if (s0 + i < w.size()) {
            if constexpr (sources == 1) load(local, row, cols);
            add(sum, local, cols);
          }
        }
      }
    } while (reader.again([&](auto const& visit) {
      for (int s = 0; s < w.size(); ++s)
        if (s != w.rank()) for_columns(cols, [&](int, int v) { visit(s, r, v); });
    }));
    finish(sum, cols, reader.failed());
  }
  /// The sum of row r that its owner has sent.
  __device__ __forceinline__ void take(values& sum, int owner, int r, int cols) const {
    typename Exchange::reader reader(exchange, 1);
    do {
      clear(sum);
      typename Exchange::loaded x[Vectors];
      load(reader, x, owner, r, cols);
      add(sum, reader, x, cols);
    } while (reader.again([&](auto const& visit) { for_columns(cols, [&](int, int v) { visit(owner, r, v); }); }));
    finish(sum, cols, reader.failed());
  }

 private:
  /// Calls visit(i, v) for this thread's vectors of a row: its i-th is vector v of the row.
  template <class Visit>
  __device__ __forceinline__ void for_columns(int cols, Visit const& visit) const {
#pragma unroll
    for (int i = 0; i < Vectors; ++i)
      if (values::first(b, i) < cols) visit(i, b.rank() + i * b.size());
  }
  __device__ bool is_remote(int source) const { return source < w.size() && source != w.rank(); }

  __device__ void load(vector (&x)[Vectors], int row, int cols) const {
    for_columns(cols, [&](int i, int) { x[i] = load_row_vector(g.in.row(row), values::first(b, i), cols, aligned); });
  }
  __device__ void load(typename Exchange::reader const& reader, typename Exchange::loaded (&x)[Vectors], int source,
                       int r, int cols) const {
    for_columns(cols, [&](int i, int v) { x[i] = reader.load(source, r, v); });
  }
  __device__ void put(int section, vector const (&x)[Vectors], int r, int cols, int ahead) const {
    for_columns(cols, [&](int i, int v) { exchange.put(section, ahead, r, v, x[i]); });
  }

  static __device__ void clear(values& sum) {
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (float& x : sum.x[v]) x = 0;
  }
  static __device__ void add(float (&sum)[values::width], vector const& x) {
#pragma unroll
    for (int j = 0; j < values::width; ++j) sum[j] += float(x.element[j]);
  }
  __device__ void add(values& sum, vector const (&x)[Vectors], int cols) const {
    for_columns(cols, [&](int i, int) { add(sum.x[i], x[i]); });
  }
  __device__ void add(values& sum, typename Exchange::reader& reader, typename Exchange::loaded const (&x)[Vectors],
                      int cols) const {
    for_columns(cols, [&](int i, int) { add(sum.x[i], reader.value(x[i])); });
  }
  /// Rounds a sum to T, and leaves 0 outside the row; NaN in it if a wait failed.
  __device__ void finish(values& sum, int cols, bool failed) const {
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int j = 0; j < values::width; ++j) {
        float& x = sum.x[v][j];
        x = sum.first(b, v) + j >= cols ? 0 : failed ? __builtin_nanf("") : float(T(x));
      }
  }
};

/// Calls visit(chunk) for the chunks of this block, if `blocks` blocks from number `first` on divide them; with 0 all
/// blocks do.
template <class Visit>
__device__ __forceinline__ void for_chunks(block b, int first, int blocks, int chunks, Visit const& visit) {
  if (blocks == 0) first = 0, blocks = b.count();
  int const i = b.index() - first;
  if (i < 0 || i >= blocks) return;
#pragma unroll 1
  for (int chunk = i; chunk < chunks; chunk += blocks) visit(chunk);
}

}  // namespace detail

/// epilogue(the sum over ranks of a row), on every rank, which adds up all rows. Called by: all_reduce, on every rank.
template <class T, template <class> class Exchange, int Vectors, class Epilogue>
__global__ void __launch_bounds__(1024)
    all_reduce_one_shot(__grid_constant__ channel_view const ch, __grid_constant__ all_reduce_arguments<T> const g,
                        __grid_constant__ Epilogue const epilogue) {
  __shared__ float shared[block_reduce_words];
  block const b;
  channel_epoch const e = ch.begin(b);
  Exchange<T> const exchange(e, ch.world, g.sections);
  detail::all_reduce_rows<T, Exchange<T>, Vectors> const rows{b, ch.world, g, exchange,
                                                              is_row_aligned<16>(g.in.data, g.in.ld)};
  detail::for_chunks(b, 0, g.senders, g.sections.chunks, [&](int chunk) {
    rows.send_to_all(chunk);
    exchange.sent(b, 0, chunk);
  });
  detail::for_chunks(b, g.senders, g.reducers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 0, chunk);
    rows.for_rows(0, chunk, [&](int row, int r, int cols) {
      row_values<T, Vectors> sum;
      rows.reduce(sum, row, r, cols);
      epilogue(b, shared, row, cols, sum);
    });
  });
  if (b.index() == 0) exchange.refresh(b, 1);
  e.end(b);
}

/// The same, but the owner of a row adds up and sends the sum to all ranks. Called by: all_reduce, on every rank.
template <class T, template <class> class Exchange, int Vectors, class Epilogue>
__global__ void __launch_bounds__(1024)
    all_reduce_two_shot(__grid_constant__ channel_view const ch, __grid_constant__ all_reduce_arguments<T> const g,
                        __grid_constant__ Epilogue const epilogue) {
  __shared__ float shared[block_reduce_words];
  block const b;
  channel_epoch const e = ch.begin(b);
  Exchange<T> const exchange(e, ch.world, g.sections);
  detail::all_reduce_rows<T, Exchange<T>, Vectors> const rows{b, ch.world, g, exchange,
                                                              is_row_aligned<16>(g.in.data, g.in.ld)};
  int const ranks = ch.world.size(), owned = g.sections.rows;
  detail::for_chunks(b, 0, g.senders, g.sections.chunks, [&](int chunk) {
    for (int p = 1; p < ranks; ++p) rows.send(ch.world.next(p) * owned, chunk, p);
    exchange.sent(b, 0, chunk);
  });
  detail::for_chunks(b, g.senders, g.reducers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 0, chunk);
    rows.for_rows(ch.world.rank() * owned, chunk, [&](int row, int r, int cols) {
      row_values<T, Vectors> sum;
      rows.reduce(sum, row, r, cols);
      rows.send_sum(sum, r, cols);
      epilogue(b, shared, row, cols, sum);
    });
    exchange.sent(b, 1, chunk);
  });
  detail::for_chunks(b, g.senders + g.reducers, g.takers, g.sections.chunks, [&](int chunk) {
    exchange.wait(b, 1, chunk);
    for (int p = 1; p < ranks; ++p) {
      int const owner = ch.world.next(p);
      rows.for_rows(owner * owned, chunk, [&](int row, int r, int cols) {
        row_values<T, Vectors> sum;
        rows.take(sum, owner, r, cols);
        epilogue(b, shared, row, cols, sum);
      });
    }
  });
  if (b.index() == 0) exchange.refresh(b, 2);
  e.end(b);
}

}  // namespace fusewire
