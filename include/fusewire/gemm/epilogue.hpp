// What happens to an accumulated element, or to a pair of neighbouring ones, before it is stored.
#pragma once
#include <concepts>

#include <fusewire/core/types.hpp>

namespace fusewire {

namespace detail {
/// Not part of the concept itself: there the compiler would take it for a call by the host function that tests the
/// concept, and a host function may not call device functions.
template <class E>
inline constexpr bool takes_an_element = requires(E const e, float acc, int i) {
  { e(acc, i, i) } -> std::convertible_to<float>;
};
/// For the same reason.
template <class E>
inline constexpr bool takes_a_pair = requires(E const e, float acc, int i) {
  { e(acc, acc, i, i) } -> std::convertible_to<float>;
};
}  // namespace detail

/// A type with float operator()(float acc, int row, int column) const, on the device. It returns the value that is
/// stored in place of acc, the element in that row and column of the operator's C. An epilogue is passed to the kernel
/// by value, so it must not point to memory of the host.
template <class E>
concept epilogue = std::is_trivially_copyable_v<E> && detail::takes_an_element<E>;

/// A type with float operator()(float even, float odd, int row, int column) const, on the device. The product A * B has
/// N columns, and C has N / 2: the value in `column` of C is made of the product's columns 2 * column and
/// 2 * column + 1. So a gate and what it gates leave one GEMM as one matrix; interleave_columns() makes such weights.
/// Otherwise as an epilogue.
template <class E>
concept pair_epilogue = std::is_trivially_copyable_v<E> && detail::takes_a_pair<E> && !detail::takes_an_element<E>;

/// What an operator takes whose C nobody adds to and nobody else receives.
template <class E>
concept local_epilogue = epilogue<E> || pair_epilogue<E>;

/// Columns of the product from which an epilogue makes one column of C.
template <class E>
inline constexpr int columns_of_value = pair_epilogue<E> ? 2 : 1;

namespace detail {
/// Of four neighbouring sums of a row, value number i that is stored. first: the column of C of value 0.
template <class E>
__device__ __forceinline__ float value_of(E const& e, float4 const& sums, int row, int first, int i) {
  float const* const s = &sums.x;
  if constexpr (pair_epilogue<E>) return e(s[2 * i], s[2 * i + 1], row, first + i);
  else return e(s[i], row, first + i);
}
}  // namespace detail

/// An epilogue.
/// Stores the accumulated element as it is.
struct identity {
  __device__ float operator()(float x, int, int) const { return x; }
};

/// An epilogue.
/// Adds bias[column].
template <class T>
struct bias {
  T const* values;  // [N]
  __device__ float operator()(float x, int, int column) const { return x + float(values[column]); }
};

/// An epilogue.
/// Stores silu(x + bias[column]), where silu(y) = y / (1 + exp(-y)).
template <class T>
struct bias_silu {
  T const* values;  // [N]
  __device__ float operator()(float x, int, int column) const {
    float const y = x + float(values[column]);
    return y / (1.0f + platform::exp2(-1.44269504f * y));
  }
};

/// A pair epilogue.
/// Stores silu(gate) * up, where gates are the product's even columns: a SwiGLU MLP's first GEMM.
struct swiglu {
  __device__ float operator()(float gate, float up, int, int) const {
    return gate * up / (1.0f + platform::exp2(-1.44269504f * gate));
  }
};

/// A pair epilogue.
/// Stores gelu(gate) * up, where gates are the product's even columns. gelu(x) = x / 2 * (1 + tanh(u)) with
/// u = sqrt(2 / pi) * (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
struct geglu {
  __device__ float operator()(float gate, float up, int, int) const {
    float const u = 0.79788456f * (gate + 0.044715f * gate * gate * gate);
    return gate * up / (1.0f + platform::exp2(-2.88539008f * u));
  }
};

static_assert(pair_epilogue<swiglu> && pair_epilogue<geglu> && !epilogue<swiglu> && !pair_epilogue<identity>);
static_assert(epilogue<identity> && epilogue<bias<bf16>> && epilogue<bias_silu<f16>>);

}  // namespace fusewire
