// Atomic accesses by order and scope, and polls.
#pragma once
#include <type_traits>

#include <fusewire/platform/nvidia/execution.hpp>
#include <fusewire/platform/nvidia/order.hpp>

namespace fusewire::platform {

template <order O, scope S, class T>
__device__ T atomic_load(T const* p) {
  T value;
  __nv_atomic_load(const_cast<T*>(p), &value, order_of<O>::value, scope_of<S>::value);
  return value;
}
/// For each lane in `lanes` the word that lies `at` bytes behind `data`, as by a relaxed load at system scope; for
/// others 0, and they load nothing.
/// Called by: every lane of a wave.
/// Requires: `data` and `lanes` are the same in all lanes; 0 <= at.
__device__ inline std::uint64_t poll_lanes(void const* data, int at, std::uint64_t lanes) {
  auto const* const word = reinterpret_cast<std::uint64_t const*>(static_cast<char const*>(data) + at);
  return (lanes >> thread_index() % wave_size & 1) != 0 ? atomic_load<order::relaxed, scope::system>(word) : 0;
}
/// Orders what an acquire load of *p would order, by such a load, which costs less than a fence. Called after relaxed
/// loads of *p have found the awaited value. That value must not be overwritten while it is waited for.
template <scope S, class T>
__device__ inline void acquire_polled(T const* p) {
  (void)atomic_load<order::acquire, S>(p);
}
/// The same, where this thread has used the value of such a load.
template <scope S>
__device__ inline void acquire_loaded() {
  fence<order::acquire, S>();
}
template <order O, scope S, class T>
__device__ void atomic_store(T* p, T value) {
  __nv_atomic_store(p, &value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_exchange(T* p, T value) {
  T old;
  __nv_atomic_exchange(p, &value, &old, order_of<O>::value, scope_of<S>::value);
  return old;
}
template <order O, scope S, class T>
__device__ bool atomic_compare_exchange(T* p, T& expected, T desired) {
  return __nv_atomic_compare_exchange(p, &expected, &desired, false, order_of<O>::value, order_of<O>::failure,
                                      scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_add(T* p, T value) {
  if constexpr (std::is_integral_v<T>) {  // nvcc adds no signed 64 bit integers
    using bits = std::make_unsigned_t<T>;
    return T(__nv_atomic_fetch_add(reinterpret_cast<bits*>(p), bits(value), order_of<O>::value, scope_of<S>::value));
  } else {
    return __nv_atomic_fetch_add(p, value, order_of<O>::value, scope_of<S>::value);
  }
}
/// Adds 1 to *p, relaxed, at device scope; returns what *p was. Called by one lane.
__device__ inline unsigned take_ticket(unsigned* p) { return atomic_fetch_add<order::relaxed, scope::device>(p, 1u); }
template <order O, scope S, class T>
__device__ T atomic_fetch_and(T* p, T value) {
  return __nv_atomic_fetch_and(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_or(T* p, T value) {
  return __nv_atomic_fetch_or(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_xor(T* p, T value) {
  return __nv_atomic_fetch_xor(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_min(T* p, T value) {
  return __nv_atomic_fetch_min(p, value, order_of<O>::value, scope_of<S>::value);
}
template <order O, scope S, class T>
__device__ T atomic_fetch_max(T* p, T value) {
  return __nv_atomic_fetch_max(p, value, order_of<O>::value, scope_of<S>::value);
}

}  // namespace fusewire::platform
