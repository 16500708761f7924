// What hands out the tiles of a launch, on the device, so that their number may be known there only.
#pragma once
#include <concepts>

#include <fusewire/gemm/raster_order.hpp>

namespace fusewire {

/// A tile scheduler: tiles 0 to count() - 1, each a place in the grid, and each place once. All blocks of a launch have
/// the same. Mainloops ask in every wave that loads or stores. has_groups: tiles of group g multiply the B of that
/// group. raster_order is one whose tiles the host counts, grouped_scheduler one whose tiles the device counts.
/// Called by: every thread of a wave, with the same i.
template <class S>
concept tile_scheduler = requires(S const s, int i) {
  { s.count() } -> std::same_as<int>;
  { s[i] } -> std::same_as<tile_coord>;
  { S::has_groups } -> std::convertible_to<bool>;
};

static_assert(tile_scheduler<raster_order>);

}  // namespace fusewire
