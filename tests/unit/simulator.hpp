// Counters of fusewire-sim, for tests that read them.
#pragma once
#include <dlfcn.h>
#include <fusewire_sim.h>

#include <cstdlib>
#include <optional>

namespace support {

/// The counters of the simulator so far; none on a GPU.
inline std::optional<fusewire_sim_stats> simulator_stats() {
  static auto const simulator = reinterpret_cast<fusewire_sim_stats_function>(dlsym(RTLD_DEFAULT, "fusewireSimStats"));
  if (!simulator) return std::nullopt;
  fusewire_sim_stats s{};
  s.size = sizeof s;
  (void)simulator(&s);
  return s;
}

/// Whether this is a run that reports races. Tests whose kernels read ahead of a wait, so that caches hold old values,
/// skip themselves then: that is a race, and they do not use what they have read.
inline bool reports_races() { return std::getenv("FUSEWIRE_SIM_RACES") != nullptr; }

}  // namespace support
