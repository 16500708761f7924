#include "machine/profile.hpp"

namespace fusewire::sim {

char const* name_of(stall s) {
  static constexpr char const* names[] = {"memory",       "flags",        "LDS",   "scalar memory",    "barrier",
                                          "MFMA results", "vector issue", "issue", "instruction fetch"};
  return names[static_cast<std::size_t>(s)];
}

void kernel_profile::add(kernel_profile const& o) {
  if (name.empty()) name = o.name, gpu = o.gpu;
  launches += o.launches, workgroups += o.workgroups, waves += o.waves, instructions += o.instructions;
  cycles += o.cycles, wave_cycles += o.wave_cycles;
  for (std::size_t i = 0; i < stalls; ++i) waited[i] += o.waited[i];
  matrix += o.matrix, vector += o.vector, lds += o.lds, lds_conflicts += o.lds_conflicts;
  traffic const& b = o.bytes;
  bytes.l1 += b.l1, bytes.l2 += b.l2, bytes.mall += b.mall, bytes.hbm += b.hbm, bytes.link_in += b.link_in,
      bytes.link_out += b.link_out, bytes.host += b.host;
  bytes.writebacks += b.writebacks, bytes.lines_written_back += b.lines_written_back;
  bytes.flags_raised += b.flags_raised, bytes.polls += b.polls;
}

}  // namespace fusewire::sim
