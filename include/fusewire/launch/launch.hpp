// Launching kernels whose blocks wait for each other, on this rank and on others.
#pragma once
#include <algorithm>
#include <array>

#include <fusewire/device/channel_view.hpp>
#include <fusewire/ranks/log.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Grid and block of a launch, both one-dimensional.
struct launch_shape {
  int blocks = 1, threads = 256;  // blocks of the grid; threads of a block, 1 to 1024
  int shared_bytes = 0;           // dynamic shared memory of a block
  /// Blocks that start together and reach each other's shared memory; 1 where the hardware has no clusters
  int cluster = 1;
  /// The kernel itself waits for earlier work on the stream (wait_prior_grid), so it may be launched before that work
  /// is over
  bool programmatic = false;
  std::source_location where = std::source_location::current();  // the caller, for messages
};

namespace detail {
template <class... P>
void const* address_of(void (*kernel)(P...)) {
  return reinterpret_cast<void const*>(kernel);
}

/// The name in a launch's header, where the argument brings one; else 0.
template <class T>
std::uint64_t name_in(T const& argument) {
  if constexpr (std::is_same_v<T, channel_view>) return argument.header.what[0];
  else return 0;
}

/// Memory of a kernel's argument that one launch at a time may use; null if it has none.
template <class T>
void const* memory_of_one_launch(T const& argument) {
  if constexpr (std::is_same_v<T, channel_view>) return argument.world.here(argument.state);
  else if constexpr (requires { argument.memory_of_one_launch(); }) return argument.memory_of_one_launch();
  else return nullptr;
}

/// `fit`: how many blocks fit at once on `units` units, `of_unit` of them on one.
inline launch_room room_of(world const& w, launch_shape const& s, int units, int fit, int of_unit) {
  if (w.ranks_on_device() > 1) return {};  // launch() waits for the end
  int const parts = w.xcd_count(), blocks = (s.blocks + parts - 1) / parts;
  units /= parts;
  of_unit = std::max(of_unit, 1);
  if (s.cluster > 1) return {std::min(blocks, units), (fit - s.blocks) / s.cluster / of_unit, blocks, 0, 0};
  return {std::min(blocks, units), units - (blocks + of_unit - 1) / of_unit, blocks, of_unit, units};
}
}  // namespace detail

/// Loads the kernel's code on this rank's device. Loading can block on a device whose kernels wait for this rank, so it
/// should happen before the first launch that can wait. Operators call it when they are made. Call it for kernels of
/// your own, unless the program's first use of the GPU was run() or device_count(): on NVIDIA these have all code
/// loaded at once.
/// Where ranks share a device, every block asks for more than half of a compute unit's shared memory, and so has the
/// unit to itself. Then blocks of different kernels, of ranks in different launches, fit whenever their total number
/// does.
template <class... P>
residency load_kernel(world const& w, void (*kernel)(P...), int threads, int shared_bytes = 0,
                      std::source_location where = std::source_location::current()) {
  require(kernel != nullptr, where, "load_kernel: no kernel; expected a __global__ function");
  require(threads >= 1 && threads <= 1024, where, "load_kernel: blocks of ", threads, " threads; expected 1 to 1024");
  require(shared_bytes >= 0 && shared_bytes <= platform::max_shared_bytes, where, "load_kernel: ", shared_bytes,
          " bytes of shared memory; expected 0 to ", platform::max_shared_bytes);
  return w.cached({detail::address_of(kernel), threads, shared_bytes, 1}, [&] {
    detail::current_device const device(w.device(), where);
    detail::outside_captures const loading;
    hipFuncAttributes a;
    check_hip(hipFuncGetAttributes(&a, detail::address_of(kernel)), "hipFuncGetAttributes", where);
    residency r{0, shared_bytes};
    if (w.ranks_on_device() > 1)
      r.shared_bytes = std::max(shared_bytes, platform::max_shared_bytes / 2 + 1024 - int(a.sharedSizeBytes));
    check_hip(platform::allow_shared_bytes(kernel, platform::max_shared_bytes - int(a.sharedSizeBytes)),
              "allow_shared_bytes", where);
    check_hip(hipOccupancyMaxActiveBlocksPerMultiprocessor(&r.at_once, detail::address_of(kernel), threads,
                                                           static_cast<std::size_t>(r.shared_bytes)),
              "hipOccupancyMaxActiveBlocksPerMultiprocessor", where);
    return r;
  });
}

/// How many blocks of the kernel fit at once on this rank's part of its device. `reserved` compute units are left to
/// other work.
template <class... P>
int resident_blocks(world const& w, void (*kernel)(P...), int threads, int shared_bytes, int reserved = 0,
                    std::source_location where = std::source_location::current()) {
  return w.cus_per_rank(reserved) * load_kernel(w, kernel, threads, shared_bytes, where).at_once;
}

