// Slices of 32 k of a tile in flight from memory to LDS: rows of A and columns of B. LDS holds both in the same way,
// 64 bytes of k for each row or column.
//
//   A, column-major B   16 B = 8 k of a row, unchanged            4 lanes read 64 neighbouring bytes of a row
//   row-major B          8 B = 4 neighbouring columns of one k    8 k make 4 units of 16 B; unit j: column 4 r + j =
//                                                                 row r of atom j
//
// The two slices of a step along k are loaded together, so that both halves of a 128-byte line are requested together.
// They stay in a ring of registers until their place in LDS is free.
#pragma once
#include <fusewire/arch/gfx942/memory_buffer.hpp>
#include <fusewire/gemm/gfx942/weight_fragments.hpp>

namespace fusewire {

/// Units of 16 bytes in a row of a slice, which has 32 k.
inline constexpr int slice_units_per_row = 4;

/// The place of a unit of a row in a slice in LDS, in units. No bank conflicts: neither in reads of fragments (16 rows,
/// one unit), nor in writes of whole rows, nor in writes of one unit of neighbouring rows.
__device__ inline int unit_in_slice(int row, int unit) {
  return (row ^ (row >> 3 & 1)) * slice_units_per_row + (unit ^ (row >> 1 & 3));
}

/// `Rows` rows that are contiguous along k, loaded by 8 waves. Ring: steps that the registers hold.
template <class T, int Rows, int Ring>
class sliced_rows {
  static constexpr int waves = 8, count = ceil_div(Rows, 16 * waves);

 public:
  /// Rows of a slice in LDS.
  static constexpr int rows_in_shared = count * 16 * waves;

  /// Later loads read `rows` rows of a.
  __device__ void begin(matrix<T const> const& a, int rows) {
    std::int64_t const ld = a.ld;
    data_ = a.data;
    ld_ = int(ld);
    bytes_ = std::uint32_t(rows) * std::uint32_t(ld) * 2;
    int const lane = platform::no_hoist_lane(wave{}.rank());  // no registers are kept for what is rarely needed
    lane_ = lane / 4 * int(ld) * 2 + lane % 4 * 16;
    of_wave_ = platform::uniform(wave{}.index()) * 16 * int(ld) * 2;
    apart_ = waves * 16 * int(ld) * 2;
  }
  /// The first of these rows is row `row` of a.
  __device__ void go_to(int row) { memory_ = {data_ + std::int64_t(row) * ld_, bytes_}; }
  /// Loads the ring's s-th step from column `column` on: its first `there` columns; the rest are zeros.
  __device__ void load(int s, int column, int there) {
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int slice = 0; slice < 2; ++slice)
        unit_[s][slice][i] = memory_.load(slice * 32 + wave{}.rank() % 4 * 8 < there ? lane_ : oob_offset,
                                          of_wave_ + i * apart_ + (column + slice * 32) * 2);
  }
  /// Where this lane's first unit of a slice goes in LDS, in units from the slice's start.
  __device__ static int first_unit() {
    return unit_in_slice(wave{}.rank() / 4, wave{}.rank() % 4) +
           platform::uniform(wave{}.index()) * 16 * slice_units_per_row;
  }
  /// Writes slice `Slice` of the ring's s-th step to LDS; `mine` is first_unit() units behind the slice's start.
  template <int Slice>
  __device__ void write(int s, bytes16* mine) const {
#pragma unroll
    for (int i = 0; i < count; ++i) mine[i * waves * 16 * slice_units_per_row] = unit_[s][Slice][i];
  }

 private:
  memory_buffer memory_{nullptr, 0};
  T const* data_ = nullptr;
  int ld_ = 0;
  std::uint32_t bytes_ = 0;
  int lane_ = 0, of_wave_ = 0, apart_ = 0;  // bytes to a lane's row, to the wave's rows, between rows of a lane
  bytes16 unit_[Ring][2][count];
};

template <class T, int Columns, layout Order, int Ring>
class sliced_columns;

