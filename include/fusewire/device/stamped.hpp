// Packs a value and its epoch into one 8-byte word, so that a reader that sees the epoch has the value, without a flag,
// a release or a fence.
//
//   producer  (x, epoch) --one relaxed store of 8 bytes--> word
//   consumer                                               polls it, relaxed: the epoch? then x was stored with it
//
// 8 bytes at a multiple of 8 are written and read as a whole on either architecture, and nothing else is ordered by
// them. For small payloads: they take twice the bytes, and arrive as fast as a flag that has nothing to publish.
// The stamp is half of the epoch with its lowest bit set, so that memory that nobody has written holds no launch's. Two
// rules for users: a word is written by launches of one parity only (a slot's), and it is not looked at 2^32 launches
// after it was written: words that launches leave out are written anew from time to time.
#pragma once
#include <fusewire/device/channel_view.hpp>

namespace fusewire {

/// Lives in the signal segment, because it is polled. Zero at first.
struct alignas(8) stamped {
  std::uint64_t word;  // low half: the stamp; high half: a float
};

namespace detail {
__device__ constexpr std::uint32_t stamp_of(epoch_t epoch) { return std::uint32_t(epoch) | 1; }
}  // namespace detail

/// Order: relaxed, system.
__device__ inline void store_stamped(stamped* p, float x, epoch_t epoch) {
  platform::atomic_store<order::relaxed, scope::system>(
      &p->word, std::uint64_t(__float_as_uint(x)) << 32 | detail::stamp_of(epoch));
}

/// One thread's looks at words of this launch, until it has seen all in one go:
///   do { ... read(p, source) ... } while (read.again());
class stamped_reader {
 public:
  /// `grace_ns`: extra time beyond the limit of a wait, for words that a peer sends only after its own wait. The peer
  /// then times out first and names the real culprit.
  __device__ stamped_reader(channel_epoch const& e, world_view const& w, std::uint64_t grace_ns = 0)
      : e_(e), w_(w), grace_ns_(grace_ns) {}

  /// What `source` has stored; anything while again() has yet to say otherwise.
  __device__ float operator()(stamped const* p, int source) {
    std::uint64_t const word = platform::atomic_load<order::relaxed, scope::system>(&p->word);
    if (std::uint32_t(word) != detail::stamp_of(e_.number())) {
      missing_ = true;
      word_ = p;
      found_ = std::uint32_t(word);
      source_ = source;
    }
    return __uint_as_float(std::uint32_t(word >> 32));
  }

  /// Whether a word was missing, and all must be read again.
  /// Fails: as wait(); gave_up() says so. What was read is anything then, and must not be sent on with a stamp.
  __device__ bool again() {
    if (!missing_) return false;
    missing_ = false;
    if (!waits_) spin_ = detail::bounded_spin(w_, grace_ns_);
    waits_ = true;
    gave_up_ = !spin_.lasts([&](bool released) {
      // The latest with this stamp and of this parity
      epoch_t const found = found_ == 0 ? 0 : e_.number() - (detail::stamp_of(e_.number()) - found_);
      detail::give_up(w_, word_, e_.headers(), found, e_.number(), source_, released);
    });
    return !gave_up_;
  }

  __device__ bool gave_up() const { return gave_up_; }

 private:
  channel_epoch e_;
  world_view const& w_;
  std::uint64_t grace_ns_;
  detail::bounded_spin spin_;
  stamped const* word_ = nullptr;
  std::uint32_t found_ = 0;
  int source_ = 0;
  bool missing_ = false, waits_ = false, gave_up_ = false;
};

}  // namespace fusewire
