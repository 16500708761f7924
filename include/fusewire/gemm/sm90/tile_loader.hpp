// The loading warps of the Hopper mainloop. Roles, drain and reuse: gemm_sm90.hpp.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/gemm/sm90/pipeline.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// Loads stages of A and B by TMA. BlockN: columns of a tile; BBytes: of a stage of B.
template <class Storage, int BlockN, layout BOrder, int BBytes>
struct sm90_loader {
  static constexpr int swizzle_atom = 64 * sm90_step * 2;  // bytes of 64 n of a row-major B's stage

  /// Warp 0: loads A of the tiles of `share`, when the source has it.
  template <class Tiles, class Source>
  __device__ static void load_a(Storage const& s, box_maps const* a, Tiles const& tiles, strided_range share,
                                Source& source) {
    stage_cursor at, to, used{s.stages.of_b - s.stages.of_a, 1};  // used: the step before with this step's A stage
    for (int const i : share) {
      bool const last = source.begin(tiles[i]) <= s.stages.last_rows;
      int const bytes = (last ? s.stages.last_rows : s.stages.rows) * 128;
      auto place = source.first();
      for (int left = source.steps(); left > 0;) {
        k_segment const there = source.wait(place);
        CUtensorMap const& map = last ? a[there.buffer].last : a[there.buffer].whole;
        for (int i = 0, column = there.column; i < there.count;
             ++i, column += sm90_step, at.next(s.stages.of_b), to.next(s.stages.of_a), used.next(s.stages.of_b)) {
          s.empty(used.stage).wait(used.parity);
          if (elect_one()) {
            s.full_a(at.stage).expect(bytes);
            load_box(s.a(to.stage), map, column, there.row, s.full_a(at.stage));
          }
        }
        source.advance(place, there.count);
        left -= there.count;
      }
    }
  }

  /// Warp 1: loads B of the tiles of `share`, which has `columns` columns.
  template <class Tiles, class Source>
  __device__ static void load_b(Storage const& s, box_maps const& b, int columns, Tiles const& tiles,
                                strided_range share, Source const& source) {
    stage_cursor at, landed;
    int ahead = s.stages.b_in_flight;  // loads that may start before an earlier one has landed
    for (int const i : share) {
      tile_coord const t = tiles[i];
      int const n = t.n * BlockN, boxes = columns - n < BlockN ? ceil_div(columns - n, 64) : BBytes / swizzle_atom;
      CUtensorMap const& map = n + BlockN > columns ? b.last : b.whole;
      auto const load = [&](shared_address_t to, int x, int y, mbarrier full) {
        if constexpr (Tiles::has_groups) load_box(to, map, x, y, t.group, full);
        else load_box(to, map, x, y, full);
      };
      int const bytes = BOrder == layout::row_major ? boxes * swizzle_atom : box_rows(columns - n, BlockN) * 128;
      auto place = source.first();
      for (int left = source.steps(); left > 0;) {
        int const count = source.left(place);
        for (int nth = 0, k = source.k(place); nth < count; ++nth, k += sm90_step, at.next(s.stages.of_b)) {
          mbarrier const full = s.full_b(at.stage);
          s.empty(at.stage).wait(at.parity ^ 1);
          if (ahead > 0) {
            --ahead;
          } else {
            s.full_b(landed.stage).wait(landed.parity);
            landed.next(s.stages.of_b);
          }
          if (elect_one()) {
            full.expect(bytes);
            if constexpr (BOrder == layout::column_major) {
              load(s.b(at.stage), k, n, full);
            } else {
#pragma unroll
              for (int j = 0; j < BBytes / swizzle_atom; ++j)
                if (j < boxes) load(s.b(at.stage) + j * swizzle_atom, n + j * 64, k, full);
            }
          }
        }
        source.advance(place, count);
        left -= count;
      }
    }
  }
};

}  // namespace fusewire
