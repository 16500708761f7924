#include "hip/failures.hpp"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "fusewire_sim.h"
#include "machine/config.hpp"

namespace fusewire::sim {
namespace {

/// Has a lock of its own: calls fail before they take the runtime's.
struct ledger {
  std::mutex m;
  std::map<std::string_view, u64> counts;  // since the failure was planted
  u64 calls = 0, fail_at = 0;
  std::string fail_name;  // empty: any
  char const* failed = nullptr;
  u64 taken = 0;
  std::map<void const*, std::pair<u64, std::string>> held;  // in which order, and what it is
};

ledger& the_ledger() {
  static ledger* const one = [] {
    auto* l = new ledger;  // never destroyed: programs call HIP from destructors
    config const c = config::from_environment();
    l->fail_at = c.fail_call, l->fail_name = c.fail_name;
    return l;
  }();
  return *one;
}

struct kind_of_call {
  std::string_view prefix;
  hipError_t error;
};
/// The first match counts. A call that is not here fails with hipErrorUnknown.
constexpr kind_of_call kinds[] = {
    {"hipGetDeviceCount", hipErrorNoDevice},
    {"hipSetDevice", hipErrorInvalidDevice},
    {"hipDeviceSynchronize", hipErrorLaunchFailure},
    {"hipStreamSynchronize", hipErrorLaunchFailure},
    {"hipEventSynchronize", hipErrorLaunchFailure},
    {"hipDevice", hipErrorInvalidDevice},
    {"hipMalloc", hipErrorOutOfMemory},
    {"hipExtMalloc", hipErrorOutOfMemory},
    {"hipHost", hipErrorOutOfMemory},
    {"hipIpc", hipErrorInvalidHandle},
    {"hipStream", hipErrorOutOfMemory},
    {"hipEvent", hipErrorOutOfMemory},
    {"hipGraph", hipErrorOutOfMemory},
    {"hipModule", hipErrorOutOfMemory},
    {"hipFunc", hipErrorInvalidDeviceFunction},
    {"hipOccupancy", hipErrorInvalidDeviceFunction},
    {"hipLaunch", hipErrorLaunchOutOfResources},
    {"hipMem", hipErrorInvalidValue},
    {"hipFree", hipErrorLaunchFailure},
};

hipError_t error_of(std::string_view call) {
  auto const k = std::ranges::find_if(kinds, [&](kind_of_call const& x) { return call.starts_with(x.prefix); });
  return k == std::end(kinds) ? hipErrorUnknown : k->error;
}

}  // namespace

hipError_t planted_failure(char const* call) {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  u64 const of_this = ++l.counts[call], of_all = ++l.calls;
  bool const now = l.fail_name.empty() ? of_all == l.fail_at : l.fail_name == call && of_this == l.fail_at;
  if (!now) return hipSuccess;
  l.failed = call;
  return error_of(call);
}

bool gives_back(char const* call) {
  static std::set<std::string_view> const calls = {"hipFree",         "hipHostFree",         "hipFreeHost",
                                                   "hipFreeAsync",    "hipHostUnregister",   "hipStreamDestroy",
                                                   "hipEventDestroy", "hipGraphDestroy",     "hipGraphExecDestroy",
                                                   "hipModuleUnload", "hipIpcCloseMemHandle"};
  return calls.contains(call);
}

void hold(void const* object, std::string what) {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  l.held[object] = {++l.taken, std::move(what)};
}

void let_go(void const* object) {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  l.held.erase(object);
}

}  // namespace fusewire::sim

using namespace fusewire::sim;

extern "C" {

void fusewireSimFailCall(uint64_t n, char const* call) {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  l.counts.clear();
  l.calls = 0, l.failed = nullptr;
  l.fail_at = n, l.fail_name = call ? call : "";
}

char const* fusewireSimFailedCall() {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  return l.failed;
}

uint64_t fusewireSimCalls(char const* call) {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  if (!call) return l.calls;
  auto const found = l.counts.find(call);
  return found == l.counts.end() ? 0 : found->second;
}

uint64_t fusewireSimHeld(char* text, size_t size) {
  ledger& l = the_ledger();
  std::lock_guard const lock(l.m);
  std::vector<std::pair<u64, std::string>> all;
  for (auto const& [object, taken] : l.held) all.push_back(taken);
  std::ranges::sort(all);
  if (text && size) {
    std::string lines;
    for (auto const& [order, what] : all) lines += what + "\n";
    text[lines.copy(text, size - 1)] = 0;
  }
  return all.size();
}

}  // extern "C"

namespace {

struct at_exit {
  ~at_exit() {
    config const c = config::from_environment();
    ledger& l = the_ledger();
    if (c.count_calls) {
      std::fprintf(stderr, "fusewire-sim: %" PRIu64 " HIP calls that can fail\n", l.calls);
      for (auto const& [call, n] : l.counts)
        std::fprintf(stderr, "  %8" PRIu64 " %.*s\n", n, static_cast<int>(call.size()), call.data());
    }
    if (c.report_leaks && !l.held.empty()) {
      std::vector<char> text(1 << 20);
      u64 const n = fusewireSimHeld(text.data(), text.size());
      std::fprintf(stderr, "fusewire-sim: the program ends without giving back %" PRIu64 " objects:\n%s", n,
                   text.data());
      std::fflush(stdout);
      _exit(exit_code_of_a_report);
    }
  }
} const report;

}  // namespace
