// One process, one thread per rank.
#pragma once
#include <exception>
#include <thread>

#include <fusewire/runtime/world.hpp>

namespace fusewire {

struct run_options {
  std::vector<int> devices = {};  // device of each rank; empty: rank modulo the number of devices
};

/// Calls f(world&) on `ranks` threads, one per rank, and returns when all have returned.
/// Fails: rethrows the first exception of any rank that has a reason of its own, a timeout only when there is no other; ranks that wait
/// for it in a collective are released with peer_failed.
template <class F>
void run_local(int ranks, run_options const& options, F f, std::source_location where = std::source_location::current()) {
  platform::prepare_runtime(true);
  require(ranks >= 1 && ranks <= max_ranks, where, "run_local: ", ranks, " ranks; 1 to ", max_ranks, " are accepted");
  require(options.devices.empty() || int(options.devices.size()) == ranks, where, "run_local: ", options.devices.size(), " devices for ", ranks,
          " ranks; one per rank is accepted, or none to choose them");
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount", where);
  require<runtime_failure>(devices > 0, where, "run_local: no GPU; without one, run the program under fusewire-sim");

  auto const hub = std::make_shared<thread_bootstrap::hub>(ranks);
  std::mutex m;
  std::exception_ptr first, timeout, consequence;  // the last two may be how another rank saw the first
  auto const run = [&](int r) {
    try {
      world w(std::make_unique<thread_bootstrap>(hub, r), options.devices.empty() ? r % devices : options.devices[static_cast<std::size_t>(r)], where);
      f(w);
      hub->leave(r);
    } catch (...) {
      auto const keep = [&](std::exception_ptr& e) {
        std::lock_guard const lock(m);
        if (!e) e = std::current_exception();
      };
      try {
        throw;
      } catch (peer_failed const&) {
        keep(consequence);
      } catch (launch_abandoned const& e) {
        keep(consequence);
        hub->fail(text("rank ", r, ": ", e.what()));
      } catch (wait_timeout const& e) {
        keep(timeout);
        hub->fail(text("rank ", r, ": ", e.what()));
      } catch (std::exception const& e) {
        keep(first);
        hub->fail(text("rank ", r, ": ", e.what()));
      } catch (...) {
        keep(first);
        hub->fail(text("rank ", r, " threw"));
      }
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  } catch (std::exception const& e) {  // the ranks that have started do not wait for one that never comes
    std::string const why = text("run_local: thread ", threads.size(), " of ", ranks, " cannot be started: ", e.what());
    hub->fail(why);
    std::lock_guard const lock(m);
    first = std::make_exception_ptr(runtime_failure(why));
  }
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
  if (timeout) std::rethrow_exception(timeout);
  if (consequence) std::rethrow_exception(consequence);
}

template <class F>
void run_local(int ranks, F f, std::source_location where = std::source_location::current()) {
  run_local(ranks, run_options{}, std::move(f), where);
}

}  // namespace fusewire
