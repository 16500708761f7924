// Bodies of launch.hpp.
#pragma once
#include <algorithm>

#include <fusewire/launch/launch.hpp>
#include <fusewire/ranks/launch_order.hpp>
#include <fusewire/ranks/log.hpp>

namespace fusewire {

namespace detail {
/// `fit`: how many blocks fit concurrently on `units` units, `of_unit` of them on one.
inline launch_room room_of(world const& w, launch_shape const& s, int units, int fit, int of_unit) {
  if (w.ranks_on_device() > 1) return {};  // launch() waits for the end
  int const xcds = w.xcd_count(), blocks = (s.blocks + xcds - 1) / xcds;
  units /= xcds;
  of_unit = std::max(of_unit, 1);
  if (s.cluster > 1) return {std::min(blocks, units), (fit - s.blocks) / s.cluster / of_unit, blocks, 0, 0};
  return {std::min(blocks, units), units - (blocks + of_unit - 1) / of_unit, blocks, of_unit, units};
}
}  // namespace detail

FUSEWIRE_HOST residency load_kernel(world const& w, void const* kernel, int threads, int shared_bytes,
                                    std::source_location where) {
  require(kernel != nullptr, where, "load_kernel: no kernel; expected a __global__ function");
  require(threads >= 1 && threads <= 1024, where, "load_kernel: blocks of ", threads, " threads; expected 1 to 1024");
  require(shared_bytes >= 0 && shared_bytes <= platform::max_shared_bytes, where, "load_kernel: ", shared_bytes,
          " bytes of shared memory; expected 0 to ", platform::max_shared_bytes);
  return w.cached({kernel, threads, shared_bytes, 1}, [&] {
    detail::current_device const device(w.device(), where);
    detail::outside_captures const loading;
    hipFuncAttributes a;
    check_hip(hipFuncGetAttributes(&a, kernel), "hipFuncGetAttributes", where);
    residency r{0, shared_bytes};
    if (w.ranks_on_device() > 1)
      r.shared_bytes = std::max(shared_bytes, platform::max_shared_bytes / 2 + 1024 - int(a.sharedSizeBytes));
    check_hip(platform::allow_shared_bytes(kernel, platform::max_shared_bytes - int(a.sharedSizeBytes)),
              "allow_shared_bytes", where);
    check_hip(hipOccupancyMaxActiveBlocksPerMultiprocessor(&r.at_once, kernel, threads,
                                                           static_cast<std::size_t>(r.shared_bytes)),
              "hipOccupancyMaxActiveBlocksPerMultiprocessor", where);
    return r;
  });
}

FUSEWIRE_HOST int resident_clusters(world const& w, void const* kernel, int cluster, int threads, int shared_bytes,
                                    int reserved, std::source_location where) {
  if (cluster == 1) return w.cus_per_rank(reserved) * load_kernel(w, kernel, threads, shared_bytes, where).at_once;
  if (w.max_ranks_on_a_device() > 1) return 0;
  (void)load_kernel(w, kernel, threads, shared_bytes, where);
  int const fit = w.cached({kernel, threads, shared_bytes, cluster}, [&] {
                     detail::current_device const device(w.device(), where);
                     residency r{0, shared_bytes};
                     check_hip(platform::resident_clusters(&r.at_once, kernel, cluster, threads, shared_bytes),
                               "resident_clusters", where);
                     return r;
                   }).at_once;
  return std::max(0, fit - reserved);
}

FUSEWIRE_HOST void detail::launch_kernel(world const& w, hipStream_t stream, launch_shape const& s, void const* kernel,
                                         std::uint64_t name, std::span<void const* const> memory, void** arguments) {
  auto const where = s.where;
  profiler_range const range(name);
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
          s.shared_bytes, " bytes of shared memory; ", fit, " fit concurrently on the ", w.compute_units() - masked,
          " of ", w.compute_units(),
          " compute units that the stream's mask leaves (as many of each XCD as of the one with fewest), and blocks "
          "that wait for each other must all fit; expected ",
          masked, " reserved units, or a stream without a mask");
  require(s.blocks <= fit, where, "launch: ", s.blocks, " blocks of ", s.threads, " threads and ", s.shared_bytes,
          " bytes of shared memory; ", fit, " fit concurrently on ",
          w.ranks_on_device() == 1
              ? text("device ", w.device())
              : text("this rank's part of device ", w.device(), " (", w.ranks_on_device(), " ranks share it)"),
          ", and blocks that wait for each other must all fit");
  residency const loaded = load_kernel(w, kernel, s.threads, s.shared_bytes, where);
  int const shared = loaded.shared_bytes;
  auto const capture = capture_of(stream, "launch", where);
  current_device const device(w.device(), where);
  bool const waits = w.launches()->begin(memory, stream, capture,
                                         room_of(w, s, w.compute_units() - masked, fit, loaded.at_once), where);
  // Kernels start early behind a kernel only, and not behind an event
  bool const programmatic = s.programmatic && platform::has_pdl && w.ranks_on_device() == 1 && !waits;
  if (s.cluster == 1 && !programmatic)
    check_hip(hipLaunchKernel(kernel, dim3(unsigned(s.blocks)), dim3(unsigned(s.threads)), arguments,
                              std::size_t(shared), stream),
              "kernel launch", where);
  else
    check_hip(
        platform::launch_extended(kernel, s.cluster, programmatic, s.blocks, s.threads, shared, stream, arguments),
        "cudaLaunchKernelEx", where);
  if (w.ranks_on_device() > 1 && !capture) check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize", where);
}

}  // namespace fusewire
