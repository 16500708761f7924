// Matrix instructions of gfx942: v_mfma_f32_16x16x16, two of them for a 16 x 16 x 32 slice. Layouts: CDNA3 ISA, section
// 7.1.4.
#pragma once
#include <fusewire/core/types.hpp>

namespace fusewire {

/// A matrix atom.
template <class T>
struct mma_atom {
  static constexpr int m = 16, n = 16, k = 32;
  static constexpr int a_rows = 1, b_rows = 1;  // rows of A (of B transposed) of which a lane holds 8 neighbouring k
  /// Values of C that a lane holds.
  static constexpr int c_values = 4;

  /// Registers as the builtins take them.
  using four = short __attribute__((ext_vector_type(4)));
  /// Registers as the builtins take them.
  using four_halves = _Float16 __attribute__((ext_vector_type(4)));
  /// Registers as the builtins take them.
  using four_floats = float __attribute__((ext_vector_type(4)));

  struct a_fragment {
    /// 8 neighbouring k of each.
    bytes16 row[a_rows];
  };
  struct b_fragment {
    /// 8 neighbouring k of each.
    bytes16 row[b_rows];
  };
  struct c_fragment {
    /// In the order of c_row().
    four_floats value;
    /// Value i of a lane.
    __device__ float& operator[](int i) { return reinterpret_cast<float*>(&value)[i]; }
  };

  __device__ static int a_row(int lane, int) { return lane % 16; }
  __device__ static int b_row(int lane, int) { return lane % 16; }
  __device__ static int k_eighth(int lane) { return lane / 16; }  // which 8 of the 32 k
  __device__ static int c_row(int lane, int i) { return lane / 16 * 4 + i; }
  __device__ static int c_col(int lane, int) { return lane % 16; }

  /// c += a * b. The two instructions take the k of a slice in their own order. It is the same for a and b, so
  /// the sum is over the same 32 k.
  __device__ static void multiply(c_fragment& c, a_fragment const& a, b_fragment const& b) {
    multiply_half(c, a, b, 0);
    multiply_half(c, a, b, 1);
  }
  /// One of the two instructions. The second should not follow immediately if other instructions can come between.
  __device__ static void multiply_half(c_fragment& c, a_fragment const& a, b_fragment const& b, int half) {
    struct halves {
      four h[2];
    };
    four const ha = __builtin_bit_cast(halves, a).h[half], hb = __builtin_bit_cast(halves, b).h[half];
    if constexpr (std::is_same_v<T, bf16>)
      c.value = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(ha, hb, c.value, 0, 0, 0);
    else
      c.value = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(four_halves, ha),
                                                      __builtin_bit_cast(four_halves, hb), c.value, 0, 0, 0);
  }
};

}  // namespace fusewire
