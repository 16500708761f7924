// Finds a peer's shard of A, for a pull.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/comm/all_gather/gather_map.hpp>

namespace fusewire {

/// Waits until `source` has begun the launch, and sets `shard` to its A. Returns false if the shard must not be read:
/// the launch is abandoned, and the peer's words may belong to another launch.
/// Called by: every thread of the group.
template <class T, group Group>
__device__ bool find_shard(Group g, channel_epoch const& e, world_view const& w, gather_map const& map, int source,
                           matrix<T const>& shard) {
  if (!e.pull().wait_begun(g, source)) return false;
  std::uint64_t const offset = e.pull().peer_word(source, 0), ld = e.pull().peer_word(source, 1);
  shard = {reinterpret_cast<T const*>(w.bulk[source] + offset), map.rows(source), map.cols(), std::int64_t(ld)};
  std::uint64_t const max_ld = std::uint64_t(1) << 31,
                      bytes = (std::uint64_t(shard.rows - 1) * ld + std::uint64_t(shard.cols)) * sizeof(T);
  return ld >= std::uint64_t(shard.cols) && ld <= max_ld && ld % 8 == 0 && offset % 16 == 0 && offset <= w.bulk_bytes &&
         bytes <= w.bulk_bytes - offset;
}

}  // namespace fusewire
