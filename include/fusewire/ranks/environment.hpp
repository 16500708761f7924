// Environment variables that a launcher or a user sets.
#pragma once
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>

#include <fusewire/ranks/error.hpp>

namespace fusewire::detail {

/// The variable's value; nothing if it is not set, or empty.
inline std::optional<std::string> variable(char const* name) {
  char const* const value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

/// The variable's value as a number from `low` to `high`; `otherwise` if it is not set. Fails: bad_argument.
inline long long number_in(char const* name, long long low, long long high, std::optional<long long> otherwise,
                           std::source_location where) {
  auto const value = variable(name);
  require(value || otherwise, where, name,
          " is not set; torchrun, scripts/run-ranks and fusewire-sim --processes set "
          "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
  if (!value) return *otherwise;
  char* end = nullptr;
  errno = 0;
  long long const n = std::strtoll(value->c_str(), &end, 10);
  require(errno == 0 && *end == 0 && n >= low && n <= high, where, name, " = ", *value, "; expected ", low, " to ",
          high);
  return n;
}

/// How long a rank waits for others, threads or processes, in a collective on the host.
inline std::chrono::milliseconds collective_limit(std::source_location where) {
  return std::chrono::seconds(number_in("FUSEWIRE_COLLECTIVE_SECONDS", 1, 86400, 600, where));
}

}  // namespace fusewire::detail
