// LL words: a value and its launch in one word of 8 bytes. A reader that sees the launch has the value, without a flag,
// a release or a fence. NCCL's protocol LL and mscclpp's LL8Packet are the same.
//
//   producer  (x, epoch) --one relaxed store of 8 bytes--> word
//   consumer                                               polls it, relaxed: this epoch? then x was stored with it
//
// 8 bytes at a multiple of 8 are written and read as a whole on both architectures; the word orders no other access.
// For small payloads: they take twice the bytes, and arrive as fast as a flag that has nothing to publish. The same
// protocol serves ranks (scope::system: ll_buffer_view.hpp) and the blocks of one rank (scope::device:
// attention/split_kv_workspace.hpp).
//
// A word has the stamp of its launch: the lower half of the epoch with the lowest bit set. So it is never 0, as memory
// is that has not been written. Rules for users:
//   slots     Two slots of words, by parity of the epoch. A launch accesses those of its own slot. A slot's stamps
//   differ
//             unless its launches are 2^32 apart.
//   reuse     A slot is written again two launches later, when no reader of this launch is left.
//   refresh   A word must not keep its stamp for 2^32 launches. Words that launches leave unwritten are set to 0: each
//             launch does so for at most one record, ll_turn(), unless it writes that record itself.
// ll_turn() derives the record from the epoch by a bijective hash, so nothing is stored about whose turn it is. In 2^32
// launches each record of a slot has about 2^31 / turns of them, turns = max(records, 4096), spread evenly. So with few
// records most launches have none to refresh.
// One case is not covered: fewer than about 32 x turns launches of a slot use the words while the channel makes 2^32.
// Then a record may miss its turn. Nothing counts this, because the host does not see a graph's replays; such words
// take their own channel.
#pragma once
#include <cstring>

#include <fusewire/core/group.hpp>
#include <fusewire/device/channel_view.hpp>

namespace fusewire {

/// A value and its launch. With scope::system it lives in the signal segment, because peers' stores to it are polled.
/// Zero at first.
template <scope S = scope::system>
struct alignas(8) ll_word {
  std::uint64_t bits;  // low half: the stamp; high half: the value
};

namespace detail {
__host__ __device__ constexpr std::uint32_t ll_stamp(epoch_t epoch) { return std::uint32_t(epoch) | 1; }
}  // namespace detail

/// What an LL word can carry.
template <class T>
concept ll_payload = std::is_trivially_copyable_v<T> && sizeof(T) == 4;

/// The value in a word's bits.
template <ll_payload T>
__device__ T ll_value(std::uint64_t bits) {
  std::uint32_t const high = std::uint32_t(bits >> 32);
  T x;
  memcpy(&x, &high, 4);
  return x;
}

/// Stores x with its epoch. Order: relaxed, S.
template <ll_payload T, scope S>
__device__ void ll_store(ll_word<S>* p, T x, epoch_t epoch) {
  std::uint32_t high;
  memcpy(&high, &x, 4);
  platform::atomic_store<order::relaxed, S>(&p->bits, std::uint64_t(high) << 32 | detail::ll_stamp(epoch));
}

/// A word's bits. Order: relaxed, S.
template <scope S>
__device__ std::uint64_t ll_load(ll_word<S> const* p) {
  return platform::atomic_load<order::relaxed, S>(&p->bits);
}

/// The record that launch `epoch` refreshes, of the `records` of its slot; none if the result is not below `records`.
/// Source of the hash: MurmurHash3's finalizer, a bijection of 32 bits.
__host__ __device__ constexpr std::uint32_t ll_turn(epoch_t epoch, std::uint32_t records) {
  std::uint32_t hash = std::uint32_t(epoch);
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
  hash ^= hash >> 16;
  std::uint32_t const turns = records < 4096 ? 4096 : records;
  return std::uint32_t(std::uint64_t(hash) * turns >> 32);
}

/// Sets `words` words to 0, which no reader takes for a value.
/// Called by: every thread of g, if this launch neither writes nor reads the words. Order: relaxed, S.
template <scope S, group Group>
__device__ void ll_clear(Group g, ll_word<S>* p, int words) {
#pragma unroll 1
  for (int i = g.rank(); i < words; i += g.size())
    platform::atomic_store<order::relaxed, S>(&p[i].bits, std::uint64_t(0));
}

/// Polls words of this launch with one thread, until it has seen all of them in one pass:
///   do { ... read(p, source) ... } while (read.again());
class ll_reader {
 public:
  /// `grace_ns`: extra time beyond the limit of a wait, for words that a peer sends only after its own wait. The
  /// peer then times out first and names the real culprit.
  __device__ ll_reader(channel_epoch const& e, world_view const& w, std::uint64_t grace_ns = 0)
      : e_(e), w_(w), grace_ns_(grace_ns) {}

