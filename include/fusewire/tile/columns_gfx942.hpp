// Slices of 32 k of a tile on their way from memory to LDS: rows of A, and columns of B, which LDS holds alike, 64
// bytes of k for each.
//
//   A, column-major B   16 B = 8 k of a row: as it lies      4 lanes read 64 neighbouring bytes of a row
//   row-major B          8 B = 4 neighbouring columns of a k; 8 k make 4 units of 16 B, of columns 4 r + j: atom j, row
//   r
//
// A step along k, two slices, is loaded together, so that both halves of a line of 128 bytes are asked for at once. It
// stays in a ring of registers until the slice's place in LDS is free.
#pragma once
#include <fusewire/tile/buffer_gfx942.hpp>
#include <fusewire/tile/weights_gfx942.hpp>

namespace fusewire {

inline constexpr int slice_units_per_row = 4;

/// Where LDS has 16 bytes of a row. Neither reads of fragments (16 rows, one unit), nor writes of whole rows, nor those
/// of one unit of neighbouring rows meet in a bank.
__device__ inline int unit_in_slice(int row, int unit) {
  return (row ^ (row >> 3 & 1)) * slice_units_per_row + (unit ^ (row >> 1 & 3));
}

/// `Rows` rows, contiguous along k, of 8 waves.
template <class T, int Rows, int Ring>
class sliced_rows {
  static constexpr int waves = 8, count = ceil_div(Rows, 16 * waves);

 public:
  /// LDS has as many rows.
  static constexpr int rows_in_shared = count * 16 * waves;

  /// From row `row` on, of which there are `rows`.
  __device__ void begin(matrix<T const> const& a, int row, int rows) {
    std::int64_t const ld = a.ld;
    memory_ = {a.data + row * ld, std::uint32_t(rows) * std::uint32_t(ld) * 2};
    lane_ = wave{}.rank() / 4 * int(ld) * 2 + wave{}.rank() % 4 * 16;
    of_wave_ = platform::uniform(wave{}.index()) * 16 * int(ld) * 2;
    apart_ = waves * 16 * int(ld) * 2;
  }
  /// A step, the ring's s-th, from column `column` on, of which there are `there`; zeros for the others.
  __device__ void load(int s, int column, int there) {
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int slice = 0; slice < 2; ++slice)
        unit_[s][slice][i] = memory_.load(slice * 32 + wave{}.rank() % 4 * 8 < there ? lane_ : nowhere,
                                          of_wave_ + i * apart_ + (column + slice * 32) * 2);
  }
  template <int Slice>
  __device__ void write(int s, bytes16* shared) const {
    bytes16* const mine = shared + unit_in_slice(wave{}.rank() / 4, wave{}.rank() % 4) +
                          platform::uniform(wave{}.index()) * 16 * slice_units_per_row;
#pragma unroll
    for (int i = 0; i < count; ++i) mine[i * waves * 16 * slice_units_per_row] = unit_[s][Slice][i];
  }

 private:
  memory_buffer memory_{nullptr, 0};
  int lane_ = 0, of_wave_ = 0, apart_ = 0;  // bytes to a lane's row, to the wave's, between rows of a lane
  bytes16 unit_[Ring][2][count];
};

template <class T, int Columns, layout Order, int Ring>
class sliced_columns;

template <class T, int Columns, int Ring>
class sliced_columns<T, Columns, layout::column_major, Ring> {
 public:
  static constexpr int rows = sliced_rows<T, Columns, Ring>::rows_in_shared;

  __device__ sliced_columns(b_operand<T> const& b, int n0) {
    columns_.begin({b.data, b.n, 0, b.ld}, n0, b.n - n0 < Columns ? b.n - n0 : Columns);
  }
  __device__ void load(int s, int k, int there) { columns_.load(s, k, there); }
  template <int Slice>
  __device__ void write(int s, bytes16* shared) const {
    columns_.template write<Slice>(s, shared);
  }
  /// The q-th four of neighbouring sums of a lane, of a row of fragments, and the column of the first.
  template <int N, class Fragment>
  __device__ static float4 quad(Fragment (&of_row)[N], int q) {
    return reinterpret_cast<float4&>(of_row[q]);
  }
  __device__ static int first_column(int q, int lane) { return q * 16 + lane / 16 * 4; }

 private:
  sliced_rows<T, Columns, Ring> columns_;
};

template <class T, int Columns, int Ring>
class sliced_columns<T, Columns, layout::row_major, Ring> {
 public:
  static constexpr int rows = Columns;
  static_assert(Columns == 128 || Columns == 256);

  __device__ sliced_columns(b_operand<T> const& b, int n0)
      : data_(b.data + n0), ld_(b.ld), columns_(b.n - n0),
        lane_(wave{}.rank() * 4 < Columns ? wave{}.rank() * 8 : nowhere) {}
  /// The waves of the first half hold the first slice, the others the second; a wave, 8 k.
  __device__ void load(int s, int k, int there) {
    int const first = platform::uniform(wave{}.index()) * 8;
    memory_buffer const memory(data_ + (k + first) * ld_,
                               first < there ? (7 * std::uint32_t(ld_) + std::uint32_t(columns_ + 1) / 2 * 2) * 2 : 0);
#pragma unroll
    for (int r = 0; r < 8; ++r) row_[s][r] = memory.load_8(lane_, r * int(ld_) * 2);
  }
  template <int Slice>
  __device__ void write(int s, bytes16* shared) const {
    int const of_wave = platform::uniform(wave{}.index());
    if (of_wave / 4 != Slice) return;
    int const lane = wave{}.rank();
    if (lane * 4 >= Columns) return;
    bytes16* const mine = shared + lane / 16 * 64 * slice_units_per_row + unit_in_slice(lane % 16, of_wave % 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) mine[j * 16 * slice_units_per_row] = column_of(row_[s], j);
  }
  template <int N, class Fragment>
  __device__ static float4 quad(Fragment (&of_row)[N], int q) {
    return {of_row[0][q], of_row[1][q], of_row[2][q], of_row[3][q]};
  }
  __device__ static int first_column(int q, int lane) { return lane / 16 * 16 + q * 4; }

 private:
  T const* data_;
  std::int64_t ld_;
  int columns_, lane_;
  unsigned long long row_[Ring][8];
};

}  // namespace fusewire
