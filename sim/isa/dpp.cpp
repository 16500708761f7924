#include <vector>

#include "program.hpp"

namespace fusewire::sim {
namespace {

/// The lane that `lane` reads under DPP_CTRL, or -1. CDNA3 ISA, "Data parallel processing (DPP)".
int dpp_source(u32 control, int lane) {
  int const row = lane & ~15, in_row = lane & 15, n = int(control & 15);
  if (control < 0x100) return (lane & ~3) + int(control >> 2 * (lane & 3) & 3);
  switch (control & ~15u) {
    case 0x100: return in_row + n < 16 ? lane + n : -1;  // row_shl
    case 0x110: return in_row >= n ? lane - n : -1;      // row_shr
    case 0x120: return row + ((in_row - n) & 15);        // row_ror
    case 0x150: return row + n;                          // row_newbcast
  }
  switch (control) {
    case 0x130: return lane < 63 ? lane + 1 : -1;              // wave_shl
    case 0x134: return (lane + 1) & 63;                        // wave_rol
    case 0x138: return lane - 1;                               // wave_shr
    case 0x13c: return (lane - 1) & 63;                        // wave_ror
    case 0x140: return row + 15 - in_row;                      // row_mirror
    case 0x141: return row + (in_row & 8) + 7 - (in_row & 7);  // row_half_mirror
    case 0x142: return row - 1;                                // row_bcast:15
    case 0x143: return lane >= 32 ? 31 : -1;                   // row_bcast:31
  }
  return -1;
}

}  // namespace

lane_map const* dpp_lanes(u32 control) {
  static std::vector<lane_map> const all = [] {
    std::vector<lane_map> maps(512);
    for (u32 c = 0; c < maps.size(); ++c)
      for (int lane = 0; lane < lanes; ++lane) maps[c][lane] = static_cast<signed char>(dpp_source(c, lane));
    return maps;
  }();
  return &all[control & 511];
}

}  // namespace fusewire::sim
