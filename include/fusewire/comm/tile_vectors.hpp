// Tiles that are read from an inbox and stored to C in vectors: of 16 bytes in the inbox, whose rows are whole vectors.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>

namespace fusewire {

/// Elements from one row of an inbox to the next, if C has n columns: the rows are whole vectors of 16 bytes.
template <class T>
__host__ __device__ constexpr std::int64_t inbox_pitch(int n) {
  return ceil_div(n, per_16_bytes<T>) * std::int64_t(per_16_bytes<T>);
}

namespace detail {

/// 16 bytes of an inbox.
template <class T>
struct alignas(16) vec16 {
  T element[per_16_bytes<T>];
};
template <class T>
__device__ vec16<T> load_vec16(T const* from) {
  return __builtin_bit_cast(vec16<T>, *reinterpret_cast<bytes16 const*>(from));
}

/// Calls visit(r, col) for the first of each N neighbouring elements of a tile that begins at (m0, n0). The tile has at
/// most tile_m x tile_n elements, and only those inside rows x cols. Called by: every thread of the group.
template <int N, group Group, class Visit>
__device__ void for_each_vector(Group g, int m0, int n0, int tile_m, int tile_n, int rows, int cols,
                                Visit const& visit) {
  int const vectors = tile_n / N;
  for (int i = g.rank(); i < tile_m * vectors; i += g.size()) {
    int const r = m0 + i / vectors, col = n0 + i % vectors * N;
    if (r < rows && col < cols) visit(r, col);
  }
}

/// Calls visit(r, col, x) for each 16 bytes x of a matrix of up to tile_n columns whose rows are whole 16 bytes. Every
/// thread has four loads in flight. tile_n: a constant, so that nothing is divided by a variable.
/// Called by: every thread of the group.
template <group Group, class T, class Visit>
__device__ __forceinline__ void for_each_load(Group g, matrix<T> from, int tile_n, Visit const& visit) {
  constexpr int width = per_16_bytes<T>, flight = 4;
  int const per_row = tile_n / width;
  for (int i = g.rank(); i < from.rows * per_row; i += flight * g.size()) {
    vec16<T> x[flight];
    auto const each = [&](int j, auto const& of) {
      int const r = (i + j * g.size()) / per_row, col = (i + j * g.size()) % per_row * width;
      if (r < from.rows && col < from.cols) of(r, col);
    };
#pragma unroll
    for (int j = 0; j < flight; ++j) each(j, [&](int r, int col) { x[j] = load_vec16<T>(from.at(r, col)); });
#pragma unroll
    for (int j = 0; j < flight; ++j) each(j, [&](int r, int col) { visit(r, col, x[j]); });
  }
}
template <class T>
__device__ void store_vec16(T* to, vec16<T> const& x) {
  *reinterpret_cast<bytes16*>(to) = __builtin_bit_cast(bytes16, x);
}

/// Stores x to c(r, col) and the elements after it; those outside c are left out. aligned: is_row_aligned<N *
/// sizeof(T)>(c).
template <class T, int N>
__device__ void store_vector(matrix<T> c, int r, int col, T const (&x)[N], bool aligned) {
  struct alignas(N * sizeof(T)) vector {
    T element[N];
  };
  if (aligned && col + N <= c.cols) {
    *reinterpret_cast<vector*>(c.at(r, col)) = *reinterpret_cast<vector const*>(&x);
    return;
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (col + j < c.cols) c(r, col + j) = x[j];
}

/// c = from, or NaN if `poisoned`, for the tile_m x tile_n elements from c(m0, n0) on.
/// Called by: every thread of the group.
template <class T, group Group>
__device__ void take_tile(Group g, matrix<T> c, int m0, int n0, int tile_m, int tile_n, matrix<T> from, bool poisoned) {
  constexpr int n = per_16_bytes<T>;
  bool const aligned = is_row_aligned<16>(c);
  for_each_vector<n>(g, m0, n0, tile_m, tile_n, c.rows, c.cols, [&](int r, int col) {
    vec16<T> out = load_vec16<T>(from.at(r, col));
    for (T& x : out.element)
      if (poisoned) x = T(__builtin_nanf(""));
    store_vector(c, r, col, out.element, aligned);
  });
}

}  // namespace detail

}  // namespace fusewire
