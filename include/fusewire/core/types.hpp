// Element types: 16-bit floats as storage. Arithmetic happens in fp32.
#pragma once
#include <cstdint>
#include <type_traits>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// bfloat16. Layout-compatible with hip_bfloat16, __hip_bfloat16 and __nv_bfloat16.
struct alignas(2) bf16 {
  std::uint16_t bits;  // bfloat16's encoding

  bf16() = default;
  /// Rounds to nearest; ties go to even.
  __host__ __device__ explicit bf16(float x) : bits(platform::bf16_from(x)) {}
  /// The same value as a float.
  __host__ __device__ explicit operator float() const { return platform::float_from_bf16(bits); }
};

/// IEEE half. Layout-compatible with _Float16 and __half.
struct alignas(2) f16 {
  std::uint16_t bits;  // IEEE binary16's encoding

  f16() = default;
  /// Rounds to nearest; ties go to even.
  __host__ __device__ explicit f16(float x) : bits(platform::f16_from(x)) {}
  /// The same value as a float.
  __host__ __device__ explicit operator float() const { return platform::float_from_f16(bits); }
};

/// Whether operators take T as element type.
template <class T>
inline constexpr bool is_16_bit_float = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

/// 16 bytes: the widest access of one thread.
struct alignas(16) bytes16 {
  std::uint32_t word[4];  // little-endian
};

/// Elements of T in one widest access.
template <class T>
inline constexpr int per_16_bytes = int(16 / sizeof(T));

}  // namespace fusewire
