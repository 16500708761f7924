// Barriers inside a kernel: over one group of each rank, and over all blocks of all ranks.
#pragma once
#include <fusewire/device/flag.hpp>

namespace fusewire {

/// State of a barrier over one group of each rank. Allocate it with heap::allocate<barrier_state>(1); it starts as
/// zeros.
/// After a barrier that was abandoned, free it and allocate a new one.
struct barrier_state {
  /// By parity of the epoch, so that a fast rank's next barrier does not overwrite a flag that is still waited for
  flag from[2][max_ranks];
  epoch_t epoch;  // barriers that this rank has passed; read by this rank only
};

/// Returns when every rank has called it. What any rank's calling group stored before is then visible to every rank's
/// group.
/// Called by: every thread of one group per rank, the same number of times on every rank.
/// Order: release, then acquire, system.
template <group Group>
__device__ void barrier(Group g, world_view const& w, sym<barrier_state> state) {
  barrier_state* const mine = w.here(state);
  epoch_t const e = platform::atomic_load<order::relaxed, scope::device>(&mine->epoch) + 1;
  signal_all(g, w.size(), [&](int r) { return &w.on(r, state)->from[e & 1][w.rank()]; }, e);
  wait_all(g, w, w.size(), [&](int r) { return &mine->from[e & 1][r]; }, e, [](int r) { return r; });
  if (g.leader()) platform::atomic_store<order::relaxed, scope::device>(&mine->epoch, e);
  g.sync();
}

/// State of a barrier over all blocks. Allocate it with heap::allocate<grid_barrier_state>(1); it starts as zeros.
/// After a barrier that was abandoned, free it and allocate a new one.
struct grid_barrier_state {
  flag from[2][max_ranks];  // by parity of the epoch, as in barrier_state
  epoch_t epoch;            // barriers that all blocks of this rank have entered; read by this rank only
  unsigned came;            // blocks of this rank that have entered the current one; read by this rank only
};

/// Returns when every block of this launch has called it on every rank. What any of them stored before, in any rank's
/// memory, is then visible to all of them, and what any of them read before may be overwritten.
///
///   block    publishes itself --> came + 1 --the last of its rank--> a flag on every rank --> all blocks wait for all
///
/// Each block releases at system scope itself: what it stored into a peer may lie in the L2 of its own XCD of the
/// device, which the last block's release does not write back.
/// Reuse: every block reads the epoch before it counts itself. The last block of a rank to enter sets the epoch to e
/// before it raises a flag, so no block reads the epoch while it changes. A rank raises its flags of e + 2 only when
/// all its blocks have entered that barrier, hence when each of them has seen every rank's flag of e + 1. Every rank
/// raised that flag when all its blocks had left barrier e. So no flag is overwritten while it is waited for.
/// Deadlock: entering waits for nothing, and a block waits only after it has entered. All blocks of a launch are
/// resident (launch() checks it), so all of them enter if every rank makes the launch and nothing before the barrier
/// waits for what comes after it. A launch that waits for earlier work on its stream waits for an earlier launch, which
/// every rank has made, too.
/// Called by: every thread of every block, the same number of times on every rank; ranks may have different numbers of
/// blocks.
/// Order: release, then acquire, system.
/// Fails: as wait().
__device__ inline void barrier(block b, world_view const& w, sym<grid_barrier_state> state) {
  grid_barrier_state* const mine = w.here(state);
  epoch_t const e = platform::atomic_load<order::relaxed, scope::device>(&mine->epoch) + 1;
  platform::drain_stores();
  b.sync();
  if (b.leader() &&
      platform::atomic_fetch_add<order::acq_rel, scope::system>(&mine->came, 1u) + 1 == unsigned(b.count())) {
    platform::atomic_store<order::relaxed, scope::device>(&mine->came, 0u);
    platform::atomic_store<order::relaxed, scope::device>(&mine->epoch, e);
    signal_all(thread{}, w.size(), [&](int r) { return &w.on(r, state)->from[e & 1][w.rank()]; }, e);
  }
  wait_all(b, w, w.size(), [&](int r) { return &mine->from[e & 1][r]; }, e, [](int r) { return r; });
}

}  // namespace fusewire
