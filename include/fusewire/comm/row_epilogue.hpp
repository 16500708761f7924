// What becomes of a row whose sum over the ranks is known: it is stored, or added to a residual and normalised.
#pragma once
#include <fusewire/comm/row_exchange.hpp>
#include <fusewire/core/fp8.hpp>
#include <fusewire/device/block_reduce.hpp>

namespace fusewire {

/// A row in the registers of a block: vector v of a thread begins at column first(b, v).
template <class T, int Vectors>
struct row_values {
  static constexpr int width = per_16_bytes<T>;  // elements of a vector

  float x[Vectors][width];  // 0 outside the row

  /// The first column of vector v.
  static __device__ int first(block b, int v) { return (b.rank() + v * b.size()) * width; }
};

/// The sum of a row that an epilogue is called for.
template <class T, int Vectors, class Get>
struct row_sum {
  Get get;  // computes it

  /// Waits for it. Called by: every thread of the block, once.
  __device__ __forceinline__ row_values<T, Vectors> operator()() const { return get(); }
};

namespace detail {
/// Not part of the concept itself, as in gemm/epilogue.hpp.
template <class E, class T>
inline constexpr bool takes_a_row =
    requires(E const e, block b, float* shared, int row, row_sum<T, 1, row_values<T, 1> (*)()> const& sum) {
      e(b, shared, row, row, sum);
    };
}  // namespace detail

/// A type with operator()(block, float* shared, int row, int cols, row_sum<T, Vectors, Get> const& sum) const, on the
/// device, for any Vectors and Get. All threads of a block call it for a row, and it calls sum() for the sum over the
/// ranks, rounded to T; what it loads before comes while the sum does. `shared` has block_reduce_words floats. Every
/// rank has the same sums, so the same bits leave the epilogue. It is passed to the kernel by value, so it must not
/// point to memory of the host.
template <class E, class T>
concept row_epilogue = std::is_trivially_copyable_v<E> && detail::takes_a_row<E, T>;

namespace detail {

/// 16 bytes of a row from column `col` on; 0 outside it. aligned: whether rows begin at multiples of 16 bytes. In whole
/// words, which take half of the registers of elements.
template <class T>
__device__ __forceinline__ vec16<T> load_row_vector(T const* row, int col, int cols, bool aligned) {
  using bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  constexpr int per_word = 4 / int(sizeof(T));
  bytes16 x{};
  if (aligned && col + per_16_bytes<T> <= cols) x = *reinterpret_cast<bytes16 const*>(row + col);
  else
#pragma unroll
    for (int j = 0; j < per_16_bytes<T>; ++j)
      if (col + j < cols)
        x.word[j / per_word] |= std::uint32_t(__builtin_bit_cast(bits, row[col + j])) << j % per_word * 16;
  return __builtin_bit_cast(vec16<T>, x);
}

/// Stores x, rounded to T, to elements [col, col + N) of a row. aligned: whether rows begin at multiples of N elements.
template <class T, int N>
__device__ void store_elements(T* row, int col, int cols, float const (&x)[N], bool aligned) {
  struct alignas(N * sizeof(T)) vector {
    T element[N];
  } out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.element[j] = T(x[j]);
  if (aligned && col + N <= cols) {
    *reinterpret_cast<vector*>(row + col) = out;
    return;
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (col + j < cols) row[col + j] = out.element[j];
}

}  // namespace detail

/// Stores the sums. What calls without an epilogue do.
template <class T>
struct store_rows {
  row_view<T> out;  // of the call's rows

  /// See row_epilogue.
  template <int Vectors, class Get>
  __device__ __forceinline__ void operator()(block b, float*, int row, int cols,
                                             row_sum<T, Vectors, Get> const& sum) const {
    bool const aligned = is_row_aligned<16>(out.data, out.ld);
    row_values<T, Vectors> const h = sum();
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
      if (int const col = h.first(b, v); col < cols) detail::store_elements(out.row(row), col, cols, h.x[v], aligned);
  }
};

/// What rms_norm stores without a quantised output.
struct not_quantised {};

/// residual_out = sum + residual; norm_out = residual_out / rms(residual_out) * gamma; and the same quantised. Matrices
/// have the rows and columns of the call; one without data is left out. Quantised: int8_t, fp8_e4m3fn, fp8_e4m3fnuz.
///
///   h = T(sum + residual)   rms(h) = sqrt(mean(h^2) + eps)   y = h / rms(h) * gamma, in fp32
///   norm_out = T(y)   quantised_out = Quantised(y / scale), scale: as given, or of a row: max |y| / largest number
template <class T, class Quantised = not_quantised>
struct rms_norm {
  matrix<T const> residual = {};         // [rows, cols]; may be residual_out
  T const* gamma = nullptr;              // [cols]
  float eps = 1e-6f;                     // added to the mean of squares
  matrix<T> residual_out = {};           // [rows, cols]
  matrix<T> norm_out = {};               // [rows, cols]
  matrix<Quantised> quantised_out = {};  // [rows, cols]
  float const* scale = nullptr;          // of all elements; null: a scale of each row, stored to row_scales
  float* row_scales = nullptr;           // [rows]

