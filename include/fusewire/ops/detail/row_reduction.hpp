// What the kernels of all_reduce and reduce_scatter do with rows: they send them, add them up in the order of ranks,
// and take sums. row_exchange.hpp has the two ways to send rows.
#pragma once
#include <fusewire/comm/row_epilogue.hpp>
#include <fusewire/ops/detail/for_chunks.hpp>
#include <fusewire/ops/detail/row_plan.hpp>

namespace fusewire {

namespace detail {

/// Sends rows of summands, adds up what has come, and takes sums.
template <class T, class Exchange, int Vectors>
struct row_reduction {
  using values = row_values<T, Vectors>;
  using vector = vec16<T>;

  block b;
  world_view const& w;
  row_arguments const& g;
  Exchange const& exchange;

  /// Calls visit(r) for the rows of a chunk of a section, of which the first `rows` exist.
  template <class Visit>
  __device__ __forceinline__ void for_rows(int rows, int chunk, Visit const& visit) const {
    int const begin = chunk * g.rows_per_chunk, end = min(min(begin + g.rows_per_chunk, g.sections.rows), rows);
#pragma unroll 1
    for (int r = begin; r < end; ++r) visit(r);
  }
  /// Sends a chunk of `in`, of whose rows the first `rows` exist, to the ranks [first, last] places after this one.
  __device__ __forceinline__ void send(row_view<T const> const& in, int rows, int chunk, int first, int last) const {
    bool const aligned = is_row_aligned<16>(in.data, in.ld);
    for_rows(rows, chunk, [&](int r) {
      vector x[Vectors];
      int const cols = in.cols_of(r);
      load(x, in.row(r), cols, aligned);
      put(0, x, r, cols, first, last);
    });
  }
  /// Sends a sum to all other ranks, and makes it what these get.
  __device__ __forceinline__ void send_sum(values& sum, int r, int cols) const {
    vector x[Vectors];
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int j = 0; j < values::width; ++j) x[v].element[j] = T(sum.x[v][j]);
    put(1, x, r, cols, 1, w.size() - 1);
    if constexpr (!Exchange::is_exact) {
      clear(sum);
      add_own(sum, x, cols);
      finish(sum, cols, false);
    }
  }

  /// What an epilogue is called with: fill(values&) is called when it asks for the sum.
  template <class Fill>
  __device__ __forceinline__ auto sum(Fill const& fill) const {
    auto const get = [&fill] {
      values x;
      fill(x);
      return x;
    };
    return row_sum<T, Vectors, decltype(get)>{get};
  }

  /// The sum of row r of section 0 over all ranks, rounded to T. `in`: this rank's summands.
  __device__ __forceinline__ void reduce(values& sum, row_view<T const> const& in, int r) const {
    int const cols = in.cols_of(r);
    bool const aligned = is_row_aligned<16>(in.data, in.ld);
    constexpr int sources = Vectors == 1 ? Exchange::in_flight : 1;  // loaded together
    typename Exchange::reader reader(exchange, 0);
    vector local[Vectors];
    if constexpr (sources > 1) load(local, in.row(r), cols, aligned);  // with the first of the others
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
            if constexpr (sources == 1) load(local, in.row(r), cols, aligned);
            add_own(sum, local, cols);
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

  __device__ void load(vector (&x)[Vectors], T const* row, int cols, bool aligned) const {
    for_columns(cols, [&](int i, int) { x[i] = load_row_vector(row, values::first(b, i), cols, aligned); });
  }
  __device__ void load(typename Exchange::reader const& reader, typename Exchange::loaded (&x)[Vectors], int source,
                       int r, int cols) const {
    for_columns(cols, [&](int i, int v) { x[i] = reader.load(source, r, v); });
  }
  /// To the ranks [first, last] places after this one.
  __device__ void put(int section, vector const (&x)[Vectors], int r, int cols, int first, int last) const {
    auto const to_all = [&](auto const& y) {
      for (int p = first; p <= last; ++p)
        for_columns(cols, [&](int i, int v) { exchange.put(section, p, r, v, y[i]); });
    };
    if constexpr (Exchange::is_exact) {
      to_all(x);
    } else {
      typename Exchange::packed y[Vectors];
      pack(y, x, cols);
      to_all(y);
    }
  }
  /// As an exchange in blocks sends it. Called by: every thread of the block.
  template <class Packed>
  __device__ void pack(Packed (&y)[Vectors], vector const (&x)[Vectors], int cols) const {
#pragma unroll
    for (int i = 0; i < Vectors; ++i) y[i] = Exchange::pack(values::first(b, i) < cols ? x[i] : vector{});
  }

  static __device__ void clear(values& sum) {
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (float& x : sum.x[v]) x = 0;
  }
  template <class V>
  static __device__ void add(float (&sum)[values::width], V const& x) {
#pragma unroll
    for (int j = 0; j < values::width; ++j) sum[j] += float(x.element[j]);
  }
  /// Adds what other ranks get of x. Called by: every thread of the block.
  __device__ void add_own(values& sum, vector const (&x)[Vectors], int cols) const {
    if constexpr (Exchange::is_exact) {
      for_columns(cols, [&](int i, int) { add(sum.x[i], x[i]); });
    } else {
      typename Exchange::packed y[Vectors];
      pack(y, x, cols);
      for_columns(cols, [&](int i, int) { add(sum.x[i], Exchange::unpack(y[i])); });
    }
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

}  // namespace detail

}  // namespace fusewire
