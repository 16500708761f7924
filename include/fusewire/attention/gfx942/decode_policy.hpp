// Flash Decode's policy on gfx942; docs/decisions/decode.md has the figures.
#pragma once
#include <fusewire/attention/decode_policy.hpp>

namespace fusewire {

/// For heads of `head_dim` elements.
__host__ __device__ constexpr decode_policy decode_policy_for(int head_dim) {
  return {.waves = 4,
          .launch_bound = head_dim > 128 ? 1 : 2,
          // From d = 96 on one block has 48 KB of K and V in flight, or more: twice what a CU can wait for. It leaves
          // half as many splits to reduce
          .blocks_per_cu = head_dim > 64 ? 1 : 2,
          .most_cus = 304,  // MI300X, MI325X
          .shared_bytes = 64 << 10,
          // Headers and credit take longer than the attention to a short shard
          .spare_blocks = 1,
          .reversed_blocks = true,
          .overlaps_prior_grid = false,
          .schedules_by_wave = true,
          .computes_slice_ahead = true,
          .in_order_loads = true,
          .values_ahead = true,
          .part = head_dim,
          .split_readers = 8,
          .rank_readers = 8,
          .partials_in_flight = 2};
}

}  // namespace fusewire
