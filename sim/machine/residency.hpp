#pragma once
#include <array>

#include "machine/config.hpp"

namespace fusewire::sim {

/// What one workgroup occupies of a CU.
struct footprint {
  u32 waves = 1, vgprs = 8, sgprs = 16;  // per wave, rounded up as the hardware allocates
  u32 lds = 0;
};
footprint footprint_of(kernel const&, u32 threads, u32 lds_bytes);

/// One CU: 4 SIMDs of 8 waves, 512 VGPRs per lane and 800 SGPRs each; 64 KB LDS; 16 workgroups of more than one wave.
class compute_unit {
 public:
  using simds = std::array<u8, 16>;  // of each wave of a workgroup
  bool place(footprint const&, simds& out);
  void release(footprint const&, simds const&);

 private:
  static constexpr u32 max_waves = 8, max_vgprs = 512, max_sgprs = 800, max_groups = 16;
  struct simd {
    u32 waves = 0, vgprs = 0, sgprs = 0;
  };
  std::array<simd, 4> simds_{};
  u32 lds_ = 0, groups_ = 0;
};

inline constexpr u32 lds_per_cu = 65536, waves_per_cu = 32;

/// How many workgroups of this size one CU holds at once; 0 when not even one fits.
u32 groups_per_cu(kernel const&, u32 threads, u32 lds_bytes);

}  // namespace fusewire::sim
