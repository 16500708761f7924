// Signal and wait: how one rank tells another that memory is ready.
//
//   producer  store ... store | every wave drains | group syncs | leader: release, system --> flag
//   consumer                       leader: poll relaxed, acquire once, system <-- flag | group syncs | load ... load
//
// The drain matters: on gfx942 a barrier alone does not wait for the stores of the other waves. A leader that released
// before these had reached the L2 would publish a flag ahead of its data.
//
// What a flag may say, and what a wait may ask for:
//
//   once      signal(v), wait for == v     raised again only when its waiter has seen it. A channel's flags are of this
//                                          kind: each is raised to the launch's epoch, and a wait asks for exactly that
//   steps     signal(v) with growing v,    one signaller. A waiter that finds a later step has all earlier ones: their
//             wait for >= v                signaller released them one after the other. What step v announced must
//                                          therefore stay there until its reader has said that it is read. Values that
//                                          grow from launch to launch as well, as number() * steps + step do, need no
//                                          reset
//   a count   signal_add(n), wait for >=   any number of signallers. Their additions release one after the other: each
//                                          is a read-modify-write, so a waiter that acquires a sum has what all its
//                                          parts released. A sum does not say whose parts it consists of: while a
//                                          launch's sum is waited for and incomplete, no rank may add for a later
//                                          launch. A rank is at most one launch ahead, so two flags, by parity of the
//                                          epoch, are enough
//
// Why channels ask for ==, although >= would do: a flag of a slot exceeds what its waiter asks for only if the slot was
// reused too early, and then its data is gone. A wait for == then times out, with a report that names both epochs; a
// wait for >= would go on with another launch's data.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/device/watchdog.hpp>

namespace fusewire {

/// Publishes everything that the group has stored so far, then raises the flag to `value`.
/// Called by: every thread of the group.
/// Order: release at scope S. With system any rank may wait; with device only this rank's blocks.
template <scope S = scope::system, group Group>
__device__ void signal(Group g, flag* f, epoch_t value) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) platform::atomic_store<order::release, S>(&f->value, value);
}

/// As signal(), for `count` flags, which as many threads raise side by side: a wave's release is one instruction, and
/// addresses of peers come from memory. flag_at(i) is flag i.
template <scope S = scope::system, group Group, class FlagAt>
__device__ void signal_all(Group g, int count, FlagAt flag_at, epoch_t value) {
  platform::drain_stores();
  g.sync();
  if (g.rank() < count) {
    platform::fence<order::release, S>();
    for (int i = g.rank(); i < count; i += g.size())
      platform::atomic_store<order::relaxed, S>(&flag_at(i)->value, value);
  }
}

/// Publishes what the group has stored so far, then adds n to the flag. For a waiter that waits for several signallers.
/// Called by: every thread of the group. Order: as signal().
/// Requires: what "a count" above says.
template <scope S = scope::system, group Group>
__device__ void signal_add(Group g, flag* f, epoch_t n = 1) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) platform::atomic_fetch_add<order::release, S>(&f->value, n);
}

/// The first half of a signal, for words of a kernel's own. A thread that observes a word which the leader stores
/// afterwards (store(), atomic_ref, any order) sees what the group has stored so far.
/// Called by: every thread of the group. Order: release at scope S, in the leader.
template <scope S = scope::system, group Group>
__device__ void publish(Group g) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) platform::fence<order::release, S>();
}
/// The second half of a wait. When the leader has found a word that was stored after publish(), the whole group sees
/// what was published.
/// Called by: every thread of the group. Order: acquire at scope S.
template <scope S = scope::system, group Group>
__device__ void observe(Group g) {
  if (g.leader()) platform::fence<order::acquire, S>();
  g.sync();
}

/// What a wait asks for: this value, or this value or more.
enum class until { equal, at_least };

namespace detail {

template <until U>
__device__ bool is_reached(epoch_t found, epoch_t value) {
  return U == until::equal ? found == value : found >= value;
}

/// One thread polls until *f is `value` or the wait times out. Returns whether it found the value. Inlined, as what
/// leads here is: a call behind a branch that is marked as unlikely would bring the kernel's arguments to scratch.
template <until U = until::equal>
__device__ __forceinline__ bool spin(world_view const& w, flag const* f, epoch_t value, int from) {
  epoch_t found = platform::atomic_load<order::relaxed, scope::system>(&f->value);
  if (is_reached<U>(found, value)) return true;
  bounded_spin p(w);
  do {
    if (!p.lasts([&](bool released) { time_out(w, f, load(&f->headers), found, value, from, released); })) return false;
    found = platform::atomic_load<order::relaxed, scope::system>(&f->value);
  } while (!is_reached<U>(found, value));
  return true;
}

}  // namespace detail

