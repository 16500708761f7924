// Tests once, when a heap is made, whether what a peer stores into a rank's signal segment arrives where the rank polls
// it.
//
//   rank r, lane p    into word r of p: store 1 | sees p's 1: store 2 | sees p's 2: add 1
//                     | sees p's 3: flags and atomics of p arrive
//
// The second store meets a line that its reader has read before: there a cache shows that should not be in use. Every
// rank takes its own step before it waits for another rank's, so the lanes of the wave can run in step. Every wait has
// a limit.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>

#include <fusewire/ranks/thread_state.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire::detail {

/// What one rank tells another, and what the other has seen of it. One line each.
struct alignas(128) trial {
  unsigned long long word;
  unsigned long long seen;
};
inline constexpr unsigned long long last_trial = 3;

/// One wave, with a lane per rank. `trials` is the offset of max_ranks of them in every signal segment; they start as
/// zeros. `seen` of each becomes the last step that arrived.
template <class = void>
__global__ void try_flags(world_view w, std::uint64_t trials, std::uint64_t limit_ns) {
  int const peer = platform::thread_index();
  if (peer >= w.size()) return;
  trial* const there = reinterpret_cast<trial*>(w.signal[peer] + trials) + w.rank();
  trial* const here = reinterpret_cast<trial*>(w.signal[w.rank()] + trials) + peer;
  std::uint64_t const start = platform::clock_ns();
  unsigned long long seen = 0;
  platform::atomic_store<order::relaxed, scope::system>(&there->word, 1ull);
  for (unsigned long long step = 1; step <= last_trial; ++step) {
    while ((seen = platform::atomic_load<order::relaxed, scope::system>(&here->word)) < step &&
           platform::clock_ns() - start <= limit_ns)
      platform::backoff();
    if (step == 1) platform::atomic_store<order::relaxed, scope::system>(&there->word, 2ull);
    if (step == 2) (void)platform::atomic_fetch_add<order::relaxed, scope::system>(&there->word, 1ull);
  }
  platform::atomic_store<order::relaxed, scope::system>(&here->seen, seen);
}

/// Host side of the trial.
template <bool Tries>
struct flag_trial {
  /// Loads the kernel. Called before the first rank waits for another in it.
  static void load(std::source_location where) {
    hipFuncAttributes a;
    check_hip(hipFuncGetAttributes(&a, reinterpret_cast<void const*>(&try_flags<>)), "hipFuncGetAttributes", where);
  }
  /// Collective.
  /// Requires: all ranks have loaded the kernel and zeroed their `trials`.
  /// Fails: runtime_failure on every rank. It names the pair of ranks between which the least arrived, the first one of
  /// several.
  static void run(world& w, world_view const& view, std::uint64_t trials, std::chrono::nanoseconds limit,
                  std::source_location where) {
    check_hip(detail::start_kernel(&try_flags<>, 1, max_ranks, 0, w.stream(), view, trials,
                                   static_cast<std::uint64_t>(limit.count())),
              "kernel launch", where);
    std::array<trial, max_ranks> found{};
    check_hip(
        hipMemcpyAsync(found.data(), view.signal[w.rank()] + trials, sizeof found, hipMemcpyDeviceToHost, w.stream()),
        "hipMemcpyAsync(trials)", where);
    check_hip(hipStreamSynchronize(w.stream()), "hipStreamSynchronize", where);
    std::array<unsigned char, max_ranks> seen{};
    for (std::size_t i = 0; i < found.size(); ++i) seen[i] = static_cast<unsigned char>(found[i].seen);
    auto const all = w.exchange().all_gather(seen);
    int reader = -1, writer = -1;
    unsigned least = last_trial;
    for (int r = 0; r < w.size(); ++r)
      for (int p = 0; p < w.size(); ++p)
        if (unsigned const n = all[std::size_t(r)][std::size_t(p)]; n < least) least = n, reader = r, writer = p;
    if (reader < 0) return;
    constexpr char const* saw[] = {"nothing of what", "the first store, but not the second, that",
                                   "the stores, but not the atomic addition, that"};
    throw runtime_failure(
        text("heap: rank ", reader, " polled its signal segment for ", limit.count() / 1000000, " ms and saw ",
             saw[least], " rank ", writer, " made there. Either that segment is cached where it must not be (",
             w.in_one_process(reader, writer)
                 ? "hipDeviceMallocUncached had no effect"
                 : "through IPC: hipIpcOpenMemHandle did not map it as hipDeviceMallocUncached allocated it",
             "), or kernels of these ranks do not run at the same time (a profiler or a setting that runs kernels one "
             "after the other)  [",
             where.file_name(), ":", where.line(), "]"));
  }
};

/// For a platform that needs no test: it does nothing, and the kernel is not compiled.
template <>
struct flag_trial<false> {
  static void load(std::source_location) {}
  static void run(world&, world_view const&, std::uint64_t, std::chrono::nanoseconds, std::source_location) {}
};

}  // namespace fusewire::detail
