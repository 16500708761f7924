#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine.hpp"

namespace fusewire::sim {

/// What a wave waits for.
enum class stall : u8 { memory, flags, lds, scalar_memory, barrier, matrix, vector, issue, fetch, count };
inline constexpr std::size_t stalls = static_cast<std::size_t>(stall::count);
char const* name_of(stall);

/// Bytes that crossed each part of the memory system.
struct traffic {
  u64 l1 = 0, l2 = 0, mall = 0, hbm = 0, link_in = 0, link_out = 0, host = 0;
  u64 writebacks = 0, lines_written_back = 0;
  u64 flags_raised = 0, polls = 0;
};

/// Where the time of a kernel went, for one launch or for all launches of one kernel on one GPU.
struct kernel_profile {
  std::string name;
  int gpu = 0;
  u64 launches = 0, workgroups = 0, waves = 0, instructions = 0;
  u64 cycles = 0;       // from the dispatch of the first wave to the end
  u64 wave_cycles = 0;  // of all waves
  std::array<u64, stalls> waited{};
  u64 matrix = 0, vector = 0, lds = 0, lds_conflicts = 0;  // cycles: of SIMDs, of SIMDs, of CUs, of those
  traffic bytes;
  void add(kernel_profile const&);
};

/// Addresses of an LDS instruction seen before, relative to the first lane's, and the time that they take: where all
/// lanes move by the same amount, the banks are equally busy.
struct bank_pattern {
  u64 exec = 0;
  u32 at = ~u32{0};  // the lowest bits of the first lane's
  u32 turns = 0, least = 0;
  u32 address[lanes] = {};
};

/// How long waves waited at each instruction of a program, by the index of the op.
struct hot_spots {
  std::shared_ptr<program const> of;  // modules may be gone when it is printed
  std::vector<u64> waited, executed;
  std::vector<std::unique_ptr<std::array<bank_pattern, 4>>> banks;  // of LDS instructions
};

}  // namespace fusewire::sim
