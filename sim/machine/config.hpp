#pragma once
#include <bitset>

#include "machine/timing.hpp"
#include "machine/visible_devices.hpp"

namespace fusewire::sim {

inline constexpr int max_cus = 304;
using cu_mask = std::bitset<max_cus>;  // bit i is CU i, one of XCD i modulo their number

/// What the simulated node looks like. The command fusewire-sim sets it through environment variables.
struct config {
  int gpus = 8;   // FUSEWIRE_SIM_GPUS, 1..16
  int cus = 304;  // FUSEWIRE_SIM_CUS, compute units per GPU; of a device, once the GPUs are partitioned
  // FUSEWIRE_SIM_PARTITIONS: devices that each GPU appears as; `gpus` then counts devices
  int partitions = 1;
  cu_mask mask = {};             // ROC_GLOBAL_CU_MASK: CUs of every device that kernels may use; none: all of them
  visible_devices visible = {};  // HIP_VISIBLE_DEVICES and its relatives
  u64 seed = 1;                  // FUSEWIRE_SIM_SEED
  bool weak = true;              // FUSEWIRE_SIM_MEMORY=weak|strong
  bool time = false;             // FUSEWIRE_SIM_TIME=1: the clock; memory is then neither weak nor strong
  timing rates = {};             // FUSEWIRE_SIM_TIMING=name=value,... and FUSEWIRE_SIM_MHZ
  std::string trace = {};        // FUSEWIRE_SIM_TRACE, a file
  std::string stats_file = {};   // FUSEWIRE_SIM_STATS_JSON
  bool print_stats = false;      // FUSEWIRE_SIM_STATS=1
  bool count_calls = false;      // FUSEWIRE_SIM_COUNT_CALLS=1
  bool report_leaks = false;     // FUSEWIRE_SIM_LEAKS=1
  bool races = false;            // FUSEWIRE_SIM_RACES=1
  u64 fail_call = 0;             // FUSEWIRE_SIM_FAIL_CALL=N or N:NAME
  std::string fail_name = {};
  u64 patience = 3000;           // FUSEWIRE_SIM_PATIENCE, in ms
  bool cached_ipc = false;       // FUSEWIRE_SIM_CACHED_IPC=1: a node whose IPC mappings keep what is stored into them
  u64 livelock = 2'000'000'000;  // FUSEWIRE_SIM_LIVELOCK, in instructions
  static config from_environment();  // ends the process with a message when a variable is malformed
};

inline constexpr int max_gpus = 16;
inline constexpr int max_xcds = 8;
inline constexpr int exit_code_of_a_report = 86;

#ifdef FUSEWIRE_SIM_THREAD_SANITIZER
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
/// For the functions that touch simulated memory, and only for them: a host that polls this memory, or stores what a
/// kernel polls, is no race, as it is none on a real machine. ThreadSanitizer would still watch a call of memcpy or
/// memcmp, so the marked functions make none.
#define FUSEWIRE_SIM_UNWATCHED __attribute__((no_sanitize("thread")))

}  // namespace fusewire::sim
