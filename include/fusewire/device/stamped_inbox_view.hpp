// An inbox of stamped words inside a kernel: records that ranks store into each other without a flag or a release. Each
// word says itself which launch it is from.
//
//   send(peer, i, ...) --words with the epoch, relaxed--> record i of this rank in peer's slot e&1 --> polled there
//
// Two slots, by parity of the epoch, are safe by the channel's argument: a rank writes a slot again in launch e + 2,
// when every peer's launch e is over, with all its reads. So words need no acknowledgement. They need no reset
// either: a word of a slot holds the stamp of this launch, or an older one of the same parity.
// Stamps repeat after 2^32 launches. A word that every launch writes is never that old. Words that launches leave
// unwritten get a new stamp by renew(): in each launch up to 256 words of one record, all words in turn. So no word is
// 2^32 launches old when it is read. One case is not covered: fewer than stamped_inbox_view::turns_of_slot() launches
// of one parity renew this inbox while the channel makes 2^32 launches. Nothing counts them, because the host does not
// see a graph's replays. An inbox that is used so rarely takes a channel of its own.
#pragma once
#include <fusewire/device/stamped.hpp>

namespace fusewire {

/// The words of a slot that are renewed next: of this record of this source, from this word on. 0 at first.
struct alignas(16) stamped_turn {
  unsigned record, source;  // which record
  unsigned word;            // the first of it
};

/// Passed to kernels by value; stamped_inbox::view() makes it.
struct stamped_inbox_view {
  sym<stamped> words;             // 2 slots of [ranks][records][stride]
  int records = 0;                // of each source, which have less than 2^32 bytes
  int record_words = 0;           // of a record
  int stride = 0;                 // words from a record to the next; those behind record_words are nobody's
  stamped_turn* turns = nullptr;  // [2], this rank's: for each slot

  /// Words that a launch renews, at most.
  static constexpr int renewed_words = 256;
  /// After so many launches of one parity, with renew() in each, every word of a slot has had its turn.
  __host__ __device__ constexpr std::int64_t turns_of_slot(int ranks) const {
    return std::int64_t(ranks) * records * ((record_words - 1) / renewed_words + 1);
  }
};

/// One launch's slot of an inbox. Requires: ranks, records and words that exist; a checked build (FUSEWIRE_CHECKED)
/// takes 0 for those that do not, and check() throws bad_argument.
class stamped_slot {
 public:
  /// epoch: of the launch.
  __device__ stamped_slot(stamped_inbox_view const& x, world_view const& w, epoch_t epoch)
      : x_(x), w_(w), epoch_(epoch) {}

  /// Records from this rank, on `peer`; with i, record i. send() stores into it.
  __device__ stamped* to(int peer, int i = 0) const { return word(records(rank_in(peer), w_.rank()), i, 0); }
  /// Records from this rank, on the peer with this signal segment (world_view::signal).
  __device__ stamped* to(std::byte* signal) const { return records(signal, w_.rank()); }
  /// Records from `source`, on this rank; with i, record i. A stamped_reader reads it.
  __device__ stamped const* from(int source, int i = 0) const {
    return word(records(w_.rank(), rank_in(source)), i, 0);
  }
  /// Word j of record i of to(peer) or from(source).
  template <class Word>
  __device__ Word* word(Word* records, int i, int j) const {
    return place(records, checked(misuse::record, i, x_.records), checked(misuse::record_word, j, x_.record_words));
  }
  /// word() that checks nothing. One base and an offset of 32 bits take the fewest instructions.
  template <class Word>
  __device__ Word* place(Word* records, int i, int j) const {
    using byte = std::conditional_t<std::is_const_v<Word>, std::byte const, std::byte>;
    unsigned const at = unsigned(i) * unsigned(x_.stride) + unsigned(j);
    return reinterpret_cast<Word*>(reinterpret_cast<byte*>(records) + at * unsigned(sizeof(stamped)));
  }

  /// Stores word j of record i from this rank, on `peer`.
  /// Called by: one thread for each word. Order: relaxed, system; no other store is published.
  template <stampable T>
  __device__ void send(int peer, int i, int j, T x) const {
    store_stamped(word(to(peer), i, j), x, epoch_);
  }

  /// Gives the words whose turn it is a new stamp, if this launch leaves them unwritten: used(source, i) says whether
  /// the launch writes record i of `source`. A record that is written must not be renewed, because two stores into one
  /// word arrive in any order. It takes the time of a load, which passes unseen behind what the launch has sent and
  /// before what it waits for.
  /// Called by: every thread of one group of a launch, in every launch whose records may be unused.
  template <group Group, class Used>
  __device__ void renew(Group g, Used const& used) const {
    stamped_turn* const turn = x_.turns + detail::slot_of(epoch_);
    stamped_turn const now = *turn;
    unsigned const words = unsigned(x_.record_words), most = unsigned(stamped_inbox_view::renewed_words),
                   end = words - now.word < most ? words : now.word + most;
    if (!used(int(now.source), int(now.record)))
      for (unsigned j = now.word + unsigned(g.rank()); j < end; j += unsigned(g.size()))
        store_stamped(place(records(w_.rank(), int(now.source)), int(now.record), int(j)), 0, epoch_);
    g.sync();  // all threads have read whose turn it is
    if (g.leader()) *turn = after(now, end);
  }

 private:
  /// Those of `source` on `peer`.
  __device__ stamped* records(int peer, int source) const { return records(w_.signal[peer], source); }
  __device__ stamped* records(std::byte* signal, int source) const {
    return reinterpret_cast<stamped*>(signal + x_.words.offset) +
           std::uint64_t(unsigned(detail::slot_of(epoch_)) * unsigned(w_.size()) + unsigned(source)) *
               (unsigned(x_.records) * unsigned(x_.stride));
  }
  /// The turn after the one that ends before word `end`: the record's other words, the other sources, the other
  /// records.
  __device__ stamped_turn after(stamped_turn const& now, unsigned end) const {
    if (end < unsigned(x_.record_words)) return {now.record, now.source, end};
    if (now.source + 1 < unsigned(w_.size())) return {now.record, now.source + 1, 0};
    return {now.record + 1 < unsigned(x_.records) ? now.record + 1 : 0, 0, 0};
  }
  /// The argument, in range if kernels check.
  __device__ int checked(misuse what, int value, int below) const {
    return detail::checked_index(w_, what, value, below, int(x_.words.offset / sizeof(flag)));
  }
  __device__ int rank_in(int rank) const { return checked(misuse::record_rank, rank, w_.size()); }

  stamped_inbox_view const& x_;
  world_view const& w_;
  epoch_t epoch_;
};

}  // namespace fusewire
