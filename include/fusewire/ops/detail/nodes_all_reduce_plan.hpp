// How an all-reduce over nodes cuts an array: a segment for each place of a node, in chunks.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fusewire/core/math.hpp>

namespace fusewire {

/// The plan of a call, a pure function of its shape; the kernel gets it. Vectors are of 16 bytes of the array.
struct nodes_all_reduce_plan {
  static constexpr int threads = 256;         // of a block
  static constexpr int granule = 16;          // vectors of a chunk are a multiple: whole lines, also of fp32 sums
  static constexpr int min_chunk = 16 << 10;  // bytes of a chunk, if the segment has as many
  static constexpr int max_chunks = 64;       // of a segment; each has two flags
  static constexpr std::int64_t max_vectors = std::int64_t(1) << 30;  // of an array

  int chunk = 0;   // vectors
  int chunks = 0;  // of a segment

  /// Of an array of `bytes` bytes, and nodes of `near` ranks. Without bytes: no chunks.
  static nodes_all_reduce_plan of(std::int64_t bytes, int near) {
    if (bytes == 0) return {};
    int const segment = int(ceil_div((bytes + 15) / 16, std::int64_t(near)));
    int const least = std::max(ceil_div(segment, max_chunks), std::min(segment, min_chunk / 16));
    int const chunk = ceil_div(least, granule) * granule;
    return {chunk, ceil_div(segment, chunk)};
  }

  /// Vectors of a segment, of which the last ones may lie behind the array.
  __host__ __device__ constexpr int segment() const { return chunk * chunks; }
  /// Bytes of a channel's slot, with sums in fp32 for elements of `element` bytes.
  __host__ __device__ constexpr std::int64_t slot_bytes(int near, int nodes, int element) const {
    return first_rail_byte(near) + nodes * rail_bytes(element);
  }
  /// Where the sums of other nodes begin.
  __host__ __device__ constexpr std::int64_t first_rail_byte(int near) const {
    return 2 * std::int64_t(near) * segment() * 16;
  }
  /// Bytes that a node's sums take.
  __host__ __device__ constexpr std::int64_t rail_bytes(int element) const {
    return std::int64_t(segment()) * (16 / element) * std::int64_t(sizeof(float));
  }
};

}  // namespace fusewire