/// Returns when *f, a flag of this rank, is `value` (or as U says). What its signaller published before is then visible
/// to the whole group.
/// Called by: every thread of the group. Order: acquire at system scope.
/// Fails: after the time limit (heap_options::wait_limit) it returns all the same, and so does every other wait of all
/// ranks. The host's check(), or its next call, then throws wait_timeout. The data that was waited for may be anything
/// then: do not take addresses from it. `from` is the signaller, for that report only.
template <until U = until::equal, group Group>
__device__ void wait(Group g, world_view const& w, flag const* f, epoch_t value, int from = -1) {
  if (g.leader()) {
    detail::spin<U>(w, f, value, from);
    platform::acquire_polled<scope::system>(&f->value);
  }
  g.sync();
}

/// As wait(), for `count` flags that are polled side by side. flag_at(i) is flag i, from_rank(i) its signaller.
template <until U = until::equal, group Group, class FlagAt, class FromRank>
__device__ __forceinline__ void wait_all(Group g, world_view const& w, int count, FlagAt flag_at, epoch_t value,
                                         FromRank from_rank) {
  for (int i = g.rank(); i < count; i += g.size()) {
    flag const* const f = flag_at(i);
    detail::spin<U>(w, f, value, from_rank(i));
    platform::acquire_polled<scope::system>(&f->value);
  }
  g.sync();
}

// Waits that return whether the flag came: false, or -1, if the wait timed out. All threads of the group get the
// same answer, so they may branch on it around collective calls. For a block, that costs a word of shared memory and a
// second barrier. wait() does not have that cost, so these have their own names. `word`: in the block's shared
// memory, for this group alone; a thread and a wave do not use it.

/// As wait(); returns whether the flag came.
template <until U = until::equal, group Group>
[[nodiscard]] __device__ bool try_wait(Group g, world_view const& w, flag const* f, epoch_t value, int* word,
                                       int from = -1) {
  return detail::from_leader(g, word, [&] {
           bool const reached = detail::spin<U>(w, f, value, from);
           platform::acquire_polled<scope::system>(&f->value);
           return int(reached);
         }) != 0;
}

/// As wait_all(); returns whether all flags came.
template <until U = until::equal, group Group, class FlagAt, class FromRank>
[[nodiscard]] __device__ bool try_wait_all(Group g, world_view const& w, int count, FlagAt flag_at, epoch_t value,
                                           FromRank from_rank, int* word) {
  bool reached = true;
  for (int i = g.rank(); i < count; i += g.size()) {
    flag const* const f = flag_at(i);
    reached &= detail::spin<U>(w, f, value, from_rank(i));
    platform::acquire_polled<scope::system>(&f->value);
  }
  return detail::all_agree(g, word, reached);
}

/// A flag that is waited for, and its signaller for the report; if f is null, no flag.
struct awaited {
  /// A flag of this rank, or null
  flag const* f = nullptr;
  /// The value that is waited for
  epoch_t value = 0;
  /// The rank that raises it, for reports; -1 if not known
  int from = -1;
};

namespace detail {
/// One thread polls until one of the flags is up. Returns its index, or -1. `polled` becomes that flag, or one that was
/// polled and not up.
template <until U, class AwaitedAt>
__device__ int spin_any(world_view const& w, int count, AwaitedAt const& awaited_at, flag const*& polled) {
  bounded_spin p;
  for (bool first_look = true;; first_look = false) {
    awaited missing;
    epoch_t found_missing = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      awaited const a = awaited_at(i);
      if (a.f == nullptr) continue;
      epoch_t const found = platform::atomic_load<order::relaxed, scope::system>(&a.f->value);
      polled = a.f;
      if (is_reached<U>(found, a.value)) return i;
      if (missing.f == nullptr) missing = a, found_missing = found;
    }
    if (missing.f == nullptr) return -1;
    if (first_look) p = bounded_spin(w);
    if (!p.lasts([&](bool released) {
          time_out(w, missing.f, load(&missing.f->headers), found_missing, missing.value, missing.from, released);
        }))
      return -1;
  }
}
}  // namespace detail

/// Returns when one of `count` flags is up, with the lowest i for which awaited_at(i) is. What its signaller published
/// is then visible to the whole group; nothing is known of the other flags. A flag that was raised stays raised:
/// replace it by null when it has been dealt with.
/// Called by: every thread of the group; the leader alone polls, one flag after the other.
/// Fails: as wait(), and then returns -1; the report names the first of the flags. Also returns -1, immediately, if all
/// flags are null.
template <until U = until::equal, group Group, class AwaitedAt>
[[nodiscard]] __device__ int wait_any(Group g, world_view const& w, int count, AwaitedAt awaited_at, int* word) {
  return detail::from_leader(g, word, [&] {
    auto const* polled = reinterpret_cast<flag const*>(w.signal[w.rank()]);  // valid memory, if no flag is polled
    int const which = detail::spin_any<U>(w, count, awaited_at, polled);
    platform::acquire_polled<scope::system>(&polled->value);
    return which;
  });
}

}  // namespace fusewire
