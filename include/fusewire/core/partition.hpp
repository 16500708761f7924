// How [0, extent) is divided into contiguous slices, in order and without gaps: evenly, or all but the last ones equal.
#pragma once
#include <fusewire/core/math.hpp>

namespace fusewire {

/// The numbers from begin to end - 1.
struct index_range {
  int begin, end;  // the first number; the first one behind the range

  __host__ __device__ constexpr int size() const { return end - begin; }  // how many they are
};

/// Slice i if every slice has `size` numbers; the last one may have fewer, and later ones are empty.
/// Requires: extent, i >= 0; size > 0; i * size < 2^31.
__host__ __device__ constexpr index_range fixed_slice(int extent, int size, int i) {
  // (i + 1) * size may exceed an int
  unsigned const all = unsigned(extent), begin = unsigned(i) * unsigned(size);
  return {int(min(begin, all)), int(min(begin + unsigned(size), all))};
}

/// Slice i of `slices` slices of equal size: the smallest multiple of `granule` that suffices. The last slices may be
/// smaller, or empty. Requires: extent >= 0; 0 <= i < slices; granule > 0; extent + slices * granule < 2^31.
__host__ __device__ constexpr index_range ceil_slice(int extent, int slices, int i, int granule = 1) {
  return fixed_slice(extent, ceil_div(ceil_div(extent, granule), slices) * granule, i);
}

/// Slice i of `slices` slices whose sizes differ by at most one granule, the first ones being larger. Slices begin at
/// multiples of `granule`; the last granule may be incomplete. Divisor: int or divisor.
/// Requires: extent >= 0; 0 <= i < slices; granule > 0; extent + granule < 2^31.
template <class Divisor>
__host__ __device__ constexpr index_range even_slice(int extent, Divisor const& slices, int i, int granule = 1) {
  int const granules = ceil_div(extent, granule), each = granules / slices, more = granules % slices;
  int const begin = i * each + min(i, more), end = begin + each + (i < more);
  if (granule == 1) return {begin, end};
  return {min(begin * granule, extent), min(end * granule, extent)};
}

}  // namespace fusewire
