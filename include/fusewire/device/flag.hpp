// Signal and wait: how one rank tells another that memory is ready.
//
//   producer  store ... store | every wave drains | group meets | leader: release, system --> flag
//   consumer                       leader: poll relaxed, acquire once, system <-- flag | group meets | load ... load
//
// The drain matters: a barrier alone does not wait for the stores of the other waves on gfx942, and a leader that
// released before they had reached the L2 would publish a flag ahead of its data.
#pragma once
#include <cstdint>

#include <fusewire/core/group.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/device/atomic.hpp>
#include <fusewire/device/memory.hpp>

namespace fusewire {

using epoch_t = unsigned long long;  // never wraps: 2^64 launches

/// One flag per 128 bytes, so that no two share a cache line. `note` travels with the flag when its owner has something
/// to add.
struct alignas(128) flag {
  epoch_t value;
  std::uint64_t note[14];
  /// Of a channel's flag: where in the signal segment its slot's headers are; else 0. Only failures look.
  std::uint64_t headers;
};

/// What a launch is: its operator's name in 8 letters, its variant, and up to four extents.
inline constexpr int launch_words = 6;
/// What a header says that ranks compare: these words, and the number of blocks, or 0 where that may differ.
inline constexpr int header_words = launch_words + 1;

/// Who waited for what when a wait expired, or ended because another rank's had. Written by the waiting rank into its
/// own signal segment, read by the host.
struct wait_report {
  std::int32_t block, from;   // the waiting block; the rank that should have signalled, -1 if not known
  std::uint64_t flag_offset;  // bytes from the start of the signal segment
  epoch_t found, wanted;
  std::uint64_t launch[launch_words];  // which waited; all 0 if the flag is no channel's
};

/// Where a checked build (FUSEWIRE_CHECKED), or an operator that looks, found an index that does not exist, or a call
/// out of its turn.
enum class misuse : unsigned {
  none,
  inbox_rank,
  signal_rank,
  signal_flag,
  wait_rank,
  wait_flag,
  begin_again,
  end_again,
  page
};

/// At the start of every rank's signal segment. Only spin loops read it.
struct alignas(128) watch {
  /// 0, or 1 + the rank that gave up first: every wait of every rank then returns at once
  unsigned abandoned;
  unsigned reported;       // somebody writes `report`, or has
  unsigned too_late;       // what headers of this and later launches say is not why it was abandoned
  unsigned released;       // `report` is of a wait that had not expired when another rank gave up
  std::uint64_t limit_ns;  // a single wait may last this long
  wait_report report;
  unsigned disagreed;  // 0, or 1 + the rank whose launch differs from this rank's
  unsigned wrong;      // a misuse in this rank's kernels, the first that was found
  std::uint64_t theirs[header_words], ours[header_words];
  std::int32_t wrong_block, wrong_value, accepted;  // what was passed, and one more than the largest that is accepted
  std::int32_t wrong_at;                            // where it was found, if that is a place in a table
  /// Written last: `report` and `released` are valid, and a disagreement that explains them is noted
  unsigned complete;
  unsigned* alarm;  // a word in this rank's host memory: not 0 when check() has something to throw
};

namespace detail {

__device__ inline watch* watch_of(world_view const& w, int rank) { return reinterpret_cast<watch*>(w.signal[rank]); }

/// Tells this rank's host, which looks at its next call.
__device__ inline void raise_alarm(watch const* mine) {
  platform::atomic_store<order::relaxed, scope::system>(load(&mine->alarm), 1u);
}

/// Ends every wait on rank r. `expired`: because a wait has, and who waited compares headers.
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

/// Rank r has launched something else than this rank, as their headers say. Only the first to find that is heard.
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

/// What there is to say of the launch whose wait expired, before later launches overwrite it: what it is, and if a rank
/// has launched something else in the same epoch, that is why. A rank that has been released by somebody else's giving
/// up cannot be two launches further yet: a moment ago nobody had given up. Others can be, once somebody has
/// (`released`).
__device__ inline void note_launch(world_view const& w, std::uint64_t headers, epoch_t epoch, bool released) {
  watch* const mine = watch_of(w, w.rank);
  auto const* const of = reinterpret_cast<flag const*>(w.signal[w.rank] + headers);
#pragma unroll 1
  for (int i = 0; i < launch_words; ++i) mine->report.launch[i] = load(&of[w.rank].note[i]);
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

/// The wait for *f has expired: the first block of a rank to find that says so and ends all waits. `released`: somebody
/// else's has, and the first block of a rank to find that only says what it waited for, which may be the cause.
__device__ inline void give_up(world_view const& w, void const* f, std::uint64_t headers, epoch_t found, epoch_t wanted,
                               int from, bool released) {
  watch* const mine = watch_of(w, w.rank);
  unsigned expected = 0;
  if (!platform::atomic_compare_exchange<order::relaxed, scope::system>(&mine->reported, expected, 1u)) {
    if (!released) abandon_on(w, w.rank, true);  // who said so may not have come that far
    return;
  }
  mine->report = {platform::block_index(),
                  from,
                  std::uint64_t(static_cast<std::byte const*>(f) - w.signal[w.rank]),
                  found,
                  wanted,
                  {}};
  mine->released = released;
  if (headers != 0) note_launch(w, headers, wanted, released);
  platform::atomic_store<order::release, scope::system>(&mine->complete, 1u);
  if (!released) abandon(w, true);
}

/// State of one thread's bounded spin, made after its first failed poll. The time limit and the word that says that
/// another rank gave up are looked at on every 16th poll, because that costs another trip to memory.
class bounded_spin {
 public:
  bounded_spin() = default;
  __device__ explicit bounded_spin(world_view const& w, std::uint64_t grace_ns = 0)
      : watch_(watch_of(w, w.rank)), start_(platform::clock_ns()), limit_(watch_->limit_ns + grace_ns) {}

  /// After a failed poll: whether to poll again. Else somebody has given up, or give_up(false) does. give_up(true)
  /// says what a wait was for that somebody else ended; waits that had hardly begun, of launches behind an abandoned
  /// one, say nothing.
  template <class GiveUp>
  __device__ bool lasts(GiveUp give_up) {
    platform::backoff();
    if (++polls_ % 16 != 0) return true;
    bool const released = platform::atomic_load<order::relaxed, scope::system>(&watch_->abandoned) != 0;
    std::uint64_t const waited = platform::clock_ns() - start_;
    if (!released && waited <= limit_) return true;
    if (!released || waited > (limit_ / 16 < hardly_begun ? limit_ / 16 : hardly_begun)) give_up(released);
    raise_alarm(watch_);
    platform::drain_stores();  // the block can see that it was abandoned
    return false;
  }

 private:
  static constexpr std::uint64_t hardly_begun = 500'000'000;  // ns, or a sixteenth of the limit

  watch* watch_ = nullptr;
  std::uint64_t start_ = 0, limit_ = 0;
  unsigned polls_ = 0;
};

/// One thread polls until *f is `value` or the wait is given up.
__device__ inline void spin(world_view const& w, flag const* f, epoch_t value, int from) {
  epoch_t found = platform::atomic_load<order::relaxed, scope::system>(&f->value);
  if (found == value) return;
  bounded_spin p(w);
  do {
    if (!p.lasts([&](bool released) { give_up(w, f, load(&f->headers), found, value, from, released); })) return;
    found = platform::atomic_load<order::relaxed, scope::system>(&f->value);
  } while (found != value);
}

}  // namespace detail

/// Publishes everything the group has stored so far, then raises the flag to `value`.
/// Called by: every thread of the group. Order: release at scope S (system: any rank may wait; device: this rank's
/// blocks only).
template <scope S = scope::system, group Group>
__device__ void signal(Group g, flag* f, epoch_t value) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) platform::atomic_store<order::release, S>(&f->value, value);
}

