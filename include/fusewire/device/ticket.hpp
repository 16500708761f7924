// Tickets: how the blocks of one rank find out which of them is the last, without waiting for each other.
#pragma once
#include <fusewire/device/flag.hpp>

namespace fusewire {

/// Publishes what the group has stored to this rank's other groups, and returns whether it is the last of `total`
/// groups to call it. What all of them stored is visible to the last one, and the ticket is 0 again. No group waits.
///
///   stores | every wave drains | group syncs | leader: ticket + 1, acq_rel --> the last of them? | group syncs
///
/// Every group releases before it is counted, and the last one's addition acquires what all earlier additions released:
/// they are read-modify-writes of one word.
/// Called by: every thread of each of the groups, all of one launch of this rank. All threads of a group get the same
/// answer.
/// Order: acq_rel, device; what was stored into peers is not covered.
/// Requires: *ticket is 0 before the first launch. No group calls it a second time before it knows, from the last one
/// or from the end of the launch, that all have called. `word`: in the block's shared memory, for this group alone; a
/// thread and a wave do not use it.
template <group Group>
[[nodiscard]] __device__ bool last_to_arrive(Group g, unsigned* ticket, unsigned total, int* word) {
  platform::drain_stores();
  g.sync();
  return detail::from_leader(g, word, [&] {
           bool const last = platform::atomic_fetch_add<order::acq_rel, scope::device>(ticket, 1u) + 1 == total;
           if (last) platform::atomic_store<order::relaxed, scope::device>(ticket, 0u);
           return int(last);
         }) != 0;
}

}  // namespace fusewire
