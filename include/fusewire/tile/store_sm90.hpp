// From the sums of a multiplying warpgroup to memory: 16-bit floats through shared memory, so that memory sees whole 16
// bytes and more; fp32 as they are.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/tile/gemm_config_sm90.hpp>
#include <fusewire/tile/tma_sm90.hpp>

namespace fusewire {

namespace detail {

/// Whether every row begins at whole 16 bytes.
template <class T>
__device__ bool rows_aligned(matrix<T> c) {
  return (c.ld % per_16_bytes<T> | std::int64_t(reinterpret_cast<std::uintptr_t>(c.data) & 15)) == 0;
}

template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t two;
  if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

/// Four 8 x 8 matrices of 16 bits, as wgmma leaves them; each lane has the address of a row, or if Transposed of a
/// column.
template <bool Transposed>
__device__ inline void store_matrices(shared_address_t at, std::uint32_t const (&four)[4]) {
  if constexpr (Transposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(four[0]),
                 "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(four[0]),
                 "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
}

}  // namespace detail

/// A multiplying warpgroup's part of a tile. Atom: its multiplication, whose accumulators it has.
template <class Atom, sm90_gemm_config C>
struct sm90_store {
  /// This warpgroup's part of a tile, from c(m0, n0) on; `columns` of the tile's are left from there on. A warp's 16
  /// rows leave in pieces of 64 columns through its staging buffer, or in swap-AB its 16 columns in pieces of 64 rows.
  /// The buffer's 16-byte units are swizzled by row off each other's banks.
  template <bool Whole, class T, class Epilogue>
  __device__ static void store(bytes16* staging, typename Atom::c_fragment const& acc, int m0, int n0, int columns,
                               matrix<T> c, Epilogue const& epilogue) {
    int const thread = block{}.rank() % 128, lane = wave{}.rank(), warp0 = thread / 32 * 16;
    bool const aligned = Whole || detail::rows_aligned(c);
    shared_address_t const staging_at = shared_address(staging);
    auto const value = [&](int v) {
      int const down = Atom::c_row(thread) + v / 2 % 2 * 8, right = v / 4 * 8 + Atom::c_col(thread) + v % 2;
      int const row = m0 + (C.swap_ab() ? right : down), col = C.swap_ab() ? down : right;
      return Whole || (row < c.rows && col < columns) ? epilogue(acc[v], row, n0 + col) : 0.0f;
    };
    // In swap-AB, rows of a multiplication are columns of C, and are written as such: a staging row is two units of a
    // warp's 16.
    auto const unit_at = [](int row, int unit) {
      return C.swap_ab() ? row * 2 + (unit ^ (row / 4 & 1)) : row * 8 + (unit ^ (row & 7));
    };
#pragma unroll
    for (int piece = 0; piece < ceil_div(C.width(), 64); ++piece) {
      int const left = C.width() - piece * 64 < 64 ? C.width() - piece * 64 : 64;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        if (pair * 16 >= left) continue;
        int const v = piece * 32 + pair * 8;
        std::uint32_t const four[] = {
            detail::pack<T>(value(v), value(v + 1)), detail::pack<T>(value(v + 2), value(v + 3)),
            detail::pack<T>(value(v + 4), value(v + 5)), detail::pack<T>(value(v + 6), value(v + 7))};
        if constexpr (C.swap_ab())
          detail::store_matrices<true>(staging_at + unit_at(pair * 16 + lane / 16 * 8 + lane % 8, lane / 8 % 2) * 16,
                                       four);
        else detail::store_matrices<false>(staging_at + unit_at(lane % 16, pair * 2 + lane / 16) * 16, four);
      }
      wave{}.sync();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const r = C.swap_ab() ? i * 16 + lane / 2 : i * 4 + lane / 8, unit = C.swap_ab() ? lane % 2 : lane % 8;
        bytes16 const eight = staging[unit_at(r, unit)];
        if (C.swap_ab() ? i * 16 >= left : unit * 8 >= left) continue;
        int const row = m0 + (C.swap_ab() ? piece * 64 : warp0) + r,
                  col = (C.swap_ab() ? warp0 : piece * 64) + unit * 8;
        if (Whole || (aligned && row < c.rows && col + 8 <= columns)) {
          *reinterpret_cast<bytes16*>(c.at(row, n0 + col)) = eight;
        } else if (row < c.rows) {
#pragma unroll
          for (int e = 0; e < 8; ++e)
            if (col + e < columns) c.at(row, n0 + col + e)->bits = std::uint16_t(eight.word[e / 2] >> e % 2 * 16);
        }
      }
      wave{}.sync();
    }
  }

  /// The same of fp32: lanes swap what they have of two rows, and each stores four neighbouring columns of one; turned,
  /// a lane has its columns one by one.
  template <class Epilogue>
  __device__ static void store_sums(typename Atom::c_fragment const& acc, int m0, int n0, int columns, matrix<float> c,
                                    Epilogue const& epilogue) {
    int const thread = block{}.rank() % 128, odd = thread % 2;
    bool const aligned = detail::rows_aligned(c);
    auto const put = [&](int row, int col, float x) {
      if (row < c.rows && col < columns) c(row, n0 + col) = epilogue(x, row, n0 + col);
    };
#pragma unroll
    for (int v = 0; v < Atom::c_values; v += 4) {
      if constexpr (C.swap_ab()) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          put(m0 + v / 4 * 8 + Atom::c_col(thread) + e % 2, Atom::c_row(thread) + e / 2 * 8, acc[v + e]);
      } else {
        float four[4] = {acc[v], acc[v + 1], acc[v + 2], acc[v + 3]};  // two of a row, two of the row 8 below
        float const low = __shfl_xor_sync(~0u, odd ? four[0] : four[2], 1),
                    high = __shfl_xor_sync(~0u, odd ? four[1] : four[3], 1);
        four[odd ? 0 : 2] = low, four[odd ? 1 : 3] = high;
        int const row = m0 + Atom::c_row(thread) + odd * 8, col = v / 4 * 8 + Atom::c_col(thread) - odd * 2;
        if (aligned && row < c.rows && col + 4 <= columns) {
#pragma unroll
          for (int e = 0; e < 4; ++e) four[e] = epilogue(four[e], row, n0 + col + e);
          *reinterpret_cast<float4*>(c.at(row, n0 + col)) = {four[0], four[1], four[2], four[3]};
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) put(row, col + e, four[e]);
        }
      }
    }
  }
};

}  // namespace fusewire