/// As signal(), for `count` flags with one release: flag_at(i) is the i-th.
template <scope S = scope::system, group Group, class FlagAt>
__device__ void signal_all(Group g, int count, FlagAt flag_at, epoch_t value) {
  platform::drain_stores();
  g.sync();
  if (g.leader()) {
    platform::fence<order::release, S>();
    for (int i = 0; i < count; ++i) platform::atomic_store<order::relaxed, S>(&flag_at(i)->value, value);
  }
}

/// Returns when *f, a flag of this rank, is `value`; what its signaller published before is then visible to the whole
/// group.
/// Called by: every thread of the group. Order: acquire at system scope.
/// Fails: after the time limit (heap_options::wait_limit) it returns all the same, every other wait of all ranks does
/// too, and the host's check(), or next call, throws wait_timeout. What was waited for may then be anything: do not
/// take addresses from it. `from` is only for that report.
template <group Group>
__device__ void wait(Group g, world_view const& w, flag const* f, epoch_t value, int from = -1) {
  if (g.leader()) {
    detail::spin(w, f, value, from);
    platform::acquire_polled<scope::system>(&f->value);
  }
  g.sync();
}

/// As wait(), for `count` flags, polled side by side: flag_at(i) is the i-th, from_rank(i) its signaller.
template <group Group, class FlagAt, class FromRank>
__device__ void wait_all(Group g, world_view const& w, int count, FlagAt flag_at, epoch_t value, FromRank from_rank) {
  for (int i = g.rank(); i < count; i += g.size()) {
    flag const* const f = flag_at(i);
    detail::spin(w, f, value, from_rank(i));
    platform::acquire_polled<scope::system>(&f->value);
  }
  g.sync();
}

}  // namespace fusewire
