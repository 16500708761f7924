// For tests of error paths: calls that are made to fail, and what a program has taken and not yet released.
#pragma once
#include <hip/hip_runtime_api.h>

#include <string>

namespace fusewire::sim {

/// Counts the call. Returns the error with which it must fail if its turn has come (FUSEWIRE_SIM_FAIL_CALL,
/// fusewireSimFailCall), else hipSuccess.
hipError_t planted_failure(char const* call);
/// Whether the call releases something. Such a call releases it and then fails, as a runtime does that reports the
/// error of earlier work.
bool gives_back(char const* call);

/// The program holds `object` until let_go(). `what` says what it is and which call it came from.
void hold(void const* object, std::string what);
void let_go(void const* object);

}  // namespace fusewire::sim
