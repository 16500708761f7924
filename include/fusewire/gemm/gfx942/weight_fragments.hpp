// B in flight from memory to the matrix instruction: which bytes a lane loads, and which columns its fragments hold.
//
//   column-major   8 lanes load 128 B, 64 k of a column --LDS--> fragments of 8 k   atom j, row r: column 16 j + r
//   row-major       8 B = 4 neighbouring columns of one k; 8 k make 4 fragments     atom j, row r: column 4 r + j
//
// A fragment of a column-major B has 16 columns, so lanes that loaded it as it is would touch 16 lines for each 256
// bytes, and the L1 would be busy for four times as long.
//
// The columns of B are the rows of the matrix instruction's first operand. So a lane ends up with four neighbouring
// values of one row of C: in one atom if B is column-major, else one in each of four atoms.
#pragma once
#include <fusewire/arch/gfx942/memory_buffer.hpp>
#include <fusewire/gemm/block_gemm.hpp>

namespace fusewire {

/// The first of the 8 k that this lane has of a slice of 32.
__device__ inline int first_k_of_lane() { return wave{}.rank() / 16 * 8; }

/// Column j of 8 rows of 4 elements each.
__device__ inline bytes16 column_of(unsigned long long const (&row)[8], int j) {
  bytes16 column;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    auto const even = std::uint32_t(row[2 * pair] >> j / 2 * 32), odd = std::uint32_t(row[2 * pair + 1] >> j / 2 * 32);
    column.word[pair] = __builtin_amdgcn_perm(odd, even, j % 2 ? 0x07060302u : 0x05040100u);  // two halves of each
  }
  return column;
}

template <class T, int Columns, layout Order>
class weight_fragments;

/// A wave's weights of a column-major B, as the matrix instruction takes them.
template <class T, int Columns>
class weight_fragments<T, Columns, layout::column_major> {
 public:
  /// Rows of 128 bytes of LDS that fragments() wants.
  static constexpr int lds_rows = Columns;
  /// Atoms along the columns; slices of 32 k in a step.
  static constexpr int atoms = Columns / 16, slices = k_step / mma_atom<T>::k;

  /// Registers for one step: k_step k of the tile's columns.
  struct step {
    /// 8 k of column 8 i + lane / 8.
    bytes16 unit[Columns / 8];
  };

  /// Columns n0 and following of b. Requires: Columns * b.ld < 2^30.
  __device__ weight_fragments(b_operand<T> const& b, int, int n0)
      : memory_(b.data + n0 * b.ld, std::uint32_t(min(b.n - n0, Columns)) * std::uint32_t(b.ld) * 2),
        eight_bytes_(int(b.ld) * 16), lane_(wave{}.rank() / 8 * int(b.ld) * 2 + wave{}.rank() % 8 * 16) {}

  /// Loads a step from row k of B on: its first `there` rows; the rest are zeros.
  __device__ void load(step& s, int k, int there) const {
    int const lane = wave{}.rank() % 8 * 8 < there ? lane_ : oob_offset;
#pragma unroll
    for (int i = 0; i < Columns / 8; ++i) s.unit[i] = memory_.load_streaming(lane, i * eight_bytes_ + k * 2);
  }
  /// All fragments of a step, by way of this wave's part of LDS.
  __device__ static void fragments(step const& s, bytes16* lds, bytes16 (&to)[slices][atoms]) {
    wave const w;
#pragma unroll
    for (int i = 0; i < Columns / 8; ++i) lds[swizzled<8>(i * 8 + w.rank() / 8, w.rank() % 8)] = s.unit[i];
    w.sync();
#pragma unroll
    for (int slice = 0; slice < slices; ++slice)
#pragma unroll
      for (int j = 0; j < atoms; ++j)
        to[slice][j] = lds[swizzled<8>(j * 16 + w.rank() % 16, slice * 4 + w.rank() / 16)];
    w.sync();
  }

  /// Sums of four neighbouring columns, vec4 number `i` of row m of 16, from fragments [atom][lane] of the matrix
  /// instruction.
  __device__ static float4 vec4(float4 const* fragments, int i, int m) { return fragments[i * 16 + m]; }

 private:
  memory_buffer memory_;
  int eight_bytes_, lane_;
};

/// Weights of a row-major B of 64 columns, transposed in registers.
template <class T>
class weight_fragments<T, 64, layout::row_major> {
 public:
  /// As above.
  static constexpr int lds_rows = 0;
  /// Atoms along the columns; slices of 32 k in a step.
  static constexpr int atoms = 4, slices = k_step / mma_atom<T>::k;

  /// Registers for one step: k_step k of the tile's columns, as they lie in memory.
  struct step {
    /// By slice and k: four neighbouring columns each.
    unsigned long long row[slices][8];
  };

  /// Columns n0 and following of B [k, N]. Requires: k * b.ld < 2^30.
  __device__ weight_fragments(b_operand<T> const& b, int k, int n0)
      : memory_(b.data + n0, (std::uint32_t(k - 1) * std::uint32_t(b.ld) + std::uint32_t(b.n - n0 + 1) / 2 * 2) * 2),
        row_bytes_(int(b.ld) * 2), lane_(first_k_of_lane() * row_bytes_ + wave{}.rank() % 16 * 8) {}

  /// Loads a step from row k of B on: its first `there` rows; the rest are zeros.
  __device__ void load(step& s, int k, int there) const {
#pragma unroll
    for (int slice = 0; slice < slices; ++slice) {
      int const lane = first_k_of_lane() + slice * 32 < there ? lane_ : oob_offset;
#pragma unroll
      for (int r = 0; r < 8; ++r) s.row[slice][r] = memory_.load_8_streaming(lane, (k + slice * 32 + r) * row_bytes_);
    }
  }
  /// All fragments of a step.
  __device__ static void fragments(step const& s, bytes16*, bytes16 (&to)[slices][atoms]) {
#pragma unroll
    for (int slice = 0; slice < slices; ++slice)
#pragma unroll
      for (int j = 0; j < atoms; ++j) to[slice][j] = column_of(s.row[slice], j);
  }
  /// Sums of four neighbouring columns of a row, as above.
  __device__ static float4 vec4(float4 const* fragments, int i, int m) {
    float const* const of_atom = reinterpret_cast<float const*>(fragments + i / 4 * 16 + m) + i % 4;
    return {of_atom[0], of_atom[256], of_atom[512], of_atom[768]};
  }

 private:
  memory_buffer memory_;
  int row_bytes_, lane_;
};

}  // namespace fusewire
