// Packs a value and its epoch into one 8-byte word. A reader that sees the epoch has the value, without a flag, a
// release or a fence. NCCL's protocol LL does the same.
//
//   producer  (x, epoch) --one relaxed store of 8 bytes--> word
//   consumer                                               polls it, relaxed: the epoch? then x was stored with it
//
// 8 bytes at a multiple of 8 are written and read as a whole on both architectures; the word orders no other access.
// For small payloads: they take twice the bytes, and arrive as fast as a flag that has nothing to publish.
// The stamp is the lower half of the epoch with its lowest bit set. So it is never 0, as memory is that has not been
// written. There are two rules for users. A word is written only by launches of one parity (a slot's). It is not read
// 2^32 launches after it was written: words that launches leave out get a new stamp from time to time.
#pragma once
#include <cstring>

#include <fusewire/device/channel_view.hpp>

namespace fusewire {

/// Lives in the signal segment, because it is polled. Zero at first.
struct alignas(8) stamped {
  std::uint64_t word;  // low half: the stamp; high half: the value
};

namespace detail {
__device__ constexpr std::uint32_t stamp_of(epoch_t epoch) { return std::uint32_t(epoch) | 1; }
}  // namespace detail

/// What a stamped word can carry.
template <class T>
concept stampable = std::is_trivially_copyable_v<T> && sizeof(T) == 4;

/// x with its epoch, as a word holds them.
template <stampable T>
__device__ std::uint64_t stamped_word(T x, epoch_t epoch) {
  std::uint32_t bits;
  memcpy(&bits, &x, 4);
  return std::uint64_t(bits) << 32 | detail::stamp_of(epoch);
}

/// The value that such a word holds.
template <stampable T>
__device__ T stamped_value(std::uint64_t word) {
  std::uint32_t const bits = std::uint32_t(word >> 32);
  T x;
  memcpy(&x, &bits, 4);
  return x;
}

/// Stores x with its epoch. Order: relaxed, system.
template <stampable T>
__device__ void store_stamped(stamped* p, T x, epoch_t epoch) {
  platform::atomic_store<order::relaxed, scope::system>(&p->word, stamped_word(x, epoch));
}

/// Polls words of this launch with one thread, until it has seen all of them in one pass:
///   do { ... read(p, source) ... } while (read.again());
class stamped_reader {
 public:
  /// `grace_ns`: extra time beyond the limit of a wait, for words that a peer sends only after a wait of its own. The
  /// peer then times out first and names the real culprit.
  __device__ stamped_reader(channel_epoch const& e, world_view const& w, std::uint64_t grace_ns = 0)
      : e_(e), w_(w), grace_ns_(grace_ns) {}

  /// What `source` has stored, as a float, or with as() another type. Valid once again() has returned false without
  /// gave_up().
  __device__ float operator()(stamped const* p, int source) { return as<float>(p, source); }
  /// As operator(), for any type of 4 bytes.
  template <stampable T>
  __device__ T as(stamped const* p, int source) {
    return take<T>(ask(p), p, source);
  }
  /// operator() in parts, so that a thread can ask for several words before it looks at the first: the word itself;
  /// look_at() or take(); stamped_value().
  __device__ std::uint64_t ask(stamped const* p) const {
    return platform::atomic_load<order::relaxed, scope::system>(&p->word);
  }
  /// See ask(). again() is told what a failed wait names, or take() is.
  __device__ void look_at(std::uint64_t word) {
    different_ |= std::uint32_t(word) ^ detail::stamp_of(e_.number());  // one instruction, unlike a comparison
  }
  /// See ask().
  template <stampable T = float>
  __device__ T take(std::uint64_t word, stamped const* p, int source) {
    look_at(word);
    if (!is_there(word)) {
      word_ = p;
      source_ = source;
    }
    return stamped_value<T>(word);
  }
  /// Whether `word` is of this launch.
  __device__ bool is_there(std::uint64_t word) const { return std::uint32_t(word) == detail::stamp_of(e_.number()); }

  /// Whether a word was missing, so that all must be read again.
  /// Fails: as wait(), and gave_up() then says so. The values are arbitrary then. What is sent on with a stamp
  /// must say so itself, as Flash Decode's NaN does.
  __device__ bool again() {
    return again([&] { return awaited{word_, source_}; });
  }
  /// The word that a failed wait names, and who stores it.
  struct awaited {
    stamped const* word;  // in the signal segment
    int source;           // the rank that stores it
  };
  /// As again(); name() says what a failed wait names.
  template <class Name>
  __device__ bool again(Name name) {
    if (different_ == 0) return false;
    different_ = 0;
    // What follows is seldom needed: nothing of it is worked out before
    world_view const& w = (&w_)[platform::no_hoist_lane(0)];
    if (!waits_) spin_ = detail::bounded_spin(w, grace_ns_);
    waits_ = true;
    gave_up_ = !spin_.lasts([&](bool released) {
      awaited const x = name();
      std::uint32_t const stamp = std::uint32_t(ask(x.word));
      // The latest epoch with this stamp and of this parity
      epoch_t const found = stamp == 0 ? 0 : e_.number() - (detail::stamp_of(e_.number()) - stamp);
      detail::give_up(w, x.word, e_.control().headers(), found, e_.number(), x.source, released);
    });
    return !gave_up_;
  }

  /// Whether the wait was given up, so that the values are arbitrary.
  __device__ bool gave_up() const { return gave_up_; }

 private:
  channel_epoch e_;
  world_view const& w_;
  std::uint64_t grace_ns_;
  detail::bounded_spin spin_;
  stamped const* word_ = nullptr;
  int source_ = 0;
  std::uint32_t different_ = 0;  // bits of any stamp since again() that are not this launch's
  bool waits_ = false, gave_up_ = false;
};

}  // namespace fusewire
