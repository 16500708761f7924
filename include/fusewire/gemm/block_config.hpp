// The configurations of a block's GEMM, which host and kernels share.
#pragma once
#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// Everything tunable about one block's GEMM: one value, one template argument.
struct gemm_config {
  int block_m = 128, block_n = 128, block_k = 64;  // elements
  int waves_m = 2, waves_n = 4;                    // the block's waves, as a grid over its tile
  int stages = 2;                                  // LDS buffers

  /// Threads of a block.
  __host__ __device__ constexpr int threads() const { return waves_m * waves_n * platform::wave_size; }
  /// LDS of all stages, in bytes.
  __host__ __device__ constexpr int shared_bytes() const { return stages * (block_m + block_n) * block_k * 2; }
  constexpr bool operator==(gemm_config const&) const = default;
};

/// For small M. The configurations for which kernels are instantiated are types, because nvcc accepts no value of
/// class type as a kernel's template argument.
struct small_tile {
  /// The configuration of a block's GEMM.
  static constexpr gemm_config config{
      .block_m = 32, .block_n = 64, .block_k = 64, .waves_m = 1, .waves_n = 4, .stages = 2};
};
/// For many rows.
struct large_tile {
  /// The configuration of a block's GEMM.
  static constexpr gemm_config config{
      .block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 4, .stages = 2};
};

}  // namespace fusewire
