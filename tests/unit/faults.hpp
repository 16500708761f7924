// Shared parts of tests of failures: a short limit, the message of check(), and the clock for limits.
#pragma once
#include <chrono>

#include "simulator.hpp"
#include "support.hpp"

namespace support {

inline constexpr std::chrono::milliseconds limit{500};
/// The limit and a second. The simulated clock goes on while the system keeps a rank's host thread waiting; on a busy
/// machine this can take seconds.
inline double seconds_to_report() { return simulator_stats() ? 15 : 1.5; }

inline heap_options short_waits() {
  heap_options o = small_heap();
  o.wait_limit = limit;
  return o;
}

/// The simulated clock, where there is one.
inline double seconds_now() {
  auto const simulated = simulator_stats();
  return simulated ? double(simulated->cycles) / 2.1e9
                   : std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The type of the error that check() throws, "timeout: ", "abandoned: " or "mismatch: ", and its message; "" if it
/// throws none.
inline std::string verdict(rank_of_test& r) {
  try {
    r.world.check(r.stream);
  } catch (launch_abandoned const& e) {
    return text("abandoned: ", e.what());
  } catch (wait_timeout const& e) {
    return text("timeout: ", e.what());
  } catch (rank_mismatch const& e) {
    return text("mismatch: ", e.what());
  }
  return "";
}

/// Calls f, which launches something. An earlier launch may have failed by now: then the first call reports that, and
/// the next one launches.
template <class F>
void anyway(F const& f) {
  try {
    return f();
  } catch (launch_abandoned const&) {
  } catch (wait_timeout const&) {
  } catch (rank_mismatch const&) {}
  f();
}

/// Keeps the stream busy. It polls memory all the while: so the simulator knows immediately that the wave only waits,
/// and lets time jump.
template <class = void>
__global__ void spend(world_view w, std::uint64_t ns) {
  for (std::uint64_t const start = platform::clock_ns(); platform::clock_ns() - start < ns;) {
    (void)platform::atomic_load<order::relaxed, scope::system>(&detail::watch_of(w, w.rank())->abandoned);
    platform::backoff();
  }
}

inline std::uint64_t ns_of(double of_the_limit) { return std::uint64_t(of_the_limit * 1e6 * double(limit.count())); }

}  // namespace support
