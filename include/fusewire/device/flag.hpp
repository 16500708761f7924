// Signal and wait: how one rank tells another that memory is ready.
//
//   producer  store ... store | every wave drains | group meets | leader: release, system --> flag
//   consumer                       leader: poll relaxed, acquire once, system <-- flag | group meets | load ... load
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
// reused too early, and then its data is gone. A wait for == is then given up, with a report that names both epochs; a
// wait for >= would go on with another launch's data.
#pragma once
#include <cstdint>

#include <fusewire/core/group.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/device/atomic.hpp>
#include <fusewire/device/memory.hpp>

namespace fusewire {

using epoch_t = unsigned long long;  // never wraps: 2^64 launches

/// One flag per 128 bytes, so that no two share a cache line. `note` travels with the flag when its signaller has
/// something to add.
struct alignas(128) flag {
  /// The epoch to which the flag was raised last.
  epoch_t value;
  /// Header flags: what the peer launched, and its own two words.
  std::uint64_t note[14];
  /// Of a channel's flag: where in the signal segment its slot's headers are; else 0. Only a failed wait reads it
  std::uint64_t headers;
};

/// What a launch is: its operator's name in 8 letters, its variant, and up to four extents
inline constexpr int launch_words = 6;
/// How many words of a header ranks compare: these, and the number of blocks, or 0 where that may differ
inline constexpr int header_words = launch_words + 1;

/// What a block waited for when its wait expired, or ended because another one had. Written by the block into its
/// rank's own signal segment, and read by the host.
struct wait_report {
  std::int32_t block, from;   // the waiting block; the rank that should have signalled, -1 if not known
  std::uint64_t flag_offset;  // bytes from the start of the signal segment
  epoch_t found, wanted;      // the epoch that the flag had, and the one that was waited for
  unsigned released;          // another rank, or another block, ended the wait before its own limit
  unsigned claimed;           // a thread writes the report, or has written it
  unsigned complete;          // written last: all of the report is valid
};
/// So many blocks of a rank are reported, one for each remainder of its index
inline constexpr unsigned max_wait_reports = 64;

/// Mistakes that a checked build (FUSEWIRE_CHECKED), or a check of an operator's own, finds: an index that does not
/// exist, or a call out of turn.
enum class misuse : unsigned {
  none,
  inbox_rank,
  signal_rank,
  signal_flag,
  wait_rank,
  wait_flag,
  begin_again,
  few_blocks,
  end_again,
  page,
  length,
  record_rank,
  record,
  record_word
};

/// What a wait asks for: this value, or this value or more.
enum class until { equal, at_least };

/// State of failed waits, at the start of every rank's signal segment. Only spin loops read it.
struct alignas(128) watch {
  /// 0, or 1 + the rank that gave up first; then every wait of every rank returns at once
  unsigned abandoned;
  unsigned reported;       // 0, or 1 + the place in `waits` of the first report
  unsigned too_late;       // headers of this and later launches do not explain why it was abandoned
  std::uint64_t limit_ns;  // a single wait may last this long
  /// The launch of the first report; all 0 if its flag belongs to no channel. Valid, as a disagreement that explains
  /// it, when that report is complete
  std::uint64_t launch[launch_words];
  unsigned disagreed;  // 0, or 1 + the rank whose launch differs from this rank's
  unsigned wrong;      // the first misuse that was found in this rank's kernels
  /// The headers that differ: the other rank's, and this rank's
  std::uint64_t theirs[header_words], ours[header_words];
  std::int32_t wrong_block, wrong_value, accepted;  // what was passed, and the end of the accepted range
  std::int32_t wrong_at;                            // where it was found, if that is a place in a table
  unsigned* alarm;                      // a word in this rank's host memory: not 0 when check() has something to throw
  wait_report waits[max_wait_reports];  // by the block's index modulo their number
};

namespace detail {

__device__ inline watch* watch_of(world_view const& w, int rank) { return reinterpret_cast<watch*>(w.signal[rank]); }

/// Tells this rank's host, which looks at its next call of the library.
__device__ inline void raise_alarm(watch const* mine) {
  platform::atomic_store<order::relaxed, scope::system>(load(&mine->alarm), 1u);
}

/// Ends every wait on rank r. `expired`: because a wait has expired, whose block compares headers.
__device__ inline void abandon_on(world_view const& w, int r, bool expired) {
  unsigned nobody = 0;
  if (expired) platform::atomic_store<order::relaxed, scope::system>(&watch_of(w, r)->too_late, 1u);
  platform::atomic_compare_exchange<order::relaxed, scope::system>(&watch_of(w, r)->abandoned, nobody,
                                                                   unsigned(w.rank + 1));
}

/// Ends every wait on every rank, so that all kernels run to their end with invalid results instead of spinning.
__device__ inline void abandon(world_view const& w, bool expired) {
  for (int r = 0; r < w.size; ++r) abandon_on(w, r, expired);
  raise_alarm(watch_of(w, w.rank));
}

/// Notes that rank r has launched something else than this rank, by their headers. Only the first such note of a rank
/// counts.
__device__ inline void note_disagreement(world_view const& w, int r, flag const* theirs, flag const* ours) {
  watch* const mine = watch_of(w, w.rank);
  unsigned expected = 0;
  if (!platform::atomic_compare_exchange<order::relaxed, scope::system>(&mine->disagreed, expected, unsigned(r + 1)))
    return;
#pragma unroll 1
  for (int i = 0; i < header_words; ++i) {
    mine->theirs[i] = load(&theirs->note[i]);
    mine->ours[i] = load(&ours->note[i]);
  }
}

/// Notes the launch whose wait has ended, before later launches overwrite its header. If a rank has launched something
/// else in the same epoch, that is the cause. It is looked for only where the wait has expired by itself: until then no
/// rank had given up, so no rank can be two launches ahead. Where another rank has given up before (`released`), ranks
/// can be.
__device__ inline void note_launch(world_view const& w, std::uint64_t headers, epoch_t epoch, bool released) {
  watch* const mine = watch_of(w, w.rank);
  auto const* const of = reinterpret_cast<flag const*>(w.signal[w.rank] + headers);
#pragma unroll 1
  for (int i = 0; i < launch_words; ++i) mine->launch[i] = load(&of[w.rank].note[i]);
  if (released) return;
#pragma unroll 1
  for (int r = 0; r < w.size; ++r) {
    if (platform::atomic_load<order::acquire, scope::system>(&of[r].value) != epoch) continue;
    bool equal = true;
#pragma unroll 1
    for (int i = 0; i < header_words; ++i) equal &= load(&of[r].note[i]) == load(&of[w.rank].note[i]);
    if (!equal) note_disagreement(w, r, of + r, of + w.rank);
  }
}

/// Called when a wait for *f ends in vain: reports what the block waited for, which may be the cause also if another
/// rank or block has given up before (`released`). A wait that has expired ends those of this rank, whose block then
/// sees that it gave up, and those of all ranks when it has reported, the rank's first after a look at the headers. So
/// peers of a rank whose blocks go on without what they waited for are told: of the waits that expire on a rank, the
/// first that ends the others has reported, or another one of its place in `waits` has, and tells them.
__device__ inline void give_up(world_view const& w, void const* f, std::uint64_t headers, epoch_t found, epoch_t wanted,
                               int from, bool released) {
  watch* const mine = watch_of(w, w.rank);
  unsigned const place = unsigned(platform::block_index()) % max_wait_reports;
  wait_report& report = mine->waits[place];
  unsigned nobody = 0, none = 0;
  bool const claimed = platform::atomic_compare_exchange<order::relaxed, scope::system>(&report.claimed, nobody, 1u);
  bool const first =
      claimed && platform::atomic_compare_exchange<order::relaxed, scope::system>(&mine->reported, none, 1 + place);
  if (!released) abandon_on(w, w.rank, true);
  if (!claimed) return;
  report.block = platform::block_index(), report.from = from;
  report.flag_offset = std::uint64_t(static_cast<std::byte const*>(f) - w.signal[w.rank]);
  report.found = found, report.wanted = wanted, report.released = released;
  if (first && headers != 0) note_launch(w, headers, wanted, released);
  platform::atomic_store<order::release, scope::system>(&report.complete, 1u);
  if (!released) abandon(w, true);
}

/// State of one thread's bounded spin, made after its first failed poll. Only every 16th poll looks at the clock, and
/// at the word that says whether another rank gave up: that costs another trip to memory.
class bounded_spin {
 public:
  bounded_spin() = default;
  __device__ explicit bounded_spin(world_view const& w, std::uint64_t grace_ns = 0)
      : watch_(watch_of(w, w.rank)), start_(platform::clock_ns()), grace_(grace_ns) {}

