// One process, one thread per rank.
#pragma once
#include <functional>
#include <vector>

#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Options of run() and run_local().
struct run_options {
  std::vector<int> devices = {};  // device of each rank; if empty: rank modulo the number of devices
};

namespace detail {
void run_threads(int ranks, run_options const& options, std::function<void(world&)> const& f,
                 std::source_location where);
}  // namespace detail

/// Calls f(world&) on `ranks` threads, one per rank, and returns when all have returned. In a collective on the host,
/// ranks wait for each other as long as FUSEWIRE_COLLECTIVE_SECONDS says (600). When a rank has failed and others do
/// not return immediately, standard error says why it failed.
/// Fails: rethrows the first exception that a rank threw for its own reason; a timeout only if there is no such
/// exception. Ranks that wait in a collective for a rank that failed are released with peer_failed.
template <class F>
void run_local(int ranks, run_options const& options, F f,
               std::source_location where = std::source_location::current()) {
  detail::run_threads(ranks, options, std::ref(f), where);
}

/// The same with default options.
template <class F>
void run_local(int ranks, F f, std::source_location where = std::source_location::current()) {
  run_local(ranks, run_options{}, std::move(f), where);
}

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/ranks/run_local.ipp>
#endif
