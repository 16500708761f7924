// Loads, stores and copies. Remote memory is memory: all of these take any pointer that world_view::on() returns.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>

namespace fusewire {

namespace detail {
template <int Bytes>
struct word_of;
template <>
struct word_of<1> { using type = std::uint8_t; };
template <>
struct word_of<2> { using type = std::uint16_t; };
template <>
struct word_of<4> { using type = std::uint32_t; };
template <>
struct word_of<8> { using type = unsigned long long; };
template <>
struct word_of<16> { using type = bytes16; };
}  // namespace detail

template <class T>
concept word_sized = std::is_trivially_copyable_v<T> &&
                     (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);

/// Reads memory as it is now, past any cache that could hold an older value.
/// Order: none with other accesses (relaxed, system scope); 16 bytes are two reads of 8.
/// Requires: p aligned to sizeof(T).
template <word_sized T>
__device__ T load(T const* p) {
  T value;
  if constexpr (sizeof(T) == 16) {
    auto const* half = reinterpret_cast<unsigned long long const*>(p);
    unsigned long long const two[2] = {platform::atomic_load<order::relaxed, scope::system>(half),
                                       platform::atomic_load<order::relaxed, scope::system>(half + 1)};
    memcpy(&value, two, 16);
  } else {
    using word = typename detail::word_of<sizeof(T)>::type;
    word const w = platform::atomic_load<order::relaxed, scope::system>(reinterpret_cast<word const*>(p));
    memcpy(&value, &w, sizeof(T));
  }
  return value;
}

/// Writes memory for everybody to see, past any cache that would keep it back.
/// Order: none with other accesses (relaxed, system scope); 16 bytes are two writes of 8.
/// Requires: p aligned to sizeof(T).
template <word_sized T>
  requires(!std::is_const_v<T>)
__device__ void store(T* p, std::type_identity_t<T> value) {
  if constexpr (sizeof(T) == 16) {
    unsigned long long two[2];
    memcpy(two, &value, 16);
    auto* half = reinterpret_cast<unsigned long long*>(p);
    platform::atomic_store<order::relaxed, scope::system>(half, two[0]);
    platform::atomic_store<order::relaxed, scope::system>(half + 1, two[1]);
  } else {
    using word = typename detail::word_of<sizeof(T)>::type;
    word w;
    memcpy(&w, &value, sizeof(T));
    platform::atomic_store<order::relaxed, scope::system>(reinterpret_cast<word*>(p), w);
  }
}

namespace detail {
/// `count` words, four independent accesses in flight per thread.
template <class Word, group Group>
__device__ void copy_words(Group g, Word const* from, Word* to, std::int64_t count) {
  constexpr int flight = 4;
  std::int64_t i = g.rank();
  for (; i + (flight - 1) * g.size() < count; i += flight * g.size()) {
    Word w[flight];
#pragma unroll
    for (int j = 0; j < flight; ++j) w[j] = from[i + j * g.size()];
#pragma unroll
    for (int j = 0; j < flight; ++j) to[i + j * g.size()] = w[j];
  }
  for (; i < count; i += g.size()) to[i] = from[i];
}
}  // namespace detail

/// Copies `bytes` bytes, 16 at a time where both addresses allow it.
/// Called by: every thread of the group. Order: none; signal() publishes what the group has copied.
/// Requires: the ranges do not overlap. Any alignment, any length >= 0.
template <group Group>
__device__ void copy_bytes(Group g, void const* from, void* to, std::int64_t bytes) {
  auto const* f = static_cast<unsigned char const*>(from);
  auto* t = static_cast<unsigned char*>(to);
  auto const apart = (reinterpret_cast<std::uintptr_t>(f) ^ reinterpret_cast<std::uintptr_t>(t)) & 15;
  auto const words = [&]<class Word>(Word const*) {  // head to the first aligned word, whole words, tail
    std::int64_t const misaligned = std::int64_t(reinterpret_cast<std::uintptr_t>(f) & (sizeof(Word) - 1));
    std::int64_t const to_aligned = misaligned ? std::int64_t(sizeof(Word)) - misaligned : 0;
    std::int64_t const head = to_aligned < bytes ? to_aligned : bytes;
    std::int64_t const whole = (bytes - head) / std::int64_t(sizeof(Word));
    std::int64_t const done = head + whole * std::int64_t(sizeof(Word));
    if constexpr (sizeof(Word) > 1) {
      detail::copy_words(g, f, t, head);
      detail::copy_words(g, f + done, t + done, bytes - done);
    }
    detail::copy_words(g, reinterpret_cast<Word const*>(f + head), reinterpret_cast<Word*>(t + head), whole);
  };
  if (apart == 0) words(static_cast<platform::native16 const*>(nullptr));
  else if ((apart & 7) == 0) words(static_cast<unsigned long long const*>(nullptr));
  else if ((apart & 3) == 0) words(static_cast<std::uint32_t const*>(nullptr));
  else if ((apart & 1) == 0) words(static_cast<std::uint16_t const*>(nullptr));
  else words(static_cast<unsigned char const*>(nullptr));
}

/// Copies `count` elements. As copy_bytes.
template <group Group, class T>
  requires std::is_trivially_copyable_v<T>
__device__ void copy(Group g, T const* from, T* to, std::int64_t count) {
  copy_bytes(g, from, to, count * std::int64_t(sizeof(T)));
}

/// Copies a matrix of which every row begins and ends on 16 bytes. As copy_bytes.
/// Requires: equal shapes; data, ld and cols of both multiples of 16 bytes.
template <group Group, class T, class U>
  requires std::is_same_v<std::remove_const_t<T>, U>
__device__ void copy_aligned(Group g, matrix<T> from, matrix<U> to) {
  constexpr int v = per_16_bytes<U>, flight = 4;
  auto const* const f = reinterpret_cast<platform::native16 const*>(from.data);
  auto* const t = reinterpret_cast<platform::native16*>(to.data);
  std::int64_t const from_ld = from.ld / v, to_ld = to.ld / v;
  int const per_row = from.cols / v, words = from.rows * per_row;
  int i = g.rank();
  for (; i + (flight - 1) * g.size() < words; i += flight * g.size()) {
    platform::native16 w[flight];
#pragma unroll
    for (int j = 0; j < flight; ++j) {
      int const k = i + j * g.size();
      w[j] = f[k / per_row * from_ld + k % per_row];
    }
#pragma unroll
    for (int j = 0; j < flight; ++j) {
      int const k = i + j * g.size();
      t[k / per_row * to_ld + k % per_row] = w[j];
    }
  }
  for (; i < words; i += g.size()) t[i / per_row * to_ld + i % per_row] = f[i / per_row * from_ld + i % per_row];
}

/// Copies a matrix. As copy_bytes; whole 16-byte words when both views allow it, else row after row.
/// Requires: equal shapes.
template <group Group, class T, class U>
  requires std::is_same_v<std::remove_const_t<T>, U>
__device__ void copy(Group g, matrix<T> from, matrix<U> to) {
  auto const bits = reinterpret_cast<std::uintptr_t>(from.data) | reinterpret_cast<std::uintptr_t>(to.data) |
                    std::uintptr_t((from.ld | to.ld | from.cols) * std::int64_t(sizeof(U)));
  if ((bits & 15) == 0) return copy_aligned(g, from, to);
  for (int r = 0; r < from.rows; ++r) copy(g, const_cast<U const*>(from.at(r, 0)), to.at(r, 0), from.cols);
}

}  // namespace fusewire
