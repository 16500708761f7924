// Bodies of make_world.hpp.
#pragma once
#include <exception>
#include <utility>

#include <fusewire/ranks/make_world.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>

namespace fusewire {

FUSEWIRE_HOST world make_world(std::unique_ptr<bootstrap> b, int device, std::source_location where) {
  std::shared_ptr<bootstrap> const all = std::move(b);
  require(all != nullptr, where, "make_world: no bootstrap; expected one for the ranks of this world");
  try {
    return world(all, device, where);
  } catch (std::exception const& e) {
    all->fail(text("rank ", all->rank(), ": ", e.what()));
    throw;
  }
}

FUSEWIRE_HOST world make_world(std::source_location where) {
  auto const here = tcp_options::from_environment(where);
  auto all = std::make_unique<tcp_bootstrap>(std::make_shared<tcp_session>(here));
  int devices = 0;
  hipError_t const e = hipGetDeviceCount(&devices);
  if (e == hipSuccess && devices > 0) return make_world(std::move(all), here.local_rank % devices, where);
  ignore_hip(e);
  std::string const why = "make_world: no GPU; without one, start the program with fusewire-sim --processes";
  all->fail(text("rank ", here.rank, ": ", why));
  throw runtime_failure(why);
}

}  // namespace fusewire
