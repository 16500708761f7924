#include "machine/residency.hpp"

#include <algorithm>

namespace fusewire::sim {
namespace {

u32 round_up(u32 x, u32 to) { return (x + to - 1) / to * to; }

}  // namespace

footprint footprint_of(kernel const& k, u32 threads, u32 lds_bytes) {
  footprint f;
  f.waves = (threads + lanes - 1) / lanes;
  f.vgprs = std::max(8u, round_up(round_up(static_cast<u32>(k.vgprs), k.agprs ? 4 : 1) + static_cast<u32>(k.agprs), 8));
  f.sgprs = std::max(16u, round_up(static_cast<u32>(k.sgprs), 16));
  f.lds = round_up(lds_bytes, 512);
  return f;
}

bool compute_unit::place(footprint const& f, simds& out) {
  if (lds_ + f.lds > lds_per_cu || f.waves > out.size() || (f.waves > 1 && groups_ == max_groups)) return false;
  std::array<simd, 4> after = simds_;
  for (u32 w = 0; w < f.waves; ++w) {
    auto const least = std::ranges::min_element(after, {}, &simd::waves);
    if (least->waves == max_waves || least->vgprs + f.vgprs > max_vgprs || least->sgprs + f.sgprs > max_sgprs)
      return false;
    ++least->waves, least->vgprs += f.vgprs, least->sgprs += f.sgprs;
    out[w] = static_cast<u8>(least - after.begin());
  }
  simds_ = after;
  lds_ += f.lds;
  groups_ += f.waves > 1;
  return true;
}

void compute_unit::release(footprint const& f, simds const& where) {
  for (u32 w = 0; w < f.waves; ++w) {
    simd& s = simds_[where[w]];
    --s.waves, s.vgprs -= f.vgprs, s.sgprs -= f.sgprs;
  }
  lds_ -= f.lds;
  groups_ -= f.waves > 1;
}

u32 groups_per_cu(kernel const& k, u32 threads, u32 lds_bytes) {
  footprint const f = footprint_of(k, threads, lds_bytes);
  compute_unit cu;
  compute_unit::simds where;
  u32 n = 0;
  while (n < 32 && cu.place(f, where)) ++n;
  return n;
}

}  // namespace fusewire::sim
