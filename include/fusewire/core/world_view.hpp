// What a kernel knows of its world: its rank and where every rank's memory is mapped.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// The largest size of a world.
inline constexpr int max_ranks = 64;

struct flag;
struct barrier_state;
struct grid_barrier_state;
template <scope>
struct ll_word;

/// Memory that is polled inside a kernel lives in the signal segment, everything else in the bulk segment. The type
/// decides, so a flag cannot be put where polling does not work.
template <class T>
inline constexpr bool lives_in_signal_segment = false;
/// Flags are polled.
template <>
inline constexpr bool lives_in_signal_segment<flag> = true;
/// Barriers are polled.
template <>
inline constexpr bool lives_in_signal_segment<barrier_state> = true;
/// Barriers over grids are polled.
template <>
inline constexpr bool lives_in_signal_segment<grid_barrier_state> = true;
/// LL words that ranks store are polled.
template <>
inline constexpr bool lives_in_signal_segment<ll_word<scope::system>> = true;

/// An array of T at the same offset of every rank's heap. world_view::on() turns it into a pointer.
template <class T>
struct sym {
  std::uint64_t offset = 0;  // bytes from the segment's start
  std::uint64_t count = 0;   // elements

  /// The elements from n on. Requires: n <= count.
  __host__ __device__ sym operator+(std::uint64_t n) const { return {offset + n * sizeof(T), count - n}; }
};

/// An array with a number of elements of its own on every rank; see heap::allocate_ragged(). count is the largest of
/// these numbers. Passed to kernels by value.
template <class T>
struct ragged : sym<T> {
  std::uint64_t counts[max_ranks] = {};  // elements of each rank
};

/// A world as kernels see it. Passed by value. One-sided operations are loads and stores through the pointers that on()
/// returns.
class world_view {
  int rank_ = 0, size_ = 1;

 public:
  std::uint64_t bulk_bytes = 0;       // of a bulk segment; the same on every rank
  std::byte* bulk[max_ranks] = {};    // each rank's bulk segment, as this rank's device maps it
  std::byte* signal[max_ranks] = {};  // each rank's signal segment, likewise

  world_view() = default;
  /// Segments are filled in by the heap. Requires: 0 <= rank < size <= max_ranks.
  world_view(int rank, int size) : rank_(rank), size_(size) {}

  /// This rank's number, from 0 on.
  __host__ __device__ int rank() const { return rank_; }
  /// Ranks of the world.
  __host__ __device__ int size() const { return size_; }

  /// The array on `peer`. Requires: 0 <= peer < size().
  template <class T>
  __host__ __device__ T* on(int peer, sym<T> x) const {
    return reinterpret_cast<T*>((lives_in_signal_segment<T> ? signal[peer] : bulk[peer]) + x.offset);
  }
  /// The array on this rank.
  template <class T>
  __host__ __device__ T* here(sym<T> x) const {
    return on(rank_, x);
  }
  /// The rank `i` places after this one, where rank 0 follows the last: next(0) and next(size()) are this rank. Needs
  /// no division. Requires: 0 <= i <= size().
  __host__ __device__ int next(int i) const {
    int const r = rank_ + i;
    return r < size_ ? r : r - size_;
  }
};

static_assert(std::is_trivially_copyable_v<world_view>);

}  // namespace fusewire
