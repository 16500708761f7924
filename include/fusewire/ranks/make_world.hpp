// A world that outlives the call that makes it, for bindings and for programs that have a main loop of their own. run()
// calls the program's function instead, and does more for it; see make_world().
#pragma once
#include <exception>
#include <memory>
#include <utility>

#include <fusewire/ranks/tcp_bootstrap.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Collective. A world of ranks that meet by `b`: see bootstrap. The world owns it. `device` is this rank's device.
///
/// What run() does beyond, and the caller does here:
///   - When an exception leaves the function, it tells the others. Here, call world::fail(e.what()): ranks that wait
///   for
///     this one on the host end at once then, and not when their time is over.
///   - It has all code loaded before the first launch (on NVIDIA, by CUDA_MODULE_LOADING=EAGER). Here, load kernels
///     before the first launch that waits, by load_kernel(), or an operator's constructor and prepare().
///   - It returns when all ranks have returned. Here, call barrier() before a process ends: until then peers may use
///     its memory.
///
/// Fails: as world's constructor. The other ranks are told.
inline world make_world(std::unique_ptr<bootstrap> b, int device,
                        std::source_location where = std::source_location::current()) {
  std::shared_ptr<bootstrap> const all = std::move(b);
  require(all != nullptr, where, "make_world: no bootstrap; expected one for the ranks of this world");
  try {
    return world(all, device, where);
  } catch (std::exception const& e) {
    all->fail(text("rank ", all->rank(), ": ", e.what()));
    throw;
  }
}

/// Collective. A world of the processes that a launcher has started, by the environment: see tcp_options. The device is
/// LOCAL_RANK modulo the number of devices. Otherwise as above. The world's session ends with the world, and waits then
/// until all ranks have ended theirs.
/// Fails: bootstrap_failed when the ranks do not find each other; runtime_failure without a GPU; as above.
inline world make_world(std::source_location where = std::source_location::current()) {
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
