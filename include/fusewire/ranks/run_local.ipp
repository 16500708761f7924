// Bodies of run_local.hpp.
#pragma once
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include <fusewire/ranks/environment.hpp>
#include <fusewire/ranks/run_local.hpp>
#include <fusewire/ranks/thread_bootstrap.hpp>

namespace fusewire {

FUSEWIRE_HOST void detail::run_threads(int ranks, run_options const& options, std::function<void(world&)> const& f,
                                       std::source_location where) {
  platform::prepare_runtime(true);
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount", where);
  require<runtime_failure>(devices > 0, where, "run_local: no GPU; without one, run the program under fusewire-sim");
  require(ranks >= 1 && ranks <= max_ranks, where, "run_local: ", ranks, " ranks; expected 1 to ", max_ranks);
  require(options.devices.empty() || int(options.devices.size()) == ranks, where, "run_local: ", options.devices.size(),
          " devices for ", ranks, " ranks; expected one per rank, or none to choose them");

  auto const hub = std::make_shared<thread_bootstrap::hub>(ranks, detail::collective_limit(where));
  std::mutex m;
  std::condition_variable news;
  int returned = 0;
  std::string reason;                              // why the first rank that failed did so
  std::exception_ptr first, timeout, consequence;  // the last two may be effects of the first on other ranks
  auto const run = [&](int r) {
    auto const keep = [&](std::exception_ptr& e, std::string const& why) {
      std::lock_guard const lock(m);
      if (!e) e = std::current_exception();
      if (reason.empty()) reason = text("rank ", r, why);
      return text("rank ", r, why);
    };
    try {
      world w(std::make_unique<thread_bootstrap>(hub, r),
              options.devices.empty() ? r % devices : options.devices[static_cast<std::size_t>(r)], where);
      f(w);
      hub->leave(r);
    } catch (peer_failed const& e) {
      keep(consequence, text(": ", e.what()));
    } catch (launch_abandoned const& e) {
      hub->fail(keep(consequence, text(": ", e.what())));
    } catch (wait_timeout const& e) {
      hub->fail(keep(timeout, text(": ", e.what())));
    } catch (std::exception const& e) {
      hub->fail(keep(first, text(": ", e.what())));
    } catch (...) {
      hub->fail(keep(first, " threw"));
    }
    std::lock_guard const lock(m);
    ++returned;
    news.notify_all();
  };
  std::vector<std::thread> threads;
  try {
    for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  } catch (std::exception const& e) {  // the ranks that have started must not wait for one that never comes
    std::string const why = text("run_local: thread ", threads.size(), " of ", ranks, " cannot be started: ", e.what());
    hub->fail(why);
    std::lock_guard const lock(m);
    first = std::make_exception_ptr(runtime_failure(why));
    reason = why;
  }
  {
    std::unique_lock lock(m);
    auto const all = [&] { return returned == int(threads.size()); };
    news.wait(lock, [&] { return all() || !reason.empty(); });
    if (!news.wait_for(lock, std::chrono::seconds(1), all))
      std::fprintf(stderr, "fusewire: %s; ranks that have yet to return: %d\n", reason.c_str(),
                   int(threads.size()) - returned);
  }
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
  if (timeout) std::rethrow_exception(timeout);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace fusewire
