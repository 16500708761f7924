// A world that outlives the call that makes it, for bindings and for programs that have their own main loop. run()
// calls the program's function instead, and does more for it; see make_world().
#pragma once
#include <memory>

#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Collective. A world of ranks that `b` connects: see bootstrap. The world owns it. `device` is this rank's device.
///
/// What run() does beyond, and the caller does here:
///   - When an exception leaves the function, it tells the others. Here, call world::fail(e.what()): ranks that wait
///   for
///     this one on the host end immediately then, and not when their time is over.
///   - It has all code loaded before the first launch (on NVIDIA, by CUDA_MODULE_LOADING=EAGER). Here, load kernels
///     before the first launch that waits, by load_kernel(), or an operator's constructor and prepare().
///   - It returns when all ranks have returned. Here, call barrier() before a process ends: until then peers may use
///     its memory.
///
/// Fails: as world's constructor. The other ranks are told.
world make_world(std::unique_ptr<bootstrap> b, int device,
                 std::source_location where = std::source_location::current());

/// Collective. A world of the processes that a launcher has started, by the environment: see tcp_options. The device is
/// LOCAL_RANK modulo the number of devices. Otherwise as above. The world's session ends with the world, and waits then
/// until all ranks have ended theirs.
/// Fails: bootstrap_failed when the ranks do not find each other; runtime_failure without a GPU; as above.
world make_world(std::source_location where = std::source_location::current());

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/ranks/make_world.ipp>
#endif