  /// Called after a failed poll: whether to poll again. Before it returns false it calls give_up(false) if the wait has
  /// expired. It calls give_up(true) if another rank gave up, to report what this thread waited for; but a wait that
  /// has hardly begun belongs to a launch behind an abandoned one, and reports nothing.
  template <class GiveUp>
  __device__ bool lasts(GiveUp give_up) {
    platform::backoff();
    if (++polls_ % 16 != 0) return true;
    bool const released = platform::atomic_load<order::relaxed, scope::system>(&watch_->abandoned) != 0;
    std::uint64_t const limit = watch_->limit_ns + grace_, waited = platform::clock_ns() - start_;
    if (!released && waited <= limit) return true;
    if (!released || waited > (limit / 16 < hardly_begun ? limit / 16 : hardly_begun)) give_up(released);
    raise_alarm(watch_);
    platform::drain_stores();  // the block can see that the launch was abandoned
    return false;
  }

 private:
  static constexpr std::uint64_t hardly_begun = 500'000'000;  // ns, or a sixteenth of the limit if that is less

  watch* watch_ = nullptr;
  std::uint64_t start_ = 0, grace_ = 0;  // ns
  unsigned polls_ = 0;
};

template <until U>
__device__ bool is_met(epoch_t found, epoch_t value) {
  return U == until::equal ? found == value : found >= value;
}

/// One thread polls until *f is `value` or the wait is given up. Returns whether it found the value. Inlined, as what
/// leads here is: a call behind a branch that is marked as unlikely would bring the kernel's arguments to scratch.
template <until U = until::equal>
__device__ __forceinline__ bool spin(world_view const& w, flag const* f, epoch_t value, int from) {
  epoch_t found = platform::atomic_load<order::relaxed, scope::system>(&f->value);
  if (is_met<U>(found, value)) return true;
  bounded_spin p(w);
  do {
    if (!p.lasts([&](bool released) { give_up(w, f, load(&f->headers), found, value, from, released); })) return false;
    found = platform::atomic_load<order::relaxed, scope::system>(&f->value);
  } while (!is_met<U>(found, value));
  return true;
}

/// Calls f() in the leader alone and returns its result to every thread of the group; the threads meet. `word`: in the
/// block's shared memory, for this group alone; a thread and a wave need none.
template <group Group, class F>
__device__ int from_leader(Group g, int* word, F const& f) {
  if constexpr (std::is_same_v<Group, thread>) {
    return f();
  } else if constexpr (std::is_same_v<Group, wave>) {
    int x = 0;
    if (g.leader()) x = f();
    g.sync();
    return platform::uniform(platform::shuffle(x, 0));
  } else {
    if (g.leader()) *word = f();
    g.sync();
    int const x = *word;
    g.sync();  // the next one may write it
    return std::is_same_v<Group, block> ? platform::uniform(x) : x;
  }
}
/// Whether `yes` holds in every thread of the group. All threads get the same answer; they meet. `word`: as for
/// from_leader().
template <group Group>
__device__ bool all_agree(Group g, int* word, bool yes) {
  g.sync();
  if constexpr (std::is_same_v<Group, thread>) {
    return yes;
  } else if constexpr (std::is_same_v<Group, wave>) {
    return platform::first_lane_of(!yes) == 0;
  } else {
    if (g.leader()) *word = 1;
    g.sync();
    if (platform::opaque(yes) == 0) *word = 0;  // opaque as in leader()
    g.sync();
    int const all = *word;
    g.sync();
    return (std::is_same_v<Group, block> ? platform::uniform(all) : all) != 0;
  }
}

}  // namespace detail

/// Publishes everything that the group has stored so far, then raises the flag to `value`.
/// Called by: every thread of the group.
/// Order: release at scope S. With system any rank may wait; with device only this rank's blocks.
template <scope S = scope::system, group Group>
__device__ void signal(Group g, flag* f, epoch_t value) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) platform::atomic_store<order::release, S>(&f->value, value);
}

