#include "machine/config.hpp"

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace fusewire::sim {
namespace {

u64 number(char const* name, u64 otherwise, u64 low, u64 high) {
  char const* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  errno = 0;
  u64 const value = std::strtoull(text, &end, 0);
  if (errno || *end || *text == '-' || value < low || value > high) {
    std::fprintf(stderr, "fusewire-sim: %s=%s: expected a number from %llu to %llu\n", name, text,
                 static_cast<unsigned long long>(low), static_cast<unsigned long long>(high));
    std::_Exit(exit_code_of_a_report);
  }
  return value;
}

/// Parses a mask as ROCclr does: a hexadecimal number. If it names no CU, or all of them, there is no mask.
cu_mask mask_from(char const* text, int cus) {
  cu_mask mask;
  std::string_view digits = text ? text : "";
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  for (int bit = 0; bit < cus && !digits.empty(); bit += 4, digits.remove_suffix(1)) {
    if (!std::isxdigit(static_cast<unsigned char>(digits.back()))) return {};
    int const digit = std::stoi(std::string(1, digits.back()), nullptr, 16);
    for (int i = 0; i < 4 && bit + i < cus; ++i) mask[static_cast<std::size_t>(bit + i)] = digit >> i & 1;
  }
  return mask.count() == static_cast<std::size_t>(cus) ? cu_mask{} : mask;
}

}  // namespace

config config::from_environment() {
  config c;
  c.gpus = static_cast<int>(number("FUSEWIRE_SIM_GPUS", 8, 1, max_gpus));
  c.cus = static_cast<int>(number("FUSEWIRE_SIM_CUS", max_cus, 1, max_cus));
  c.partitions = static_cast<int>(number("FUSEWIRE_SIM_PARTITIONS", 1, 1, max_xcds));
  if (max_xcds % c.partitions || c.cus % max_xcds * (c.partitions - 1) || c.gpus * c.partitions > max_gpus) {
    std::fprintf(stderr,
                 "fusewire-sim: %d GPUs of %d CUs in %d partitions each: expected 1, 2, 4 or 8 partitions, CUs in "
                 "eights, and no more than %d devices in all\n",
                 c.gpus, c.cus, c.partitions, max_gpus);
    std::_Exit(exit_code_of_a_report);
  }
  c.gpus *= c.partitions, c.cus /= c.partitions;
  c.visible = visible_devices::among(c.gpus, std::getenv("ROCR_VISIBLE_DEVICES"), std::getenv("HIP_VISIBLE_DEVICES"),
                                     std::getenv("CUDA_VISIBLE_DEVICES"));
  c.mask = mask_from(std::getenv("ROC_GLOBAL_CU_MASK"), c.cus);
  c.seed = number("FUSEWIRE_SIM_SEED", 1, 0, ~u64{0});
  if (std::getenv("FUSEWIRE_SIM_SHARED")) c.seed += 1'000'003 * number("RANK", 0, 0, ~u64{0} >> 32);  // ranks differ
  c.time = number("FUSEWIRE_SIM_TIME", 0, 0, 1) != 0;
  c.rates.mhz = static_cast<double>(number("FUSEWIRE_SIM_MHZ", 2100, 100, 10'000));
  if (char const* values = std::getenv("FUSEWIRE_SIM_TIMING"); values && *values)
    if (std::string const wrong = c.rates.set(values); !wrong.empty()) {
      std::fprintf(stderr, "fusewire-sim: FUSEWIRE_SIM_TIMING: %s\n", wrong.c_str());
      std::_Exit(exit_code_of_a_report);
    }
  if (char const* file = std::getenv("FUSEWIRE_SIM_TRACE")) c.trace = file;
  if (char const* file = std::getenv("FUSEWIRE_SIM_STATS_JSON")) c.stats_file = file;
  if (c.time && std::getenv("FUSEWIRE_SIM_SHARED")) {
    std::fprintf(stderr, "fusewire-sim: the clock runs in one process: --time and --processes exclude each other; run "
                         "the ranks as threads\n");
    std::_Exit(exit_code_of_a_report);
  }
  c.races = number("FUSEWIRE_SIM_RACES", 0, 0, 1) != 0;
  if (c.races && (c.time || std::getenv("FUSEWIRE_SIM_SHARED"))) {
    std::fprintf(stderr, "fusewire-sim: --races looks at the kernels of one process and has no clock: it excludes "
                         "--processes and --time; run the ranks as threads\n");
    std::_Exit(exit_code_of_a_report);
  }
  if (c.time) c.weak = false;
  c.print_stats = number("FUSEWIRE_SIM_STATS", 0, 0, 1) != 0;
  c.count_calls = number("FUSEWIRE_SIM_COUNT_CALLS", 0, 0, 1) != 0;
  c.report_leaks = number("FUSEWIRE_SIM_LEAKS", 0, 0, 1) != 0;
  c.cached_ipc = number("FUSEWIRE_SIM_CACHED_IPC", 0, 0, 1) != 0;
  c.patience = number("FUSEWIRE_SIM_PATIENCE", c.patience, 1, 3'600'000);
  c.livelock = number("FUSEWIRE_SIM_LIVELOCK", c.livelock, 1, ~u64{0});
  if (char const* call = std::getenv("FUSEWIRE_SIM_FAIL_CALL"); call && *call) {
    char* end = nullptr;
    c.fail_call = std::strtoull(call, &end, 10);
    if (*call < '1' || *call > '9' || (*end && *end != ':')) {
      std::fprintf(stderr,
                   "fusewire-sim: FUSEWIRE_SIM_FAIL_CALL=%s: expected a number from 1 on, or such a number, a colon "
                   "and the name of a call\n",
                   call);
      std::_Exit(exit_code_of_a_report);
    }
    if (*end) c.fail_name = end + 1;
  }
  if (char const* memory = std::getenv("FUSEWIRE_SIM_MEMORY"); memory && *memory) {
    if (std::strcmp(memory, "weak") != 0 && std::strcmp(memory, "strong") != 0) {
      std::fprintf(stderr, "fusewire-sim: FUSEWIRE_SIM_MEMORY=%s: expected weak or strong\n", memory);
      std::_Exit(exit_code_of_a_report);
    }
    c.weak = std::strcmp(memory, "weak") == 0;
  }
  return c;
}

}  // namespace fusewire::sim
