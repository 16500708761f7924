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
struct word_of<1> {
  using type = std::uint8_t;
};
template <>
struct word_of<2> {
  using type = std::uint16_t;
};
template <>
struct word_of<4> {
  using type = std::uint32_t;
};
template <>
struct word_of<8> {
  using type = unsigned long long;
};
template <>
struct word_of<16> {
  using type = bytes16;
};
}  // namespace detail

/// Types that one thread can read or write in one access: 1, 2, 4, 8 or 16 bytes.
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

/// Writes memory so that every device sees it, past any cache that would hold it back.
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
/// Copies `count` words, with four independent accesses in flight per thread.
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
    std::int64_t const head = min(to_aligned, bytes);
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

/// Copies `count` elements. As copy_bytes().
template <group Group, class T>
  requires std::is_trivially_copyable_v<T>
__device__ void copy(Group g, T const* from, T* to, std::int64_t count) {
  copy_bytes(g, from, to, count * std::int64_t(sizeof(T)));
}

namespace detail {
/// Every step-th word of a matrix from word `first` on, row after row, without a division per word.
template <class Word>
class words_of_rows {
 public:
  __device__ words_of_rows(Word* data, std::int64_t ld, int per_row, int first, int step)
      : at_(data + first / per_row * ld + first % per_row), step_(step / per_row * ld + step % per_row),
        wrap_(ld - per_row), column_(first % per_row), columns_(step % per_row), per_row_(per_row) {}

  __device__ Word* next() {
    Word* const here = at_;
    at_ += step_;
    column_ += columns_;
    if (column_ >= per_row_) {
      column_ -= per_row_;
      at_ += wrap_;
    }
    return here;
  }

 private:
  Word* at_;
  std::int64_t step_, wrap_;
  int column_, columns_, per_row_;
};
}  // namespace detail

/// Copies a matrix whose rows all begin and end at multiples of 16 bytes, with up to `Flight` accesses in flight per
/// thread. As copy_bytes().
/// Requires: equal shapes; data, ld and cols of both are multiples of 16 bytes.
template <int Flight = 4, group Group, class T, class U>
  requires std::is_same_v<std::remove_const_t<T>, U>
__device__ void copy_aligned(Group g, matrix<T> from, matrix<U> to) {
  constexpr int v = per_16_bytes<U>;
  int const per_row = from.cols / v;
  std::int64_t const words = std::int64_t(from.rows) * per_row;
  if (words == 0) return;
  detail::words_of_rows f(reinterpret_cast<platform::native16 const*>(from.data), from.ld / v, per_row, g.rank(),
                          g.size());
  detail::words_of_rows t(reinterpret_cast<platform::native16*>(to.data), to.ld / v, per_row, g.rank(), g.size());
  std::int64_t i = g.rank();
  auto const in_flight = [&]<int N>(std::integral_constant<int, N>) {
    for (; i + (N - 1) * g.size() < words; i += N * g.size()) {
      platform::native16 w[N];
#pragma unroll
      for (int j = 0; j < N; ++j) w[j] = *f.next();
#pragma unroll
      for (int j = 0; j < N; ++j) *t.next() = w[j];
    }
  };
  if constexpr (Flight > 4) in_flight(std::integral_constant<int, Flight>{});
  in_flight(std::integral_constant<int, 4>{});
  in_flight(std::integral_constant<int, 2>{});  // many small copies end here
  in_flight(std::integral_constant<int, 1>{});
}

/// Copies a matrix: in whole 16-byte words where both views allow it, else row after row. As copy_bytes().
/// Requires: equal shapes.
template <group Group, class T, class U>
  requires std::is_same_v<std::remove_const_t<T>, U>
__device__ void copy(Group g, matrix<T> from, matrix<U> to) {
  if (is_row_aligned<16>(from) && is_row_aligned<16>(to) && from.cols * sizeof(U) % 16 == 0)
    return copy_aligned(g, from, to);
  for (int r = 0; r < from.rows; ++r) copy(g, const_cast<U const*>(from.at(r, 0)), to.at(r, 0), from.cols);
}

}  // namespace fusewire
