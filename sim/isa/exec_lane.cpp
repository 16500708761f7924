// Instructions that cross lanes or move data by index: CDNA3 ISA, chapter 6.
#include "operands.hpp"
#include "registry.hpp"

namespace fusewire::sim {
namespace {

u32 read_lane(wave const& w, operand const& p, int lane) {
  return p.is_vgpr() ? w.v[p.reg][lane] : read_scalar32(w, p);
}

u64 lanes_below(int l) { return (u64(1) << l) - 1; }

template <int Half>
void count_below(wave& w, op const& o) {
  reader<u32> const mask(w, o, o.arg[1]), sum(w, o, o.arg[2]);
  write_lanes<u32>(w, o, o.arg[0],
                   [&](int l) { return u32(std::popcount(mask[l] & u32(lanes_below(l) >> 32 * Half))) + sum[l]; });
}

void swap(wave& w, op const& o) {
  row const a = *reinterpret_cast<row const*>(w.v[o.arg[0].reg]), b = *reinterpret_cast<row const*>(w.v[o.arg[1].reg]);
  write_row(w.v[o.arg[0].reg], b.lane, w.exec());
  write_row(w.v[o.arg[1].reg], a.lane, w.exec());
}

}  // namespace

void add_lane(registry& r) {
  r.add({
      {"v_readfirstlane_b32",
       {.run =
            [](wave& w, op const& o) {
              u64 const exec = w.exec();
              w.s[o.arg[0].reg] = read_lane(w, o.arg[1], exec ? std::countr_zero(exec) : 0);
            },
        .scalar_result = true}},
      {"v_readlane_b32",
       {.run = [](wave& w,
                  op const& o) { w.s[o.arg[0].reg] = read_lane(w, o.arg[1], read_scalar32(w, o.arg[2]) & 63); },
        .scalar_result = true}},
      {"v_writelane_b32",
       {.run = [](wave& w,
                  op const& o) { w.v[o.arg[0].reg][read_scalar32(w, o.arg[2]) & 63] = read_scalar32(w, o.arg[1]); }}},
      {"v_mbcnt_lo_u32_b32", {.run = count_below<0>}},
      {"v_mbcnt_hi_u32_b32", {.run = count_below<1>}},
      {"v_swap_b32", {.run = swap}},
  });
}

}  // namespace fusewire::sim
