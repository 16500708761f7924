// Launching kernels whose blocks wait for each other, on this rank and on others.
#pragma once
#include <algorithm>

#include <fusewire/runtime/world.hpp>

namespace fusewire {

/// Grid and block of a launch. One-dimensional.
struct launch_shape {
  int blocks = 1, threads = 256;
  int shared_bytes = 0;  // dynamic
};

namespace detail {
template <class... P>
void const* address_of(void (*kernel)(P...)) {
  return reinterpret_cast<void const*>(kernel);
}
}  // namespace detail

/// Loads the kernel's code on this rank's device. Loading can wait for a device that is busy waiting for us, so it happens before
/// the first launch that can wait: operators call it when they are made, launch() does for a kernel it has not seen.
template <class... P>
void load_kernel(void (*kernel)(P...), int shared_bytes = 0, std::source_location where = std::source_location::current()) {
  hipFuncAttributes a;
  check_hip(hipFuncGetAttributes(&a, detail::address_of(kernel)), "hipFuncGetAttributes", where);
  if (shared_bytes > 48 * 1024) check_hip(platform::allow_shared_bytes(kernel, shared_bytes), "allow_shared_bytes", where);
}

/// How many blocks of the kernel this rank's part of its device holds at once. `reserved` compute units are left to other work.
template <class... P>
int resident_blocks(world const& w, void (*kernel)(P...), int threads, int shared_bytes, int reserved = 0, std::source_location where = std::source_location::current()) {
  int units = 0, per_unit = 0;
  check_hip(hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, w.device()), "hipDeviceGetAttribute", where);
  check_hip(hipOccupancyMaxActiveBlocksPerMultiprocessor(&per_unit, detail::address_of(kernel), threads, static_cast<std::size_t>(shared_bytes)),
            "hipOccupancyMaxActiveBlocksPerMultiprocessor", where);
  return std::max(0, (units - reserved) / w.ranks_on_device()) * per_unit;
}

/// Launches the kernel once. Blocks of one launch, and launches of different ranks, may wait for each other.
/// Requires: all blocks fit on this rank's part of the device at once (one communicating kernel at a time per rank).
/// Fails: bad_argument when they do not, naming how many do.
template <class... P, class... A>
void launch(world const& w, hipStream_t stream, launch_shape s, void (*kernel)(P...), A const&... arguments) {
  auto const where = std::source_location::current();
  require(s.blocks >= 1 && s.threads >= 1, where, "launch: ", s.blocks, " blocks of ", s.threads, " threads; at least 1 of each is accepted");
  load_kernel(kernel, s.shared_bytes, where);
  int const fit = resident_blocks(w, kernel, s.threads, s.shared_bytes, 0, where);
  require(s.blocks <= fit, where, "launch: ", s.blocks, " blocks of ", s.threads, " threads and ", s.shared_bytes, " bytes of shared memory; ", fit,
          " fit at once on this rank's part of device ", w.device(), " (", w.ranks_on_device(), " ranks share it), and blocks that wait for each other must all fit");
  kernel<<<dim3(unsigned(s.blocks)), dim3(unsigned(s.threads)), std::size_t(s.shared_bytes), stream>>>(static_cast<P>(arguments)...);
  check_hip(hipGetLastError(), "kernel launch", where);
}

}  // namespace fusewire
