// Atomic accesses by order and scope, and polls.
#pragma once
#include <fusewire/platform/amd/order.hpp>

namespace fusewire::platform {

/// An atomic operation that releases is a fence, which waits, and then the operation with the rest of its order.
template <order O, scope S>
__device__ inline void release_before() {
  if constexpr (O == order::release || O == order::acq_rel) fence<order::release, S>();
}
/// The order of an operation itself when release_before() comes before it.
template <order O>
inline constexpr int order_after_release =
    O == order::relaxed || O == order::release ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;
/// Whether this lane is in `lanes`, which is the same in all lanes.
__device__ inline bool is_in(std::uint64_t lanes) {
#if __has_builtin(__builtin_amdgcn_inverse_ballot_w64)
  return __builtin_amdgcn_inverse_ballot_w64(lanes);
#else
  return lanes >> __lane_id() & 1;  // clang 19
#endif
}

/// For each lane in `lanes` the word that lies `at` bytes behind `data`, as by a relaxed load at system scope; for
/// others 0, and they load nothing. There is no branch, so the compiler knows how many loads are in flight.
/// Called by: every lane of a wave.
/// Requires: `data` and `lanes` are the same in all lanes; 0 <= at < 2^31 - 2^16.
__device__ inline std::uint64_t poll_lanes(void const* data, int at, std::uint64_t lanes) {
  constexpr int beyond = 0x7fff0000, raw_32_bit = 0x00020000, system_scope = 17;
  auto const memory = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(data), 0, beyond, raw_32_bit);
  auto const word = __builtin_amdgcn_raw_buffer_load_b64(memory, is_in(lanes) ? at : beyond, 0, system_scope);
  return __builtin_bit_cast(std::uint64_t, word);
}
/// Orders what an acquire load of *p would order. Called after relaxed loads of *p have found the awaited value.
template <scope S, class T>
__device__ inline void acquire_polled(T const*) {
  fence<order::acquire, S>();
}
/// The same, where this thread has used the value of such a load, so that the load is complete. Unlike a fence, it does
/// not wait for other loads that are in flight, and it orders only later loads.
template <scope S>
__device__ inline void acquire_loaded() {
  static_assert(S == scope::system);
  asm volatile("buffer_inv sc0 sc1" ::: "memory");
}
/// An aligned load of 4 or 8 bytes in one access. Order: relaxed or acquire.
template <order O, scope S, class T>
__device__ T atomic_load(T const* p) {
  return __hip_atomic_load(p, order_of<O>, scope_of<S>);
}
/// An aligned store of 4 or 8 bytes in one access. Order: relaxed or release.
template <order O, scope S, class T>
__device__ void atomic_store(T* p, T value) {
  release_before<O, S>();
  __hip_atomic_store(p, value, __ATOMIC_RELAXED, scope_of<S>);
}
/// Stores `value`; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_exchange(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_exchange(p, value, order_after_release<O>, scope_of<S>);
}
/// True when *p was `expected` and is now `desired`; otherwise `expected` becomes what *p was.
template <order O, scope S, class T>
__device__ bool atomic_compare_exchange(T* p, T& expected, T desired) {
  release_before<O, S>();
  return __hip_atomic_compare_exchange_strong(p, &expected, desired, order_after_release<O>, order_after_release<O>,
                                              scope_of<S>);
}
/// Adds; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_add(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_add(p, value, order_after_release<O>, scope_of<S>);
}
/// Adds 1 to *p, relaxed, at device scope; returns what *p was. Called by one lane, which waits for the result where it
/// uses it. p is hidden from the compiler: where it knows that all lanes have the same p, one lane adds for all, and
/// the wave waits immediately for the result and for every load before it.
__device__ inline unsigned take_ticket(unsigned* p) {
  unsigned none = 0;
  asm volatile("" : "+v"(none));
  auto* const readlane = reinterpret_cast<unsigned*>(reinterpret_cast<char*>(p) + none);
  return __hip_atomic_fetch_add(readlane, 1u, __ATOMIC_RELAXED, scope_of<scope::device>);
}
/// Stores *p & value; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_and(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_and(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores *p | value; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_or(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_or(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores *p ^ value; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_xor(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_xor(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores the smaller of *p and `value`; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_min(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_min(p, value, order_after_release<O>, scope_of<S>);
}
/// Stores the larger of *p and `value`; returns what *p was.
template <order O, scope S, class T>
__device__ T atomic_fetch_max(T* p, T value) {
  release_before<O, S>();
  return __hip_atomic_fetch_max(p, value, order_after_release<O>, scope_of<S>);
}

}  // namespace fusewire::platform
