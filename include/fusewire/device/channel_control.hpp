// How a launch of a channel ends: the credit of all ranks, the ticket of the blocks, and results of a failed launch.
#pragma once
#include <fusewire/device/channel_layout.hpp>

namespace fusewire {

/// The parts of end(), for kernels in which some threads have time before the others; and the state after a failed
/// launch.
class channel_control : public detail::launch_place {
 public:
  /// The control of launch e.
  __device__ explicit channel_control(detail::launch_place const& e) : launch_place(e) {}

  /// Waits for the header of every rank, and compares the headers. Called by: every thread of one group of block 0,
  /// once.
  template <group Group>
  __device__ __forceinline__ void collect_credit(Group g) const {
    wait_all(
        g, c_->world, c_->world.size(), [&](int r) { return header_flag(c_->world.rank(), r); }, number(),
        [](int r) { return r; });
    for (int r = g.rank(); r < c_->world.size(); r += g.size()) {
      flag* const f = header_flag(c_->world.rank(), r);
      unsigned* const too_late = &detail::watch_of(c_->world, c_->world.rank())->too_late;
      if (load(&f->value) != number()) {  // abandoned; no later launch may be named instead of this one
        platform::atomic_store<order::relaxed, scope::system>(too_late, 1u);
        continue;
      }
      if (says_the_same(f) || load(too_late) != 0) continue;
      detail::note_disagreement(c_->world, r, f, header_flag(c_->world.rank(), c_->world.rank()));
      detail::abandon(c_->world, false);
    }
  }
  /// Ends the launch for the block. Called by: every thread of every block, last of all.
  __device__ __forceinline__ void finish_exit(block b) const {
    b.sync();
    if (b.leader()) finish_exit(b, arrive_exit());
  }
  /// finish_exit() split in two, so that the ticket's round trip to memory overlaps other work. Not for kernels that
  /// use next() or last_block(). The last block to arrive sets the epoch to this launch's: no block reads it any more.
  /// Called by: one thread of every block. It calls arrive_exit() when all threads of the block that have called
  /// begin() have the epoch, and finish_exit() with arrive_exit()'s result at any time after that.
  __device__ unsigned arrive_exit() const {
    if constexpr (detail::checked)
      if (platform::atomic_load<order::acquire, scope::device>(&c_->world.here(c_->state)->epoch) >= number())
        detail::note_misuse(c_->world, misuse::end_again, int(number()), 0);
    return platform::take_ticket(&c_->world.here(c_->state)->ticket);
  }
  /// The second half; `exits_before` is what arrive_exit() has returned to a thread of this block: how many blocks
  /// arrived before it.
  __device__ __forceinline__ void finish_exit(block b, unsigned exits_before) const {
    if (exits_before != unsigned(b.count()) - 1) return;
    channel_state* const s = c_->world.here(c_->state);
    platform::atomic_store<order::relaxed, scope::device>(&s->ticket, 0u);
    for (unsigned& next : s->next) platform::atomic_store<order::relaxed, scope::device>(&next, 0u);
    platform::atomic_store<order::relaxed, scope::device>(&s->epoch, number());
  }

  /// Where in the signal segment this launch's headers are, for a wait's report.
  __device__ std::uint64_t headers() const {
    return c_->flags.offset + detail::slot_of(number()) * std::uint64_t(2 * c_->world.size()) * sizeof(flag);
  }

  /// channel_options::poison.
  __device__ bool fills_nan() const { return c_->poison; }
  /// Whether this block should store NaN as the results that it computes from here on, or from what it has waited for:
  /// channel_options::poison is set, and a wait of some rank timed out. If it is set, the call costs a round trip to
  /// memory.
  __device__ bool should_fill_nan() const {
    if (!fills_nan()) return false;
    // The address is computed again for every call: mainloops have no registers to keep it
    int const rank = platform::uniform(platform::opaque(c_->world.rank()));
    return platform::atomic_load<order::relaxed, scope::system>(&detail::watch_of(c_->world, rank)->abandoned) != 0;
  }
};

}  // namespace fusewire
