// What bounds a wait: the limit of a spin, and the report that a block leaves when its wait has ended without the flag.
#pragma once
#include <fusewire/core/world_view.hpp>
#include <fusewire/device/flag_layout.hpp>
#include <fusewire/device/memory.hpp>

namespace fusewire {

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
                                                                   unsigned(w.rank() + 1));
}

/// Ends every wait on every rank, so that all kernels run to their end with invalid results instead of spinning.
__device__ inline void abandon(world_view const& w, bool expired) {
  for (int r = 0; r < w.size(); ++r) abandon_on(w, r, expired);
  raise_alarm(watch_of(w, w.rank()));
}

/// Notes that rank r has launched something else than this rank, by their headers. Only the first such note of a rank
/// counts.
__device__ inline void note_disagreement(world_view const& w, int r, flag const* theirs, flag const* ours) {
  watch* const mine = watch_of(w, w.rank());
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
/// rank had timed out, so no rank can be two launches ahead. If another rank has timed out before (`released`), ranks
/// can be.
__device__ inline void note_launch(world_view const& w, std::uint64_t headers, epoch_t epoch, bool released) {
  watch* const mine = watch_of(w, w.rank());
  auto const* const of = reinterpret_cast<flag const*>(w.signal[w.rank()] + headers);
#pragma unroll 1
  for (int i = 0; i < launch_words; ++i) mine->launch[i] = load(&of[w.rank()].note[i]);
  if (released) return;
#pragma unroll 1
  for (int r = 0; r < w.size(); ++r) {
    if (platform::atomic_load<order::acquire, scope::system>(&of[r].value) != epoch) continue;
    bool equal = true;
#pragma unroll 1
    for (int i = 0; i < header_words; ++i) equal &= load(&of[r].note[i]) == load(&of[w.rank()].note[i]);
    if (!equal) note_disagreement(w, r, of + r, of + w.rank());
  }
}

/// Called when a wait for *f times out: reports what the block waited for, which may be the cause also if another
/// rank or block has timed out before (`released`). A wait that has expired ends those of this rank, whose block then
/// sees that it timed out, and those of all ranks when it has reported, the rank's first after a look at the headers.
/// So peers of a rank whose blocks go on without what they waited for are told: of the waits that expire on a rank, the
/// first that ends the others has reported, or another one of its place in `waits` has, and tells them.
__device__ inline void time_out(world_view const& w, void const* f, std::uint64_t headers, epoch_t found,
                                epoch_t wanted, int from, bool released) {
  watch* const mine = watch_of(w, w.rank());
  unsigned const place = unsigned(platform::block_index()) % max_wait_reports;
  wait_report& report = mine->waits[place];
  unsigned nobody = 0, none = 0;
  bool const claimed = platform::atomic_compare_exchange<order::relaxed, scope::system>(&report.claimed, nobody, 1u);
  bool const first =
      claimed && platform::atomic_compare_exchange<order::relaxed, scope::system>(&mine->reported, none, 1 + place);
  if (!released) abandon_on(w, w.rank(), true);
  if (!claimed) return;
  report.block = platform::block_index(), report.from = from;
  report.flag_offset = std::uint64_t(static_cast<std::byte const*>(f) - w.signal[w.rank()]);
  report.found = found, report.wanted = wanted, report.released = released;
  if (first && headers != 0) note_launch(w, headers, wanted, released);
  platform::atomic_store<order::release, scope::system>(&report.complete, 1u);
  if (!released) abandon(w, true);
}

/// State of one thread's bounded spin, made after its first failed poll. Only every 16th poll looks at the clock, and
/// at the word that says whether another rank timed out: that costs another round trip to memory.
class bounded_spin {
 public:
  bounded_spin() = default;
  __device__ explicit bounded_spin(world_view const& w, std::uint64_t grace_ns = 0)
      : watch_(watch_of(w, w.rank())), start_(platform::clock_ns()), grace_(grace_ns) {}

  /// Called after a failed poll: whether to poll again. Before it returns false it calls time_out(false) if the wait
  /// has expired. It calls time_out(true) if another rank timed out, to report what this thread waited for; but a wait
  /// that has hardly begun belongs to a launch behind an abandoned one, and reports nothing.
  template <class TimeOut>
  __device__ __forceinline__ bool lasts(TimeOut time_out) {
    platform::backoff();
    if (++polls_ % 16 != 0) return true;
    bool const released = platform::atomic_load<order::relaxed, scope::system>(&watch_->abandoned) != 0;
    std::uint64_t const limit = watch_->limit_ns + grace_, waited = platform::clock_ns() - start_;
    if (!released && waited <= limit) return true;
    if (!released || waited > (limit / 16 < hardly_begun ? limit / 16 : hardly_begun)) time_out(released);
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

}  // namespace detail

}  // namespace fusewire
