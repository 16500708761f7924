// Memory behind a buffer descriptor. The hardware checks every address against a length; loads beyond it return zeros
// and cost nothing.
#pragma once
#include <fusewire/core/types.hpp>

namespace fusewire {

/// An offset beyond the length of every buffer.
inline constexpr int oob_offset = 0x7fff0000;

/// Bytes [0, bytes) from a uniform address on. An offset is the sum of a lane's part and a uniform part, in bytes, each
/// below 2^31. The length bounds their sum.
class memory_buffer {
 public:
  /// Requires: `data` and `bytes` the same in all lanes.
  __device__ memory_buffer(void const* data, std::uint32_t bytes)
      : words_(__builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(data), 0, int(bytes), raw_32_bit)) {}

  /// Loads 16 bytes; those outside are zero.
  __device__ bytes16 load(int lane, int uniform) const {
    return __builtin_bit_cast(bytes16, __builtin_amdgcn_raw_buffer_load_b128(words_, lane, uniform, 0));
  }
  /// Loads 16 bytes of data that is read once: it does not push other lines out of the caches.
  __device__ bytes16 load_streaming(int lane, int uniform) const {
    return __builtin_bit_cast(bytes16, __builtin_amdgcn_raw_buffer_load_b128(words_, lane, uniform, nontemporal));
  }
  /// From memory: as it is for all of the device, whatever the caches hold.
  __device__ bytes16 load_device(int lane, int uniform) const {
    return __builtin_bit_cast(bytes16, __builtin_amdgcn_raw_buffer_load_b128(words_, lane, uniform, device_scope));
  }
  /// 8 bytes; zeros where they lie outside.
  __device__ unsigned long long load_8(int lane, int uniform) const {
    return __builtin_bit_cast(unsigned long long, __builtin_amdgcn_raw_buffer_load_b64(words_, lane, uniform, 0));
  }
  /// Loads 8 bytes of data that is read once.
  __device__ unsigned long long load_8_streaming(int lane, int uniform) const {
    return __builtin_bit_cast(unsigned long long,
                              __builtin_amdgcn_raw_buffer_load_b64(words_, lane, uniform, nontemporal));
  }
  /// Stores 16 bytes to memory immediately: no L2 keeps them.
  __device__ void store_device(bytes16 const& value, int lane, int uniform = 0) const {
    __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(four_words, value), words_, lane, uniform, device_scope);
  }
  /// The same where the memory may be another device's.
  __device__ void store_system(bytes16 const& value, int lane, int uniform = 0) const {
    __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(four_words, value), words_, lane, uniform, system_scope);
  }

 private:
  using four_words = unsigned __attribute__((ext_vector_type(4)));
  /// The last word of a gfx942 descriptor; the cache bits of an instruction
  static constexpr int raw_32_bit = 0x00020000, nontemporal = 2, device_scope = 16, system_scope = 17;

  __amdgpu_buffer_rsrc_t words_;
};

}  // namespace fusewire
