// What two builds must have in common to share memory: where things lie in it. Ranks compare the hash when they
// connect.
#pragma once
#include <cstddef>
#include <cstdint>

#include <fusewire/device/barrier.hpp>
#include <fusewire/device/channel_view.hpp>
#include <fusewire/device/ll.hpp>
#include <fusewire/ranks/place.hpp>
#include <fusewire/version.hpp>

namespace fusewire::detail {

/// Hash of sizes, of offsets within structures, and of a channel's rows of flags in two launches; equal in builds that
/// agree. It does not cover what an operator lays out in an inbox, but it covers the version.
constexpr std::uint64_t hash_of_layout() {
  std::uint64_t h = 0xcbf29ce484222325;  // FNV-1a, by words
  auto const mix = [&](auto... values) { ((h = (h ^ std::uint64_t(values)) * 0x100000001b3, h ^= h >> 32), ...); };
  mix(FUSEWIRE_VERSION, checked, max_ranks, platform::max_xcds, launch_words, header_words);
  mix(sizeof(flag), offsetof(flag, note), offsetof(flag, headers), sizeof(barrier_state),
      offsetof(barrier_state, epoch), sizeof(grid_barrier_state), offsetof(grid_barrier_state, epoch),
      sizeof(ll_word<>));
  mix(sizeof(watch), offsetof(watch, abandoned), offsetof(watch, reported), offsetof(watch, too_late),
      offsetof(watch, limit_ns));
  mix(offsetof(watch, launch), offsetof(watch, disagreed), offsetof(watch, theirs), offsetof(watch, waits),
      sizeof(wait_report), offsetof(wait_report, claimed), offsetof(wait_report, complete));
  mix(sizeof(channel_state), sizeof(launch_header), sizeof(place), sizeof(hipIpcMemHandle_t));
  for (epoch_t e : {0, 1}) mix(slot_of(e), header_row(e), acknowledgement_row(e), data_row(e, 0), data_row(e, 1));
  return h;
}
inline constexpr std::uint64_t layout_hash = hash_of_layout();

}  // namespace fusewire::detail
