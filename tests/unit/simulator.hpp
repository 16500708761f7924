// What fusewire-sim counts, for tests that ask it.
#pragma once
#include <dlfcn.h>
#include <fusewire_sim.h>

#include <optional>

namespace support {

/// What the simulator did so far; nothing on a GPU.
inline std::optional<fusewire_sim_stats> simulator_stats() {
  static auto const simulator = reinterpret_cast<fusewire_sim_stats_function>(dlsym(RTLD_DEFAULT, "fusewireSimStats"));
  if (!simulator) return std::nullopt;
  fusewire_sim_stats s{};
  s.size = sizeof s;
  (void)simulator(&s);
  return s;
}

}  // namespace support
