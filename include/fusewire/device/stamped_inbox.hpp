// An inbox of stamped words inside a kernel: records that ranks store into each other without a flag or a release. Each
// word says itself which launch it is from.
//
//   send(peer, i, ...) --words with the epoch, relaxed--> record i of this rank in peer's slot e&1 --> polled there
//
// Two slots, by parity of the epoch, are safe by the channel's argument: a rank writes a slot again in launch e + 2,
// when every peer's launch e is over, with all its reads. So words need no acknowledgement. They need no reset
// either: a word of a slot holds the stamp of this launch, or an older one of the same parity.
// Stamps repeat after 2^32 launches. A word that every launch writes is never that old. Records that launches leave
// unwritten get a new stamp by renew(), one record in each launch, in turn. So no word is 2^32 launches old when it is
// read. One case is not covered: fewer than `records` launches of one parity renew this inbox while the channel makes
// 2^32 launches. Nothing counts them, because the host does not see a graph's replays. An inbox that is used so rarely
// takes a channel of its own.
#pragma once
#include <fusewire/device/stamped.hpp>

namespace fusewire {

/// Passed to kernels by value; stamped_inbox::view() makes it.
struct stamped_inbox_view {
  sym<stamped> words;                // 2 slots of [ranks][records][record_words]
  int records = 0;                   // of each source, which have less than 2^32 bytes
  int record_words = 0;              // of a record
  unsigned* renewed_next = nullptr;  // [2], this rank's: for each slot, the record to renew next
};

/// One launch's slot of an inbox. Requires: records and words that exist.
class stamped_slot {
 public:
  /// epoch: of the launch.
  __device__ stamped_slot(stamped_inbox_view const& x, world_view const& w, epoch_t epoch)
      : x_(x), w_(w), epoch_(epoch) {}

  /// Records from this rank, on `peer`; with i, record i. send() stores into it.
  __device__ stamped* to(int peer, int i = 0) const { return word(records(peer, w_.rank), i, 0); }
  /// Records from this rank, on the peer with this signal segment (world_view::signal).
  __device__ stamped* to(std::byte* signal) const { return records(signal, w_.rank); }
  /// Records from `source`, on this rank; with i, record i. A stamped_reader reads it.
  __device__ stamped const* from(int source, int i = 0) const { return word(records(w_.rank, source), i, 0); }
  /// Word j of record i of to(peer) or from(source). One base and an offset of 32 bits take the fewest instructions.
  template <class Word>
  __device__ Word* word(Word* records, int i, int j) const {
    using byte = std::conditional_t<std::is_const_v<Word>, std::byte const, std::byte>;
    unsigned const at = unsigned(i) * unsigned(x_.record_words) + unsigned(j);
    return reinterpret_cast<Word*>(reinterpret_cast<byte*>(records) + at * unsigned(sizeof(stamped)));
  }

  /// Stores word j of record i from this rank, on `peer`.
  /// Called by: one thread for each word. Order: relaxed, system; no other store is published.
  template <stampable T>
  __device__ void send(int peer, int i, int j, T x) const {
    store_stamped(word(to(peer), i, j), x, epoch_);
  }

  /// Gives the next record of every source a new stamp, if this launch leaves it unwritten: used(source, i) says
  /// whether the launch writes record i of `source`. A record that is written must not be renewed, because two stores
  /// into one word arrive in any order.
  /// Called by: every thread of one group of a launch, in every launch whose records may be unused.
  template <group Group, class Used>
  __device__ void renew(Group g, Used const& used) const {
    unsigned* const next = x_.renewed_next + detail::slot_of(epoch_);
    int const i = int(*next);
    for (int n = g.rank(); n < w_.size * x_.record_words; n += g.size()) {
      int const source = n / x_.record_words;
      if (!used(source, i)) store_stamped(word(records(w_.rank, source), i, n % x_.record_words), 0, epoch_);
    }
    g.sync();  // all threads have read which record it is
    if (g.leader()) *next = unsigned(i + 1 < x_.records ? i + 1 : 0);
  }

 private:
  /// Those of `source` on `peer`.
  __device__ stamped* records(int peer, int source) const { return records(w_.signal[peer], source); }
  __device__ stamped* records(std::byte* signal, int source) const {
    return reinterpret_cast<stamped*>(signal + x_.words.offset) +
           std::uint64_t(unsigned(detail::slot_of(epoch_)) * unsigned(w_.size) + unsigned(source)) *
               (unsigned(x_.records) * unsigned(x_.record_words));
  }

  stamped_inbox_view const& x_;
  world_view const& w_;
  epoch_t epoch_;
};

}  // namespace fusewire
