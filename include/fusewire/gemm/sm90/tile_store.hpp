// Stores the sums of a multiplying warpgroup through shared memory, so that stores are whole 16-byte words and more.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/gemm/sm90/gemm_config.hpp>
#include <fusewire/gemm/store_vec4.hpp>
#include <fusewire/arch/sm90/tma.hpp>

namespace fusewire {

namespace detail {

template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t two;
  if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

/// Stores four 8 x 8 matrices of 16-bit elements, from registers as wgmma leaves them, to shared memory. Each lane
/// gives the address of a row or, if Transposed, of a column.
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

/// Stores a multiplying warpgroup's part of a tile. Atom: the instruction that made the accumulators.
template <class Atom, sm90_gemm_config C>
struct sm90_store {
  /// Stores this warpgroup's part of a tile, from c(m0, n0) on, of which C has `columns` columns. A warp stores its 16
  /// rows in strips of 64 columns through its staging buffer, or in swap-AB its 16 columns in strips of 64 rows. The
  /// buffer's 16-byte units are swizzled by row against bank conflicts. Whole: C has the whole part, and its rows are
  /// aligned to 16 bytes.
  template <bool Whole, class T, class Epilogue>
  __device__ static void store(bytes16* staging, typename Atom::c_fragment const& acc, int m0, int n0, int columns,
                               matrix<T> c, Epilogue const& epilogue) {
    int const thread = block{}.rank() % 128, lane = wave{}.rank(), warp0 = thread / 32 * 16;
    bool const aligned = Whole || is_row_aligned<16>(c);
    shared_address_t const staging_at = shared_address(staging);
    auto const value = [&](int v) {
      int const down = Atom::c_row(thread) + v / 2 % 2 * 8, right = v / 4 * 8 + Atom::c_col(thread) + v % 2;
      int const row = m0 + (C.swap_ab() ? right : down), col = C.swap_ab() ? down : right;
      return Whole || (row < c.rows && col < columns) ? epilogue(acc[v], row, n0 + col) : 0.0f;
    };
    // In swap-AB, rows of a multiplication are columns of C, and are stored as columns: a staging row is the two units
    // of a warp's 16 columns.
    auto const unit_at = [](int row, int unit) {
      return C.swap_ab() ? row * 2 + (unit ^ (row / 4 & 1)) : row * 8 + (unit ^ (row & 7));
    };
#pragma unroll
    for (int strip = 0; strip < ceil_div(C.width(), 64); ++strip) {
      int const left = C.width() - strip * 64 < 64 ? C.width() - strip * 64 : 64;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        if (pair * 16 >= left) continue;
        int const v = strip * 32 + pair * 8;
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
        int const row = m0 + (C.swap_ab() ? strip * 64 : warp0) + r,
                  col = (C.swap_ab() ? warp0 : strip * 64) + unit * 8;
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

  /// The same by way of fp32 sums, in strips of 32 columns, or in swap-AB of 32 rows: for an fp32 C, and for a pair
  /// epilogue, whose pairs lie in two lanes in swap-AB. Stores of a warp are whole 128 bytes of a row of an fp32 C, or
  /// 64: a link to a peer carries shorter ones much more slowly.
  template <class T, class Epilogue>
  __device__ static void store_sums(bytes16* staging, typename Atom::c_fragment const& acc, int m0, int n0, int columns,
                                    matrix<T> c, Epilogue const& epilogue) {
    constexpr int units = C.swap_ab() ? 4 : 8;  // of 16 bytes, of a staging row
    int const thread = block{}.rank() % 128, lane = wave{}.rank(), warp0 = thread / 32 * 16;
    bool const aligned = is_row_aligned<16>(c);
    auto* const fours = reinterpret_cast<float4*>(staging);
    auto const unit_at = [](int row, int unit) {
      return row * units + (unit ^ (C.swap_ab() ? row / 2 % 4 : row % 4 * 2));
    };
#pragma unroll
    for (int strip = 0; strip < ceil_div(C.width(), 32); ++strip) {
      int const left = C.width() - strip * 32 < 32 ? C.width() - strip * 32 : 32;
#pragma unroll
      for (int v = 0; v < 16; v += 2) {
        if (v >= left / 2) continue;
        int const down = lane / 4 + v / 2 % 2 * 8, right = v / 4 * 8 + lane % 4 * 2;
        float2 const two{acc[strip * 16 + v], acc[strip * 16 + v + 1]};
        if constexpr (C.swap_ab()) {
          reinterpret_cast<float*>(fours + unit_at(right, down / 4))[down % 4] = two.x;
          reinterpret_cast<float*>(fours + unit_at(right + 1, down / 4))[down % 4] = two.y;
        } else {
          reinterpret_cast<float2*>(fours + unit_at(down, right / 4))[right % 4 / 2] = two;
        }
      }
      wave{}.sync();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const r = i * (32 / units) + lane / units, unit = lane % units;
        float4 const sums = fours[unit_at(r, unit)];
        if (C.swap_ab() ? r >= left : unit * 4 >= left) continue;
        int const row = m0 + (C.swap_ab() ? strip * 32 : warp0) + r,
                  col = (C.swap_ab() ? warp0 : strip * 32) + unit * 4;
        if (row >= c.rows) continue;
        if constexpr (pair_epilogue<Epilogue>) {
          store_vec4(c, row, n0 + col, sums, aligned, epilogue);
        } else {
          float four[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (col + e < columns) four[e] = epilogue(four[e], row, n0 + col + e);
          if (aligned && col + 4 <= columns) {
            *reinterpret_cast<float4*>(c.at(row, n0 + col)) = {four[0], four[1], four[2], four[3]};
          } else {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              if (col + e < columns) c(row, n0 + col + e) = four[e];
          }
        }
      }
      wave{}.sync();
    }
  }
};

}  // namespace fusewire
