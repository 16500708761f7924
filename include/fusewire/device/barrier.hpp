// A barrier over all ranks, inside a kernel.
#pragma once
#include <fusewire/device/flag.hpp>

namespace fusewire {

/// Allocate with heap::allocate<barrier_state>(1); starts all zero. After a barrier that was abandoned, free it and
/// allocate anew.
struct barrier_state {
  /// By parity of the epoch, so that a fast rank's next barrier cannot overwrite a flag still waited for
  flag from[2][max_ranks];
  epoch_t epoch;  // barriers that this rank has passed; local
};

/// Returns when every rank has called it; what any rank's calling group stored before is then visible to every rank's
/// group.
/// Called by: every thread of one group per rank; the same number of times on every rank. Order: release, then acquire,
/// system.
template <group Group>
__device__ void barrier(Group g, world_view const& w, sym<barrier_state> state) {
  barrier_state* const mine = w.here(state);
  epoch_t const e = platform::atomic_load<order::relaxed, scope::device>(&mine->epoch) + 1;
  signal_all(g, w.size, [&](int r) { return &w.on(r, state)->from[e & 1][w.rank]; }, e);
  wait_all(g, w, w.size, [&](int r) { return &mine->from[e & 1][r]; }, e, [](int r) { return r; });
  if (g.leader()) platform::atomic_store<order::relaxed, scope::device>(&mine->epoch, e);
  g.sync();
}

}  // namespace fusewire
