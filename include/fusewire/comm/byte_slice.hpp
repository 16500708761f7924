// Slices of bytes that collectives copy, whatever the element type and the alignment.
#pragma once
#include <fusewire/comm/tile_vectors.hpp>

namespace fusewire {

/// Bytes without a gap.
template <class Byte>
struct byte_slice {
  Byte* data;          // the first byte
  std::int64_t bytes;  // 0 or more
};

namespace detail {

/// Copies `bytes` bytes, at most 16, of which both addresses are multiples of the size of Word.
template <class Word>
__device__ __forceinline__ void copy_some(std::byte const* from, std::byte* to, int bytes) {
#pragma unroll
  for (int i = 0; i < int(16 / sizeof(Word)); ++i)
    if ((i + 1) * int(sizeof(Word)) <= bytes) reinterpret_cast<Word*>(to)[i] = reinterpret_cast<Word const*>(from)[i];
}
/// Calls copy(Word) with the widest word of which p is a multiple and `bytes`, if it is less than 16, too.
template <class Copy>
__device__ __forceinline__ void with_word(std::byte const* p, std::int64_t bytes, Copy const& copy) {
  auto const at = std::uint64_t(reinterpret_cast<std::uintptr_t>(p)) | (bytes < 16 ? std::uint64_t(bytes) : 0);
  if (at % 16 == 0) copy(bytes16{});
  else if (at % 4 == 0) copy(std::uint32_t{});
  else if (at % 2 == 0) copy(std::uint16_t{});
  else copy(std::uint8_t{});
}

/// 16 bytes of a slice, from byte `at` on; those behind its end are arbitrary. Requires: at < bytes.
__device__ __forceinline__ vec16<std::byte> load_of_slice(byte_slice<std::byte const> const& x, std::int64_t at) {
  vec16<std::byte> v{};
  std::int64_t const left = x.bytes - at;
  with_word(x.data + at, left,
            [&](auto word) { copy_some<decltype(word)>(x.data + at, v.element, left < 16 ? int(left) : 16); });
  return v;
}
/// Stores them to the bytes of a slice from `at` on. Requires: at < bytes.
__device__ __forceinline__ void store_to_slice(byte_slice<std::byte> const& x, std::int64_t at,
                                               vec16<std::byte> const& v) {
  std::int64_t const left = x.bytes - at;
  with_word(x.data + at, left,
            [&](auto word) { copy_some<decltype(word)>(v.element, x.data + at, left < 16 ? int(left) : 16); });
}

}  // namespace detail

}  // namespace fusewire
