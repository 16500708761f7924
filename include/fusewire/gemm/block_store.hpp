// Stores a block's tile through shared memory, so that stores are whole words.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/gemm/store_vec4.hpp>

namespace fusewire {

/// How a block_gemm stores its tile.
template <class Gemm>
class block_store {
  using atom = typename Gemm::atom;
  static constexpr int atoms_m = Gemm::atoms_m, atoms_n = Gemm::atoms_n, wave_n = Gemm::wave_n,
                       waves = Gemm::threads / wave::width, shared_bytes = Gemm::shared_bytes;
  using sums = typename atom::c_fragment[atoms_m][atoms_n];

 public:
  /// As block_gemm::store(). Called by: every thread of the block.
  template <class Out, class Epilogue>
  __device__ static void elements(bytes16* shared, sums& acc, matrix<Out> c, int m0, int n0, Epilogue const& epilogue) {
    constexpr int per_unit = 16 / sizeof(Out), units = wave_n / per_unit;
    // 16 rows at a time go through LDS, so that stores to memory are whole 16-byte words
    constexpr int pitch = wave_n + per_unit;  // elements
    static_assert(waves * 16 * pitch * int(sizeof(Out)) <= shared_bytes);
    wave const w;
    Out* const staging = reinterpret_cast<Out*>(shared) + w.index() * 16 * pitch;
    bool const whole = is_row_aligned<16>(c);
    block{}.sync();
#pragma unroll
    for (int i = 0; i < atoms_m; ++i) {
      int const row0 = m0 + Gemm::wave_row() + i * atom::m, col0 = n0 + Gemm::wave_col();
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int v = 0; v < atom::c_values; ++v) {
          int const r = atom::c_row(w.rank(), v), col = j * atom::n + atom::c_col(w.rank(), v);
          bool const inside = row0 + r < c.rows && col0 + col < c.cols;
          staging[r * pitch + col] = inside ? Out(epilogue(acc[i][j][v], row0 + r, col0 + col)) : Out(0.0f);
        }
      w.sync();
      for (int u = w.rank(); u < 16 * units; u += w.size()) {
        int const r = u / units, col = u % units * per_unit;
        if (row0 + r >= c.rows) continue;
        Out const* const from = staging + r * pitch + col;
        if (whole && col0 + col + per_unit <= c.cols)
          *reinterpret_cast<bytes16*>(c.at(row0 + r, col0 + col)) = *reinterpret_cast<bytes16 const*>(from);
        else
          for (int e = 0; e < per_unit && col0 + col + e < c.cols; ++e) c(row0 + r, col0 + col + e) = from[e];
      }
      w.sync();
    }
    block{}.sync();
  }
  /// The same of a pair epilogue, by way of fp32 sums in LDS: the lanes of a pair may be two.
  template <class Out, class Epilogue>
  __device__ static void pairs(bytes16* shared, sums& acc, matrix<Out> c, int m0, int n0, Epilogue const& epilogue) {
    constexpr int fours = wave_n / 4, pitch = wave_n + 4;  // floats
    static_assert(waves * 16 * pitch * int(sizeof(float)) <= shared_bytes);
    wave const w;
    float* const staging = reinterpret_cast<float*>(shared) + w.index() * 16 * pitch;
    bool const whole = is_row_aligned<4 * sizeof(Out)>(c);
    block{}.sync();
#pragma unroll
    for (int i = 0; i < atoms_m; ++i) {
#pragma unroll
      for (int j = 0; j < atoms_n; ++j)
#pragma unroll
        for (int v = 0; v < atom::c_values; ++v)
          staging[atom::c_row(w.rank(), v) * pitch + j * atom::n + atom::c_col(w.rank(), v)] = acc[i][j][v];
      w.sync();
      for (int u = w.rank(); u < 16 * fours; u += w.size())
        store_vec4(c, m0 + Gemm::wave_row() + i * atom::m + u / fours, n0 + Gemm::wave_col() + u % fours * 4,
                   *reinterpret_cast<float4 const*>(staging + u / fours * pitch + u % fours * 4), whole, epilogue);
      w.sync();
    }
    block{}.sync();
  }
};

}  // namespace fusewire
