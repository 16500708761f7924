// What arrays, channels, inboxes and operators take of a heap, as values that add up.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fusewire/core/types.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire {

namespace detail {

inline constexpr std::size_t heap_unit = 256;  // bytes: a heap's arrays begin at multiples of it, and fill it

/// Unused bytes behind an array, so that the simulator sees an access past its end. A large one may fill a segment to
/// the last byte.
constexpr std::size_t gap_behind(std::size_t bytes) { return bytes < (std::size_t(1) << 20); }

/// The sum, or the largest number where that is larger.
constexpr std::size_t added(std::size_t a, std::size_t b) { return a > SIZE_MAX - b ? SIZE_MAX : a + b; }

/// The most that an array takes of a segment, whatever lies before it.
constexpr std::size_t bytes_on_heap(std::size_t bytes, std::size_t alignment) {
  std::size_t const room = added(bytes, gap_behind(bytes) + heap_unit - 1) & ~(heap_unit - 1);
  return added(room, alignment > heap_unit ? alignment - heap_unit : 0);
}

}  // namespace detail

/// Bytes of a heap's two segments, and what a channel must have. Values add up; a heap and a channel are made from the
/// sum:
///
///     requirements const r = ag_gemm<bf16>::requirements(ranks, a) + gemm_rs<bf16>::requirements(ranks, b) +
///                            2 * requirements::of<bf16>(count);
///     heap h(w, r);
///     channel ch(h, r);
///
/// All parts of a sum share one channel. Its operators are launched one after the other, so it has room for the largest
/// of them. Memory of their own adds up. A heap made from the sum holds all of it together, in any order of allocation,
/// if nothing else is allocated.
class requirements {
 public:
  /// Nothing.
  requirements() = default;

  /// An array, as heap::allocate() takes the arguments. Fails: out_of_space when no memory has so many bytes.
  template <class T>
  static requirements of(std::size_t count, std::size_t alignment = alignof(T) < 256 ? 256 : alignof(T),
                         std::source_location where = std::source_location::current()) {
    require<out_of_space>(count <= SIZE_MAX / 4 / sizeof(T), where, "requirements::of: ", count, " elements of ",
                          sizeof(T), " bytes; at most ", SIZE_MAX / 4 / sizeof(T), " have addresses");
    requirements r;
    (lives_in_signal_segment<T> ? r.signal_ : r.bulk_) = detail::bytes_on_heap(count * sizeof(T), alignment);
    return r;
  }
  /// What channel::requirements() and operators return: a channel that has this, and takes `memory`.
  static requirements of_channel(std::size_t max_bytes, int flags_per_source, requirements const& memory) {
    requirements r;
    r.max_bytes_ = max_bytes;
    r.flags_per_source_ = flags_per_source;
    r.channel_bulk_ = memory.bulk();
    r.channel_signal_ = memory.signal();
    return r;
  }

  /// The same with its own channel, which it shares with nothing that is added. That channel is made from the
  /// value before.
  requirements separate() const {
    requirements r;
    r.bulk_ = bulk();
    r.signal_ = signal();
    return r;
  }

  /// Bytes of the bulk segment, the channel's too.
  std::size_t bulk() const { return detail::added(bulk_, channel_bulk_); }
  /// Bytes of the signal segment, the channel's too.
  std::size_t signal() const { return detail::added(signal_, channel_signal_); }
  /// max_bytes of the channel; 0 if there is none.
  std::size_t max_bytes() const { return max_bytes_; }
  /// flags_per_source of the channel; 0 if there is none.
  int flags_per_source() const { return flags_per_source_; }

  /// Adds memory; of two channels it takes the larger, number by number.
  requirements& operator+=(requirements const& r) {
    bulk_ = detail::added(bulk_, r.bulk_);
    signal_ = detail::added(signal_, r.signal_);
    channel_bulk_ = std::max(channel_bulk_, r.channel_bulk_);
    channel_signal_ = std::max(channel_signal_, r.channel_signal_);
    max_bytes_ = std::max(max_bytes_, r.max_bytes_);
    flags_per_source_ = std::max(flags_per_source_, r.flags_per_source_);
    return *this;
  }
  /// The same n times, with one channel: arrays of one size, layers of one shape.
  requirements& operator*=(std::size_t n) {
    for (std::size_t* bytes : {&bulk_, &signal_}) *bytes = n && *bytes > SIZE_MAX / n ? SIZE_MAX : n * *bytes;
    return n ? *this : *this = requirements();
  }

 private:
  std::size_t bulk_ = 0, signal_ = 0;                  // of arrays
  std::size_t channel_bulk_ = 0, channel_signal_ = 0;  // of the channel
  std::size_t max_bytes_ = 0;
  int flags_per_source_ = 0;
};

/// See requirements::operator+=.
inline requirements operator+(requirements a, requirements const& b) { return a += b; }
/// See requirements::operator*=.
inline requirements operator*(std::size_t n, requirements r) { return r *= n; }

}  // namespace fusewire
