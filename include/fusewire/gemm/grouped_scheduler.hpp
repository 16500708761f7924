// Tiles of a grouped GEMM: rows of A belong to groups, whose sizes the device alone knows.
//
//   rows of group   --one lane each-->   M tiles of group   --sums over the lanes-->   first M tile of group
//   tile i          --ballot: the first group that ends behind it--> group, tile in the group --> m, n
//
// Every wave does this by itself: it takes no shared memory, which mainloops fill, and no barrier, and all waves get
// the same. A wave goes through the groups window by window, one group for each lane.
#pragma once
#include <cstdint>

#include <fusewire/core/divisor.hpp>
#include <fusewire/core/group.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/gemm/tile_scheduler.hpp>

namespace fusewire {

/// Which rows of a matrix belong to which group, as the device knows it. Groups may be empty, and rows may belong to
/// none.
struct row_groups {
  int const *begins, *ends;  // [groups]: the first row of a group; the first one behind it
  int groups, max_rows;      // groups; rows of the matrix, beyond which no group goes

  /// The rows of group g. Memory that holds anything else than rows gives rows, too.
  __device__ index_range rows(int g) const {
    int const begin = max(0, min(begins[g], max_rows));
    return {begin, max(begin, min(ends[g], max_rows))};
  }
};

/// The most M tiles that such groups can have if no row is in two of them: each group begins a tile of its own.
/// Requires: groups, max_rows, tile_m >= 1.
__host__ __device__ constexpr int max_grouped_m_tiles(int groups, int max_rows, int tile_m) {
  return min(groups, max_rows) + max_rows / tile_m;
}

/// Tile number j of a group of m_tiles x n_tiles tiles, in the order of raster_order: `group_m` M tiles together.
__host__ __device__ constexpr tile_coord tile_in_group(int group, int j, int m_tiles, divisor const& n_tiles,
                                                       int group_m) {
  int const above = j / n_tiles / group_m * group_m,  // M tiles before those that are together
      left = m_tiles - above, together = min(left, group_m), rest = j - above * n_tiles.value(), n = rest / together;
  return {above + rest - n * together, n, group};
}

/// A tile scheduler.
class grouped_scheduler {
 public:
  static constexpr bool has_groups = true;  // see tile_scheduler

  /// Tiles of tile_m rows. group_m: M tiles that are in flight together. Reads the groups.
  /// Called by: every thread of a wave, when what the groups point to is there. Requires: the most M tiles times
  /// n_tiles are up to 2^29.
  __device__ grouped_scheduler(row_groups const& g, int tile_m, divisor const& n_tiles, int group_m)
      : g_(g), tile_m_(tile_m), group_m_(group_m), most_(max_grouped_m_tiles(g.groups, g.max_rows, tile_m)),
        n_tiles_(n_tiles) {
    int all = 0;
    for (int first = 0; first < g.groups; first += wave::width)
      all = min(all + platform::readlane(sums(first), wave::width - 1), most_);
    count_ = platform::uniform(all * n_tiles.value());
  }

  __device__ int count() const { return count_; }
  /// The i-th tile. Called by: every thread of a wave. Requires: 0 <= i < count(). If the groups have changed since the
  /// scheduler was made, as those of a launch that was abandoned may, it is any tile.
  __device__ tile_coord operator[](int i) const {
    int const m = platform::uniform(i / n_tiles_);  // among the M tiles of all groups
    for (int first = 0, before = 0; first < g_.groups; first += wave::width) {
      int const end = before + sums(first);  // M tiles of all groups up to this lane's
      if (int const found = platform::first_lane_of(m < end); found > 0) {
        int const lane = found - 1, behind = platform::readlane(end, lane),
                  begin = lane == 0 ? before : platform::readlane(end, lane - 1);
        tile_coord const t =
            tile_in_group(first + lane, i - begin * n_tiles_.value(), behind - begin, n_tiles_, group_m_);
        return {platform::uniform(t.m), platform::uniform(t.n), platform::uniform(t.group)};
      }
      before = platform::readlane(end, wave::width - 1);
    }
    return {0, 0, 0};
  }

 private:
  /// M tiles of the window's groups up to this lane's, inclusive, but not more than there can be: of groups that have
  /// rows in common, which is a mistake, some tiles are left out. first: the window's first group.
  __device__ int sums(int first) const {
    int const lane = platform::no_hoist_lane(wave{}.rank()), g = first + lane;  // no registers while tiles multiply
    int sum = g < g_.groups ? ceil_div(g_.rows(g).size(), tile_m_) : 0;
#pragma unroll
    for (int step = 1; step < wave::width; step *= 2) {
      int const other = platform::shuffle(sum, lane < step ? lane : lane - step);
      sum = min(sum + (lane < step ? 0 : other), most_);
    }
    return sum;
  }

  row_groups const& g_;
  int tile_m_, group_m_, most_, count_;
  divisor const& n_tiles_;
};
static_assert(tile_scheduler<grouped_scheduler>);

}  // namespace fusewire
