// Atomic access to one object in memory that several devices share. The interface is that of std::atomic_ref.
#pragma once
#include <cstdint>
#include <type_traits>

#include <fusewire/core/types.hpp>

namespace fusewire {

namespace detail {
/// Calls f with the order as a compile-time value, as the compilers' builtins need it.
template <class F>
__device__ auto with_order(order o, F f) {
  switch (o) {
    case order::acquire: return f(std::integral_constant<order, order::acquire>{});
    case order::release: return f(std::integral_constant<order, order::release>{});
    case order::acq_rel: return f(std::integral_constant<order, order::acq_rel>{});
    default: return f(std::integral_constant<order, order::relaxed>{});
  }
}
template <class F>
__device__ auto with_load_order(order o, F f) {
  return o == order::relaxed ? f(std::integral_constant<order, order::relaxed>{})
                             : f(std::integral_constant<order, order::acquire>{});
}
template <class F>
__device__ void with_store_order(order o, F f) {
  if (o == order::relaxed) f(std::integral_constant<order, order::relaxed>{});
  else f(std::integral_constant<order, order::release>{});
}
}  // namespace detail

/// Types with all operations of atomic_ref.
template <class T>
concept atomic_integer = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);
/// Types with all operations of atomic_ref but those on bits and fetch_min and fetch_max.
template <class T>
concept atomic_float = std::is_same_v<T, float> || std::is_same_v<T, double>;

/// Atomic access to *p at scope S.
/// Requires: p aligned to the size of T. On gfx942 a scope smaller than system is atomic only among the threads of the
/// GPU that owns the memory.
template <class T, scope S = scope::system>
class atomic_ref {
  static_assert(atomic_integer<T> || atomic_float<T>, "atomic_ref: 32 and 64 bit integers, float and double");

 public:
  /// Refers to *p, which must outlive this object.
  __device__ explicit atomic_ref(T* p) : p_(p) {}

  /// Loads *p. Order: acq_rel means acquire.
  __device__ T load(order o = order::acq_rel) const {
    return detail::with_load_order(o, [&](auto k) { return platform::atomic_load<decltype(k)::value, S>(p_); });
  }
  /// Stores `value`. Order: acq_rel means release.
  __device__ void store(T value, order o = order::acq_rel) const {
    detail::with_store_order(o, [&](auto k) { platform::atomic_store<decltype(k)::value, S>(p_, value); });
  }
  /// Stores `value`; returns what *p was.
  __device__ T exchange(T value, order o = order::acq_rel) const {
    return detail::with_order(o, [&](auto k) { return platform::atomic_exchange<decltype(k)::value, S>(p_, value); });
  }
  /// Returns true when *p was `expected` and is now `desired`; otherwise `expected` becomes what *p was.
  __device__ bool compare_exchange(T& expected, T desired, order o = order::acq_rel) const {
    return detail::with_order(
        o, [&](auto k) { return platform::atomic_compare_exchange<decltype(k)::value, S>(p_, expected, desired); });
  }
  /// Adds; returns what *p was. Wraps where T is an integer.
  __device__ T fetch_add(T value, order o = order::acq_rel) const {
    return detail::with_order(o, [&](auto k) { return platform::atomic_fetch_add<decltype(k)::value, S>(p_, value); });
  }
  /// Subtracts; returns what *p was. Wraps where T is an integer.
  __device__ T fetch_sub(T value, order o = order::acq_rel) const { return fetch_add(T(0) - value, o); }
  /// Stores *p & value; returns what *p was.
  __device__ T fetch_and(T value, order o = order::acq_rel) const
    requires atomic_integer<T>
  {
    return detail::with_order(o, [&](auto k) { return platform::atomic_fetch_and<decltype(k)::value, S>(p_, value); });
  }
  /// Stores *p | value; returns what *p was.
  __device__ T fetch_or(T value, order o = order::acq_rel) const
    requires atomic_integer<T>
  {
    return detail::with_order(o, [&](auto k) { return platform::atomic_fetch_or<decltype(k)::value, S>(p_, value); });
  }
  /// Stores *p ^ value; returns what *p was.
  __device__ T fetch_xor(T value, order o = order::acq_rel) const
    requires atomic_integer<T>
  {
    return detail::with_order(o, [&](auto k) { return platform::atomic_fetch_xor<decltype(k)::value, S>(p_, value); });
  }
  /// Stores the smaller of *p and `value`; returns what *p was.
  __device__ T fetch_min(T value, order o = order::acq_rel) const
    requires atomic_integer<T>
  {
    return detail::with_order(o, [&](auto k) { return platform::atomic_fetch_min<decltype(k)::value, S>(p_, value); });
  }
  /// Stores the larger of *p and `value`; returns what *p was.
  __device__ T fetch_max(T value, order o = order::acq_rel) const
    requires atomic_integer<T>
  {
    return detail::with_order(o, [&](auto k) { return platform::atomic_fetch_max<decltype(k)::value, S>(p_, value); });
  }

 private:
  T* p_;
};

/// Adds to two neighbouring 16-bit floats in one operation, by compare-and-swap on their common word: that is atomic at
/// system scope, too. Requires: p aligned to 4 bytes.
template <class T>
  requires is_16_bit_float<T>
__device__ void fetch_add_pair(T* p, T first, T second, order o = order::relaxed) {
  atomic_ref<std::uint32_t> const word(reinterpret_cast<std::uint32_t*>(p));
  std::uint32_t old = word.load(order::relaxed);
  auto sum = [](std::uint16_t bits, T x) {
    T t;
    t.bits = bits;
    return std::uint32_t(T(float(t) + float(x)).bits);
  };
  while (!word.compare_exchange(old, sum(std::uint16_t(old), first) | sum(std::uint16_t(old >> 16), second) << 16, o)) {
  }
}

}  // namespace fusewire
