// Layout of a partial result (o, m, l) of one head item in memory, in words of 4 bytes.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Words of a record: o by component, then (m, l) [heads].
struct decode_record {
  int heads, d;  // query heads that share a KV head; elements of a head

  /// Words that hold the result.
  __host__ __device__ constexpr int used() const { return heads * (d + 2); }
  /// Words of a record, in whole lines of 16 words: 128 bytes, as LL words have 8.
  __host__ __device__ constexpr int words() const { return (used() + 15) / 16 * 16; }
  /// vec4s of all heads.
  __host__ __device__ constexpr int vec4s() const { return heads * d / 4; }
  /// Word j of vec4 i: those of o, then (m, l) of the vec4's head.
  __host__ __device__ constexpr int word(int i, int j) const {
    return j < 4 ? j * vec4s() + i : 4 * vec4s() + i / (d / 4) * 2 + j - 4;
  }
  /// Whether vec4 i is the first of its head, with which (m, l) are stored.
  __host__ __device__ constexpr bool begins_head(int i) const { return i % (d / 4) == 0; }
};

}  // namespace fusewire
