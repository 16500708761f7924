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

namespace detail {
/// Not part of the concept itself, as in gemm/epilogue.hpp.
template <class E, class T>
inline constexpr bool takes_a_row =
    requires(E const e, block b, float* shared, int row, row_values<T, 1>& sum) { e(b, shared, row, row, sum); };
}  // namespace detail

/// A type with operator()(block, float* shared, int row, int cols, row_values<T, Vectors>& sum) const, on the device,
/// for any Vectors. All threads of a block call it with the sum of a row over the ranks, rounded to T. `shared` has
/// block_reduce_words floats. Every rank has the same sums, so the same bits leave the epilogue. It is passed to the
/// kernel by value, so it must not point to memory of the host.
template <class E, class T>
concept row_epilogue = std::is_trivially_copyable_v<E> && detail::takes_a_row<E, T>;

namespace detail {

/// 16 bytes of a row from column `col` on; 0 outside it. aligned: whether rows begin at multiples of 16 bytes.
template <class T>
__device__ vec16<T> load_row_vector(T const* row, int col, int cols, bool aligned) {
  if (aligned && col + per_16_bytes<T> <= cols) return load_vec16<T>(row + col);
  vec16<T> x;
#pragma unroll
  for (int j = 0; j < per_16_bytes<T>; ++j) x.element[j] = col + j < cols ? row[col + j] : T(0.0f);
  return x;
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
  template <int Vectors>
  __device__ void operator()(block b, float*, int row, int cols, row_values<T, Vectors>& sum) const {
    bool const aligned = is_row_aligned<16>(out.data, out.ld);
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
      if (int const col = sum.first(b, v); col < cols)
        detail::store_elements(out.row(row), col, cols, sum.x[v], aligned);
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
  template <int Vectors>
  __device__ void operator()(block b, float* shared, int row, int cols, row_values<T, Vectors>& sum) const {
    constexpr int width = row_values<T, Vectors>::width;
    float squares = 0;
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      int const col = sum.first(b, v);
      if (col >= cols) continue;
      if (residual.data) {
        auto const more = detail::load_row_vector(residual.at(row, 0), col, cols, is_row_aligned<16>(residual));
#pragma unroll
        for (int j = 0; j < width; ++j) sum.x[v][j] = float(T(sum.x[v][j] + float(more.element[j])));
      }
      if (residual_out.data)
        detail::store_elements(residual_out.at(row, 0), col, cols, sum.x[v], is_row_aligned<16>(residual_out));
#pragma unroll
      for (int j = 0; j < width; ++j) squares += sum.x[v][j] * sum.x[v][j];
    }
    float const by_rms = 1 / sqrtf(block_sum(b, squares, shared) / float(cols) + eps);
    float largest = 0;
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      int const col = sum.first(b, v);
      if (col >= cols) continue;
      auto const weight = detail::load_row_vector(gamma, col, cols, reinterpret_cast<std::uintptr_t>(gamma) % 16 == 0);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        sum.x[v][j] *= by_rms * float(weight.element[j]);
        largest = fmaxf(largest, fabsf(sum.x[v][j]));
      }
      if (norm_out.data) detail::store_elements(norm_out.at(row, 0), col, cols, sum.x[v], is_row_aligned<16>(norm_out));
    }
    if constexpr (!std::is_same_v<Quantised, not_quantised>) quantise(b, shared, row, cols, sum, largest);
  }

 private:
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
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      int const col = y.first(b, v);
      if (col >= cols) continue;
      Quantised q[width];
#pragma unroll
      for (int j = 0; j < width; ++j) q[j] = quantised(y.x[v][j] * by_unit);
      detail::store_vector(quantised_out, row, col, q, aligned);
    }
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
