// Matrix instructions as types: one struct with its shape, its lane map and one builtin.
#pragma once
#include <concepts>

#include <fusewire/platform/platform.hpp>
#if defined(__CUDACC__) || defined(FUSEWIRE_PLATFORM_NVIDIA)
#include <fusewire/arch/sm90/mma.hpp>
#else
#include <fusewire/arch/gfx942/mma.hpp>
#endif

namespace fusewire {

/// C [m, n] += A [m, k] * B [k, n] by one wave, k = 32, fp32 accumulate. A lane holds 8 neighbouring k, one 16-byte
/// read, of each of its rows of A and of B transposed. Row j of a fragment is row a_row(lane, j) of A, or b_row(lane,
/// j) of B transposed; its k are k_eighth(lane) * 8 and the 7 after it. Value i of a C fragment is at (c_row(lane, i),
/// c_col(lane, i)). a_rows, b_rows: rows of a fragment; c_values: values of a C fragment.
template <class A>
concept matrix_atom =
    requires(int lane, int i, typename A::a_fragment a, typename A::b_fragment b, typename A::c_fragment c) {
      requires A::k == 32 && A::m > 0 && A::n > 0;
      { A::a_row(lane, i) } -> std::same_as<int>;
      { A::b_row(lane, i) } -> std::same_as<int>;
      { A::k_eighth(lane) } -> std::same_as<int>;
      { A::c_row(lane, i) } -> std::same_as<int>;
      { A::c_col(lane, i) } -> std::same_as<int>;
      A::multiply(c, a, b);
    };
static_assert(matrix_atom<mma_atom<bf16>> && matrix_atom<mma_atom<f16>>);

}  // namespace fusewire
