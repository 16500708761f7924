// For tests of error paths: calls that are made to fail, and what a program has taken and not given back.
#pragma once
#include <hip/hip_runtime_api.h>

#include <string>

namespace fusewire::sim {

/// Counts the call. The error that it has to fail with when its turn has come (FUSEWIRE_SIM_FAIL_CALL,
/// fusewireSimFailCall), else hipSuccess.
hipError_t planted_failure(char const* call);
/// Calls that give something back do it all the same and then fail, as a runtime does that reports the error of earlier
/// work.
bool gives_back(char const* call);

/// The program has `object`, and `what` says what it is and which call it came from; until let_go.
void hold(void const* object, std::string what);
void let_go(void const* object);

}  // namespace fusewire::sim
