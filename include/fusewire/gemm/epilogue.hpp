// What happens to an accumulated element before it is stored.
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
}  // namespace detail

/// A type with float operator()(float acc, int row, int column) const, on the device. It returns the value that is
/// stored in place of acc, the element in that row and column of the operator's C. An epilogue is passed to the kernel
/// by value, so it must not point to memory of the host.
template <class E>
concept epilogue = std::is_trivially_copyable_v<E> && detail::takes_an_element<E>;

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

static_assert(epilogue<identity> && epilogue<bias<bf16>> && epilogue<bias_silu<f16>>);

}  // namespace fusewire
