// Exchange between the lanes of a wave.
#pragma once
#include <fusewire/platform/amd/vendor.hpp>

namespace fusewire::platform {

/// The value of lane `lane ^ mask`.
template <class T>
__device__ T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
/// The value of a lane in the other half of the 2 << Step lanes around this one, if all lanes of a half have the same.
template <int Step>
__device__ float of_other_half(float x) {
  static_assert(Step < 4);
  // By data-parallel primitives, without LDS: lane ^ 1, lane ^ 2, lane ^ 7, lane ^ 15
  constexpr int how[] = {0xb1, 0x4e, 0x141, 0x140};
  return __builtin_bit_cast(float, __builtin_amdgcn_mov_dpp(__builtin_bit_cast(int, x), how[Step], 0xf, 0xf, true));
}
/// The value of another lane of the wave.
template <class T>
__device__ T shuffle(T value, int lane) {
  return __shfl(value, lane);
}
/// The value of lane `lane`, which is the same number in all lanes of the wave.
__device__ inline int readlane(int value, int lane) { return __builtin_amdgcn_readlane(value, lane); }
/// A bit for each lane for which `x` holds.
__device__ inline std::uint64_t ballot(bool x) { return __ballot(x); }
/// How many bits of x are set.
__device__ inline int bits_set(std::uint64_t x) { return int(__popcll(x)); }
/// 1 + the first lane for which `x` holds; 0 if there is none.
__device__ inline int first_lane_of(bool x) { return __builtin_ffsll(std::int64_t(__ballot(x))); }
/// `x`, which is the same in every lane of the wave. The compiler may keep it, and what follows from it, once per wave.
__device__ inline int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
/// The same of a pointer. The compiler does not fetch it from a kernel's arguments again.
template <class T>
__device__ T* uniform(T* p) {
  auto const x = reinterpret_cast<std::uint64_t>(p);
  std::uint64_t const high = std::uint32_t(uniform(int(x >> 32))), low = std::uint32_t(uniform(int(x)));
  return reinterpret_cast<T*>(high << 32 | low);
}

}  // namespace fusewire::platform
