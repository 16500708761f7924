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
          "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; srun and mpirun their own");
  if (!value) return *otherwise;
  char* end = nullptr;
  errno = 0;
  long long const n = std::strtoll(value->c_str(), &end, 10);
  require(errno == 0 && *end == 0 && n >= low && n <= high, where, name, " = ", *value, "; expected ", low, " to ",
          high);
  return n;
}

/// A launcher's variables: of this rank, the number of ranks, and its rank on this host.
struct launcher_variables {
  char const *rank, *size, *local_rank;
  char const* near;  // the number of ranks on this host, or of hosts
  bool counts_hosts;
};
/// Those of torchrun, Open MPI, MPICH and its kin, and Slurm. mpirun may start its ranks by srun, so Slurm comes last.
inline constexpr launcher_variables launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr, false},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES", true}};

/// Those of the launcher that started this process as one of several ranks. torchrun's also where it is the only one,
/// and where none did: the first. Slurm's are set in a batch script, too, which is no rank; there is no step there.
inline launcher_variables const& launcher_of_process() {
  for (launcher_variables const& l : launchers) {
    bool const first = &l == launchers;
    if (!variable(l.rank) || !variable(l.size)) continue;
    if (first || (*variable(l.size) != "1" && (!l.counts_hosts || variable("SLURM_STEP_ID")))) return l;
  }
  return launchers[0];
}

/// How long a rank waits for others, threads or processes, in a collective on the host.
inline std::chrono::milliseconds collective_limit(std::source_location where) {
  return std::chrono::seconds(number_in("FUSEWIRE_COLLECTIVE_SECONDS", 1, 86400, 600, where));
}

}  // namespace fusewire::detail