  /// What `source` has stored, as a float, or with as() another type. Valid once again() has returned false without
  /// gave_up().
  __device__ float operator()(ll_word<> const* p, int source) { return as<float>(p, source); }
  /// As operator(), for any type of 4 bytes.
  template <ll_payload T>
  __device__ T as(ll_word<> const* p, int source) {
    return consume<T>(ll_load(p), p, source);
  }
  /// operator() in parts, so that a thread can load several words before it checks the first: ll_load(); then check()
  /// and ll_value(), or consume(), which also notes p and source for the report of a failed wait.
  __device__ void check(std::uint64_t bits) {
    different_ |= std::uint32_t(bits) ^ detail::ll_stamp(e_.number());  // one instruction, unlike a comparison
  }
  /// See check().
  template <ll_payload T = float>
  __device__ T consume(std::uint64_t bits, ll_word<> const* p, int source) {
    check(bits);
    if (!has_arrived(bits)) {
      word_ = p;
      source_ = source;
    }
    return ll_value<T>(bits);
  }
  /// Whether the word with these bits is of this launch.
  __device__ bool has_arrived(std::uint64_t bits) const { return std::uint32_t(bits) == detail::ll_stamp(e_.number()); }

  /// Whether a word was missing, so that all must be read again.
  /// Fails: as wait(), and gave_up() then says so. The values are arbitrary then. What is sent on with a stamp
  /// must say so itself, as Flash Decode's NaN does.
  __device__ bool again() {
    return again([&] { return awaited{word_, source_}; });
  }
  /// The word that a failed wait names, and who stores it.
  struct awaited {
    ll_word<> const* word;  // in the signal segment
    int source;             // the rank that stores it
  };
  /// As again(); name() says what a failed wait names.
  template <class Name>
  __device__ bool again(Name name) {
    if (different_ == 0) return false;
    different_ = 0;
    // What follows is rarely needed: nothing of it is computed before
    world_view const& w = (&w_)[platform::no_hoist_lane(0)];
    if (!waits_) spin_ = detail::bounded_spin(w, grace_ns_);
    waits_ = true;
    gave_up_ = !spin_.lasts([&](bool released) {
      awaited const x = name();
      std::uint32_t const stamp = std::uint32_t(ll_load(x.word));
      // The latest epoch with this stamp and of this parity
      epoch_t const found = stamp == 0 ? 0 : e_.number() - (detail::ll_stamp(e_.number()) - stamp);
      detail::time_out(w, x.word, e_.control().headers(), found, e_.number(), x.source, released);
    });
    return !gave_up_;
  }

  /// Whether the wait timed out, so that the values are arbitrary.
  __device__ bool gave_up() const { return gave_up_; }

 private:
  channel_epoch e_;
  world_view const& w_;
  std::uint64_t grace_ns_;
  detail::bounded_spin spin_;
  ll_word<> const* word_ = nullptr;
  int source_ = 0;
  std::uint32_t different_ = 0;  // bits of any stamp since again() that are not this launch's
  bool waits_ = false, gave_up_ = false;
};

}  // namespace fusewire