/// As signal(), for `count` flags with one release. flag_at(i) is flag i.
template <scope S = scope::system, group Group, class FlagAt>
__device__ void signal_all(Group g, int count, FlagAt flag_at, epoch_t value) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) {
    platform::fence<order::release, S>();
    for (int i = 0; i < count; ++i) platform::atomic_store<order::relaxed, S>(&flag_at(i)->value, value);
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

// Waits that return whether the flag came: false, or -1, if the wait was given up. All threads of the group get the
// same answer, so they may branch on it around collective calls. For a block, that costs a word of shared memory and a
// second meeting. wait() does not have that cost, so these have names of their own. `word`: in the block's shared
// memory, for this group alone; a thread and a wave do not use it.

/// As wait(); returns whether the flag came.
template <until U = until::equal, group Group>
[[nodiscard]] __device__ bool try_wait(Group g, world_view const& w, flag const* f, epoch_t value, int* word,
                                       int from = -1) {
  return detail::from_leader(g, word, [&] {
           bool const met = detail::spin<U>(w, f, value, from);
           platform::acquire_polled<scope::system>(&f->value);
           return int(met);
         }) != 0;
}

/// As wait_all(); returns whether all flags came.
template <until U = until::equal, group Group, class FlagAt, class FromRank>
[[nodiscard]] __device__ bool try_wait_all(Group g, world_view const& w, int count, FlagAt flag_at, epoch_t value,
                                           FromRank from_rank, int* word) {
  bool met = true;
  for (int i = g.rank(); i < count; i += g.size()) {
    flag const* const f = flag_at(i);
    met &= detail::spin<U>(w, f, value, from_rank(i));
    platform::acquire_polled<scope::system>(&f->value);
  }
  return detail::all_agree(g, word, met);
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
      if (is_met<U>(found, a.value)) return i;
      if (missing.f == nullptr) missing = a, found_missing = found;
    }
    if (missing.f == nullptr) return -1;
    if (first_look) p = bounded_spin(w);
    if (!p.lasts([&](bool released) {
          give_up(w, missing.f, load(&missing.f->headers), found_missing, missing.value, missing.from, released);
        }))
      return -1;
  }
}
}  // namespace detail

/// Returns when one of `count` flags is up, with the lowest i for which awaited_at(i) is. What its signaller published
/// is then visible to the whole group; nothing is known of the other flags. A flag that was raised stays raised:
/// replace it by null when it has been dealt with.
/// Called by: every thread of the group; the leader alone polls, one flag after the other.
/// Fails: as wait(), and then returns -1; the report names the first of the flags. Also returns -1, at once, if all
/// flags are null.
template <until U = until::equal, group Group, class AwaitedAt>
[[nodiscard]] __device__ int wait_any(Group g, world_view const& w, int count, AwaitedAt awaited_at, int* word) {
  return detail::from_leader(g, word, [&] {
    auto const* polled = reinterpret_cast<flag const*>(w.signal[w.rank]);  // valid memory, if no flag is polled
    int const which = detail::spin_any<U>(w, count, awaited_at, polled);
    platform::acquire_polled<scope::system>(&polled->value);
    return which;
  });
}

}  // namespace fusewire
