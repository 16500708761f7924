// Flash Decode's policy on sm_80 and later; docs/decisions/decode.md has the figures.
#pragma once
#include <fusewire/attention/decode_policy.hpp>

namespace fusewire {

/// For heads of `head_dim` elements.
__host__ __device__ constexpr decode_policy decode_policy_for(int head_dim) {
  bool const large = head_dim > 64;
  return {// One large block has fewer partials than two small ones; with d = 64 two hide more of each other's waits
          .waves = large ? 8 : 4,
          .launch_bound = large ? 1 : 2,
          .blocks_per_cu = large ? 8 : 16,  // all that fit: an SM has 64 warps
          .most_cus = 132,                  // H100, H200
          .shared_bytes = 227 << 10,
          .spare_blocks = 0,
          .reversed_blocks = false,
          .overlaps_prior_grid = true,
          .schedules_by_wave = false,
          .computes_slice_ahead = false,
          .in_order_loads = false,
          .values_ahead = head_dim <= 96,  // with d = 128 there are no registers for it
          .part = head_dim <= 128 ? head_dim : 64,
          .split_readers = 4,
          .rank_readers = 1,
          .partials_in_flight = 4};
}

}  // namespace fusewire
