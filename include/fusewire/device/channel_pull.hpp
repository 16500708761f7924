// Pulls inside a launch of a channel: when a peer's memory may be read, and when the peer may go on.
#pragma once
#include <fusewire/device/channel_layout.hpp>

namespace fusewire {

/// Reads of peers' own memory, between the peer's header and an acknowledgement.
class channel_pull : public detail::launch_place {
 public:
  /// The pulls of launch e.
  __device__ explicit channel_pull(detail::launch_place const& e) : launch_place(e) {}

  /// Waits until `source` has begun this launch. If it began with begin_readable(), this rank can then read what the
  /// stream of `source` had written into the memory of `source`. What an earlier kernel stored into a peer's memory is
  /// not: the kernel that stores it must signal it. The answer is false if `source` has not begun, or has launched
  /// something else: neither its words nor memory that they lead to must be used then. Each thread looks for itself,
  /// and threads may get different answers if the launch is abandoned at this moment. So all of them must go on to the
  /// same calls, acknowledge() among them, whatever the answer.
  /// Called by: every thread of the group.
  template <group Group>
  [[nodiscard]] __device__ bool wait_begun(Group g, int source) const {
    flag const* const f = header_flag(c_->world.rank(), source);
    fusewire::wait(g, c_->world, f, number(), source);
    return load(&f->value) == number() && says_the_same(f);
  }
  /// Word i of `source`'s launch_header::mine.
  /// Requires: wait_begun(g, source) was called; the word is one of this launch only if that returned true. After an
  /// abandoned launch `source` may be ahead and change its words at any time: read each once, and check that what it
  /// leads to exists.
  __device__ std::uint64_t peer_word(int source, int i) const {
    return load(&header_flag(c_->world.rank(), source)->note[header_words + i]);
  }

  /// One of `total` items of work on `source`'s memory is done. The last one tells `source`, which waits for that in
  /// wait_acknowledged().
  /// Called by: every thread of the group that did the item.
  template <group Group>
  __device__ void acknowledge(Group g, int source, unsigned total) const {
    platform::drain_stores();
    g.sync();
    if (!g.leader()) return;
    unsigned* const arrived = &c_->world.here(c_->state)->arrived[source];
    if (platform::atomic_fetch_add<order::acq_rel, scope::device>(arrived, 1u) + 1 != total) return;
    platform::atomic_store<order::relaxed, scope::device>(arrived, 0u);
    fusewire::signal(thread{}, acknowledgement_flag(source, c_->world.rank()), number());
  }
  /// Tells `source` that this rank has no work on its memory in this launch. Called by: every thread of a group.
  template <group Group>
  __device__ void acknowledge_nothing(Group g, int source) const {
    if (g.leader()) fusewire::signal(thread{}, acknowledgement_flag(source, c_->world.rank()), number());
  }
  /// Returns when every rank is done with this rank's memory. Called by: every thread of one group.
  template <group Group>
  __device__ void wait_acknowledged(Group g) const {
    wait_all(
        g, c_->world, c_->world.size(), [&](int r) { return acknowledgement_flag(c_->world.rank(), r); }, number(),
        [](int r) { return r; });
  }
};

}  // namespace fusewire