/// Slices of a column-major B: its columns are rows along k.
template <class T, int Columns, int Ring>
class sliced_columns<T, Columns, layout::column_major, Ring> {
 public:
  /// Rows of a slice in LDS.
  static constexpr int rows = sliced_rows<T, Columns, Ring>::rows_in_shared;

  /// Columns n0 and following of b.
  __device__ sliced_columns(b_operand<T> const& b, int n0) {
    columns_.begin({b.data, b.n, 0, b.ld}, min(b.n - n0, Columns));
    columns_.go_to(n0);
  }
  /// Loads the ring's s-th step from row k of B on: its first `there` rows; the rest are zeros.
  __device__ void load(int s, int k, int there) { columns_.load(s, k, there); }
  /// As of sliced_rows.
  __device__ static int first_unit() { return sliced_rows<T, Columns, Ring>::first_unit(); }
  /// As of sliced_rows.
  template <int Slice>
  __device__ void write(int s, bytes16* mine) const {
    columns_.template write<Slice>(s, mine);
  }
  /// A lane's q-th four neighbouring sums in a row of fragments.
  template <int N, class Fragment>
  __device__ static float4 vec4(Fragment (&of_row)[N], int q) {
    return reinterpret_cast<float4&>(of_row[q]);
  }
  /// The column of the first of a lane's q-th four sums.
  __device__ static int first_column(int q, int lane) { return q * 16 + lane / 16 * 4; }

 private:
  sliced_rows<T, Columns, Ring> columns_;
};

/// Slices of a row-major B, transposed in flight from registers to LDS.
template <class T, int Columns, int Ring>
class sliced_columns<T, Columns, layout::row_major, Ring> {
 public:
  /// Rows of a slice in LDS.
  static constexpr int rows = Columns;
  static_assert(Columns == 128 || Columns == 256);

  /// Columns n0 and following of b.
  __device__ sliced_columns(b_operand<T> const& b, int n0)
      : data_(b.data + n0), ld_(b.ld), columns_(b.n - n0),
        lane_(wave{}.rank() * 4 < Columns ? wave{}.rank() * 8 : oob_offset) {}
  /// Loads a step as above. The first half of the waves hold its first slice, the others its second; each wave has 8 k.
  __device__ void load(int s, int k, int there) {
    int const first = platform::uniform(wave{}.index()) * 8;
    memory_buffer const memory(data_ + (k + first) * ld_,
                               first < there ? (7 * std::uint32_t(ld_) + std::uint32_t(columns_ + 1) / 2 * 2) * 2 : 0);
#pragma unroll
    for (int r = 0; r < 8; ++r) row_[s][r] = memory.load_8(lane_, r * int(ld_) * 2);
  }
  /// As of sliced_rows.
  __device__ static int first_unit() {
    return wave{}.rank() / 16 * 64 * slice_units_per_row +
           unit_in_slice(wave{}.rank() % 16, platform::uniform(wave{}.index()) % 4);
  }
  /// As of sliced_rows.
  template <int Slice>
  __device__ void write(int s, bytes16* mine) const {
    if (platform::uniform(wave{}.index()) / 4 != Slice || wave{}.rank() * 4 >= Columns) return;
#pragma unroll
    for (int j = 0; j < 4; ++j) mine[j * 16 * slice_units_per_row] = column_of(row_[s], j);
  }
  /// A lane's q-th four neighbouring sums in a row of fragments.
  template <int N, class Fragment>
  __device__ static float4 vec4(Fragment (&of_row)[N], int q) {
    // By element of the vectors: else clang joins loads of neighbouring fragments, and keeps the sums in scratch
    return {of_row[0].value[q], of_row[1].value[q], of_row[2].value[q], of_row[3].value[q]};
  }
  /// The column of the first of a lane's q-th four sums.
  __device__ static int first_column(int q, int lane) { return lane / 16 * 16 + q * 4; }

 private:
  T const* data_;
  std::int64_t ld_;
  int columns_, lane_;
  unsigned long long row_[Ring][8];
};

}  // namespace fusewire
