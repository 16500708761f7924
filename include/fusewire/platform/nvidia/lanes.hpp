// Exchange between the lanes of a wave.
#pragma once
#include <fusewire/platform/nvidia/vendor.hpp>

namespace fusewire::platform {

template <class T>
__device__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
/// The value of a lane in the other half of the 2 << Step lanes around this one, if all lanes of a half have the same.
template <int Step>
__device__ float of_other_half(float x) {
  return shuffle_xor(x, 1 << Step);
}
/// The value of another lane of the wave.
template <class T>
__device__ T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ inline int readlane(int value, int lane) { return shuffle(value, lane); }
/// A bit for each lane for which `x` holds.
__device__ inline std::uint64_t ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
/// How many bits of x are set.
__device__ inline int bits_set(std::uint64_t x) { return int(__popcll(x)); }
/// 1 + the first lane for which `x` holds; 0 if there is none.
__device__ inline int first_lane_of(bool x) { return __ffs(int(__ballot_sync(0xffffffffu, x))); }
/// `x`, which is the same in every lane of the wave. The compiler may keep it, and what follows from it, once per wave.
__device__ inline int uniform(int x) { return x; }
/// The same of a pointer.
template <class T>
__device__ T* uniform(T* p) {
  return p;
}

}  // namespace fusewire::platform
