// Rows of C, of 16-bit elements, in flight from a wave's sums to memory. A lane holds four neighbouring elements;
// after the way through LDS it stores 16 bytes, and the lanes together store whole lines of memory.
//
// The stores go through to memory immediately. What is still in an L2 when a kernel ends would be written back only
// then, for all blocks at the same time.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/arch/gfx942/memory_buffer.hpp>
#include <fusewire/gemm/epilogue.hpp>

namespace fusewire {

/// Columns: of C, of a wave; Fragments: of 16 rows, which LDS holds at a time. No barrier is needed, because the
/// accesses of a wave to LDS stay in order.
template <class T, int Columns, int Fragments>
class staged_rows {
  static constexpr int units = Columns / 8, stride = units + 1;  // units of 16 bytes; one more, against bank conflicts

 public:
  /// As the template's parameter; bytes of LDS for a wave.
  static constexpr int fragments = Fragments, bytes = fragments * 16 * stride * 16;

  /// Rows of c from (m0, n0) on, of wave of_wave. shared: LDS of the block, `bytes` for each wave.
  __device__ staged_rows(void* shared, matrix<T> const& c, int of_wave, int m0, int n0)
      : rows_(static_cast<char*>(shared) + of_wave * bytes), c_(c), m0_(m0), n0_(n0) {}

  /// Stores epilogue(sums) to LDS: elements of row lane % 16 of the i-th fragment, made of four sums of the wave's from
  /// column `column` on.
  template <class Epilogue>
  __device__ void put(int i, int column, float4 const& sums, Epilogue const& epilogue) const {
    constexpr int per_value = columns_of_value<Epilogue>, values = 4 / per_value;
    int const row = i * 16 + wave{}.rank() % 16, r = m0_ + row, at = column / per_value, col = n0_ + at;
    if (r >= c_.rows || col >= c_.cols) return;
    struct {
      T element[values];
    } some;
    bool const whole = col + values <= c_.cols;  // in most cases; then no element is tested by itself
#pragma unroll
    for (int j = 0; j < values; ++j)
      some.element[j] = whole || col + j < c_.cols ? T(detail::value_of(epilogue, sums, r, col, j)) : T(0.0f);
    __builtin_memcpy(rows_ + row % (fragments * 16) * stride * 16 + at * 2, &some, sizeof(some));
  }
  /// Stores the last `fragments` fragments up to the i-th to c.
  __device__ void store(int i) const {
    int const first = m0_ + (i + 1 - fragments) * 16;
    memory_buffer const memory(c_.at(first, n0_), 0x7fffffff);
    bool const whole = is_row_aligned<16>(c_) && c_.ld < std::int64_t(1) << 25;
    int const lane = platform::no_hoist_lane(wave{}.rank());  // or places are worked out, and kept, before the loop
#pragma unroll
    for (int u = 0; u < fragments * 16 * units; u += wave::width) {
      int const unit = u + lane, row = unit / units, column = unit % units * 8, left = c_.cols - n0_ - column;
      if (unit >= fragments * 16 * units || first + row >= c_.rows || left <= 0) continue;
      struct {
        T element[8];
      } eight;
      __builtin_memcpy(&eight, rows_ + (row * stride + unit % units) * 16, 16);
      if (whole && left >= 8) {
        memory.store_device(__builtin_bit_cast(bytes16, eight), row * int(c_.ld) * 2 + column * 2);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j)
          if (j < left) c_(first + row, n0_ + column + j) = eight.element[j];
      }
    }
  }

 private:
  char* rows_;
  matrix<T> const& c_;
  int m0_, n0_;
};

}  // namespace fusewire
