// Bodies of run.hpp.
#pragma once
#include <exception>

#include <fusewire/ranks/run.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>

namespace fusewire {

FUSEWIRE_HOST int device_count() {
  platform::prepare_runtime(!started_as_processes());
  int n = 0;
  hipError_t const e = hipGetDeviceCount(&n);
  ignore_hip(e);
  return e == hipSuccess ? n : 0;
}

FUSEWIRE_HOST void detail::run_process(run_options const& options, std::function<void(world&)> const& f,
                                       std::source_location where) {
  platform::prepare_runtime(false);
  auto const here = tcp_options::from_environment(where);
  require(options.devices.empty() || int(options.devices.size()) == here.size, where,
          "run_processes: ", options.devices.size(), " devices for ", here.size,
          " ranks; expected one per rank, or none to choose them");
  auto const session = std::make_shared<tcp_session>(here);
  try {
    int devices = 0;
    check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount", where);
    require<runtime_failure>(devices > 0, where,
                             "run_processes: no GPU; without one, start the program with fusewire-sim --processes");
    world w(std::make_unique<tcp_bootstrap>(session),
            options.devices.empty() ? here.local_rank % devices : options.devices[static_cast<std::size_t>(here.rank)],
            where);
    f(w);
  } catch (std::exception const& e) {
    session->fail(0, text("rank ", here.rank, ": ", e.what()));
    throw;
  } catch (...) {
    session->fail(0, text("rank ", here.rank, " threw"));
    throw;
  }
}

}  // namespace fusewire