  /// See row_epilogue.
  template <int Vectors, class Get>
  __device__ __forceinline__ void operator()(block b, float* shared, int row, int cols,
                                             row_sum<T, Vectors, Get> const& sum) const {
    constexpr int width = row_values<T, Vectors>::width;
    detail::vec16<T> more[Vectors], weight[Vectors];
    for_vectors<Vectors>(b, cols, [&](int v, int col) {
      if (residual.data)
        more[v] = detail::load_row_vector(residual.at(row, 0), col, cols, is_row_aligned<16>(residual));
      weight[v] = detail::load_row_vector(gamma, col, cols, reinterpret_cast<std::uintptr_t>(gamma) % 16 == 0);
    });
    row_values<T, Vectors> h = sum();
    float squares = 0;
    for_vectors<Vectors>(b, cols, [&](int v, int col) {
      if (residual.data)
#pragma unroll
        for (int j = 0; j < width; ++j) h.x[v][j] = float(T(h.x[v][j] + float(more[v].element[j])));
      if (residual_out.data)
        detail::store_elements(residual_out.at(row, 0), col, cols, h.x[v], is_row_aligned<16>(residual_out));
#pragma unroll
      for (int j = 0; j < width; ++j) squares += h.x[v][j] * h.x[v][j];
    });
    float const by_rms = 1 / sqrtf(block_sum(b, squares, shared) / float(cols) + eps);
    float largest = 0;
    for_vectors<Vectors>(b, cols, [&](int v, int col) {
#pragma unroll
      for (int j = 0; j < width; ++j) {
        h.x[v][j] *= by_rms * float(weight[v].element[j]);
        largest = fmaxf(largest, fabsf(h.x[v][j]));
      }
      if (norm_out.data) detail::store_elements(norm_out.at(row, 0), col, cols, h.x[v], is_row_aligned<16>(norm_out));
    });
    if constexpr (!std::is_same_v<Quantised, not_quantised>) quantise(b, shared, row, cols, h, largest);
  }

 private:
  /// Calls visit(v, col) for this thread's vectors of a row, and their first columns.
  template <int Vectors, class Visit>
  static __device__ __forceinline__ void for_vectors(block b, int cols, Visit const& visit) {
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
      if (int const col = row_values<T, Vectors>::first(b, v); col < cols) visit(v, col);
  }
  /// `largest`: of |y| in this thread.
  template <int Vectors>
  __device__ void quantise(block b, float* shared, int row, int cols, row_values<T, Vectors>& y, float largest) const {
    constexpr int width = row_values<T, Vectors>::width;
    float unit = 1;
    if (scale) {
      unit = *scale;
    } else {
      unit = block_max(b, largest, shared) / largest_number();
      if (b.leader()) row_scales[row] = unit;
    }
    float const by_unit = unit > 0 ? 1 / unit : 0;  // a row of zeros
    bool const aligned = is_row_aligned<width * sizeof(Quantised)>(quantised_out);
    for_vectors<Vectors>(b, cols, [&](int v, int col) {
      Quantised q[width];
#pragma unroll
      for (int j = 0; j < width; ++j) q[j] = quantised(y.x[v][j] * by_unit);
      detail::store_vector(quantised_out, row, col, q, aligned);
    });
  }
  static __host__ __device__ constexpr float largest_number() {
    if constexpr (std::is_same_v<Quantised, std::int8_t>) return 127;
    else return Quantised::largest;
  }
  static __device__ Quantised quantised(float x) {
    if constexpr (std::is_same_v<Quantised, std::int8_t>) return std::int8_t(rintf(fminf(fmaxf(x, -127.0f), 127.0f)));
    else return Quantised(x);
  }
};

}  // namespace fusewire
