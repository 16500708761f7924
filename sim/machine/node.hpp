#pragma once
#include <array>
#include <vector>

#include "fusewire_sim.h"
#include "machine/address_space.hpp"
#include "machine/races.hpp"
#include "machine/random.hpp"

namespace fusewire::sim {

/// Bytes of whose stores somebody outside is told; see fusewireSimWatch().
struct watched_bytes {
  u64 begin, end;
  void (*tell)(void*);
  void* context;
};

/// State that all parts of the simulator share. The runtime's lock guards it.
struct node {
  explicit node(config c)
      : settings(c), shared(shared_node::from_environment(c.gpus)), memory(c.gpus, shared.get()), chance(c.seed) {
    if (c.races) races = std::make_unique<race_checker>(*this);
  }

  config settings;
  std::unique_ptr<shared_node> shared;  // null: this process simulates the whole node
  address_space memory;
  random_source chance;
  std::unique_ptr<race_checker> races;  // null without --races
  std::array<u32, max_gpus> peers{};    // bit q of peers[g]: GPU g may access the memory of GPU q
  fusewire_sim_stats stats{};
  u64 changes = 0;  // counts whatever makes progress: memory that changed, waves that ended, ...
  u64 cycles = 0;   // simulated time, core clock
  u64 clock_reads = 0;
  std::vector<watched_bytes> watched;
  bool published = false;  // an atomic or a store beyond group scope has just taken effect

  int xcds() const { return std::min(settings.cus, max_xcds / settings.partitions); }
};

inline constexpr u64 core_mhz = 2100;
inline constexpr u64 wall_clock_mhz = 100;

}  // namespace fusewire::sim
