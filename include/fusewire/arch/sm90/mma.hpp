// Matrix instructions of sm_80 and later: mma.m16n8k16, two of them for a 16 x 8 x 32 slice. Layouts: PTX ISA,
// mma.m16n8k16.
#pragma once
#include <fusewire/core/types.hpp>

namespace fusewire {

/// A matrix atom.
template <class T>
struct mma_atom {
  static constexpr int m = 16, n = 8, k = 32;
  static constexpr int a_rows = 2, b_rows = 1;  // rows of A (of B transposed) of which a lane holds 8 neighbouring k
  static constexpr int c_values = 4;

  struct a_fragment {
    bytes16 row[a_rows];
  };
  struct b_fragment {
    bytes16 row[b_rows];
  };
  struct c_fragment {
    float value[4];  // in the order of c_row() and c_col()
    /// Value i of a lane.
    __device__ float& operator[](int i) { return value[i]; }
  };

  __device__ static int a_row(int lane, int i) { return lane / 4 + 8 * i; }
  __device__ static int b_row(int lane, int) { return lane / 4; }
  __device__ static int k_eighth(int lane) { return lane % 4; }  // which 8 of the 32 k
  __device__ static int c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
  __device__ static int c_col(int lane, int i) { return lane % 4 * 2 + i % 2; }

  /// c += a * b. The two instructions take the k of a slice in their own order. It is the same for a and b, so
  /// the sum is over the same 32 k.
  __device__ static void multiply(c_fragment& c, a_fragment const& a, b_fragment const& b) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (std::is_same_v<T, bf16>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
            : "r"(a.row[0].word[2 * i]), "r"(a.row[1].word[2 * i]), "r"(a.row[0].word[2 * i + 1]),
              "r"(a.row[1].word[2 * i + 1]), "r"(b.row[0].word[2 * i]), "r"(b.row[0].word[2 * i + 1]));
      else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
            : "r"(a.row[0].word[2 * i]), "r"(a.row[1].word[2 * i]), "r"(a.row[0].word[2 * i + 1]),
              "r"(a.row[1].word[2 * i + 1]), "r"(b.row[0].word[2 * i]), "r"(b.row[0].word[2 * i + 1]));
    }
  }
};

}  // namespace fusewire
