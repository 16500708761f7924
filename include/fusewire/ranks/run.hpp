// Starts ranks as the user has started the program: as processes where a launcher set RANK and WORLD_SIZE, or what srun
// and mpirun set in their place (environment.hpp), otherwise as threads.
//
//   ./program                              threads of one process
//   scripts/run-ranks -n 8 ./program       processes; so do torchrun --no-python and fusewire-sim --processes 8
//   srun -n 8 ./program                    processes; so does mpirun -n 8
#pragma once
#include <fusewire/ranks/environment.hpp>
#include <fusewire/ranks/run_local.hpp>

namespace fusewire {

/// Whether a launcher started this program as one process per rank.
inline bool started_as_processes() {
  auto const& by = detail::launcher_of_process();
  return std::getenv(by.rank) && std::getenv(by.size);
}

/// The number of GPUs that this process sees; 0 without a driver. Prepares the runtime as run() does: on NVIDIA it sets
/// CUDA_MODULE_LOADING to EAGER and, where ranks are threads, CUDA_DEVICE_MAX_CONNECTIONS to 32, unless they are set.
/// Both have an effect only before the first use of a GPU.
int device_count();

namespace detail {
void run_process(run_options const& options, std::function<void(world&)> const& f, std::source_location where);
}  // namespace detail

/// Calls f(world&) once: this process is one rank of WORLD_SIZE, or of what srun or
/// mpirun has started. Returns when every rank has returned. Its device is
/// options.devices[rank] or, if that list is empty, LOCAL_RANK modulo the number of devices.
/// Fails: bootstrap_failed when the ranks do not find each other. Rethrows what f throws, after it has told the other
/// ranks: those that wait for this one in a collective get peer_failed.
template <class F>
void run_processes(run_options const& options, F f, std::source_location where = std::source_location::current()) {
  detail::run_process(options, std::ref(f), where);
}

/// The same with default options.
template <class F>
void run_processes(F f, std::source_location where = std::source_location::current()) {
  run_processes(run_options{}, std::move(f), where);
}

/// run_processes() where a launcher started the program as processes: then WORLD_SIZE is the number of ranks, and
/// `ranks` is ignored. Otherwise run_local(). Both prepare the runtime as device_count() does.
template <class F>
void run(int ranks, run_options const& options, F f, std::source_location where = std::source_location::current()) {
  if (started_as_processes()) run_processes(options, std::move(f), where);
  else run_local(ranks, options, std::move(f), where);
}

/// The same with default options.
template <class F>
void run(int ranks, F f, std::source_location where = std::source_location::current()) {
  run(ranks, run_options{}, std::move(f), where);
}

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/ranks/run.ipp>
#endif