/// How many clusters of `cluster` blocks of the kernel fit at once on this rank's device. `reserved` compute units are
/// left out, and each of them may take the room of a whole cluster. The answer is 0 where ranks share a device: a
/// cluster needs room side by side, and blocks of another rank may have broken that up.
template <class... P>
int resident_clusters(world const& w, void (*kernel)(P...), int cluster, int threads, int shared_bytes,
                      int reserved = 0, std::source_location where = std::source_location::current()) {
  if (cluster == 1) return resident_blocks(w, kernel, threads, shared_bytes, reserved, where);
  if (w.max_ranks_on_a_device() > 1) return 0;
  (void)load_kernel(w, kernel, threads, shared_bytes, where);
  int const fit = w.cached({detail::address_of(kernel), threads, shared_bytes, cluster}, [&] {
                     detail::current_device const device(w.device(), where);
                     residency r{0, shared_bytes};
                     check_hip(platform::resident_clusters(&r.at_once, kernel, cluster, threads, shared_bytes),
                               "resident_clusters", where);
                     return r;
                   }).at_once;
  return std::max(0, fit - reserved);
}

/// Launches the kernel once. Blocks of one launch, and launches of different ranks, may wait for each other. Where
/// ranks share a device, it returns when the kernel has ended (unless it is captured): work that is queued behind a
/// waiting kernel keeps the device's front end from starting the kernels that it waits for. The thread's current device
/// may be any, and an error that somebody else left behind stays.
/// Launches of this rank on other streams that are not known to be over: this one waits for them, as if an event had
/// ordered the streams, where both use one channel or operator, or where not all blocks fit at once side by side. See
/// launch_order.
/// Order: every rank makes its launches in the same order, those on several streams, too.
/// Requires: all blocks fit at once on this rank's part of the device, in the units that a mask of the stream leaves.
/// Streams of earlier launches exist until world::check() has been called for them. Replays of graphs, and kernels of
/// others whose blocks wait, do not run beside it; that is not checked.
/// Fails: bad_argument when the blocks do not fit (it says how many do), or when it must wait for a stream that has
/// begun a capture; runtime_failure, and nothing is launched; as world::poll_errors().
template <class... P>
void launch(world const& w, hipStream_t stream, launch_shape s, void (*kernel)(P...),
            std::type_identity_t<P> const&... arguments) {
  auto const where = s.where;
  detail::profiler_range const range((detail::name_in(arguments) | ... | 0));
  w.poll_errors();
  require(s.blocks >= 1 && s.threads >= 1 && s.threads <= 1024, where, "launch: ", s.blocks, " blocks of ", s.threads,
          " threads; expected at least 1 block of 1 to 1024 threads");
  require(s.shared_bytes >= 0 && s.shared_bytes <= platform::max_shared_bytes, where, "launch: ", s.shared_bytes,
          " bytes of shared memory; expected 0 to ", platform::max_shared_bytes);
  require(stream != nullptr || w.ranks_on_device() == 1, where, "launch: the null stream, which the ",
          w.ranks_on_device(), " ranks on device ", w.device(),
          " share, so that their kernels could not wait for each other; expected world::stream() or another stream of "
          "this rank");
  require(s.cluster >= 1 && s.blocks % s.cluster == 0, where, "launch: clusters of ", s.cluster,
          " blocks; expected a divisor of the ", s.blocks, " blocks");
  int const masked = w.masked_units(stream, where);
  int const fit = s.cluster * resident_clusters(w, kernel, s.cluster, s.threads, s.shared_bytes, masked, where);
  require(s.blocks <= fit || masked == 0, where, "launch: ", s.blocks, " blocks of ", s.threads, " threads and ",
          s.shared_bytes, " bytes of shared memory; ", fit, " fit at once on the ", w.compute_units() - masked, " of ",
          w.compute_units(),
          " compute units that the stream's mask leaves (as many of each XCD as of the one with fewest), and blocks "
          "that wait for each other must all fit; expected ",
          masked, " reserved units, or a stream without a mask");
  require(s.blocks <= fit, where, "launch: ", s.blocks, " blocks of ", s.threads, " threads and ", s.shared_bytes,
          " bytes of shared memory; ", fit, " fit at once on this rank's part of device ", w.device(), " (",
          w.ranks_on_device(), " ranks share it), and blocks that wait for each other must all fit");
  residency const loaded = load_kernel(w, kernel, s.threads, s.shared_bytes, where);
  int const shared = loaded.shared_bytes;
  auto const capture = detail::capture_of(stream, "launch", where);
  std::array<void const*, sizeof...(P)> const memory{detail::memory_of_one_launch(arguments)...};
  detail::current_device const device(w.device(), where);
  bool const waits = w.launches()->begin(memory, stream, capture,
                                         detail::room_of(w, s, w.compute_units() - masked, fit, loaded.at_once), where);
  // Kernels start early behind a kernel only, and not behind an event
  bool const programmatic = s.programmatic && platform::has_pdl && w.ranks_on_device() == 1 && !waits;
  if (s.cluster == 1 && !programmatic)
    check_hip(detail::start_kernel(kernel, s.blocks, s.threads, shared, stream, arguments...), "kernel launch", where);
  else
    check_hip(
        platform::launch_extended(kernel, s.cluster, programmatic, s.blocks, s.threads, shared, stream, arguments...),
        "cudaLaunchKernelEx", where);
  if (w.ranks_on_device() > 1 && !capture) check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize", where);
}

}  // namespace fusewire
