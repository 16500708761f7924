// A buffer of LL words inside a kernel: records that ranks store into each other without a flag or a release.
//
//   send(peer, i, ...) --LL words, relaxed--> record i of this rank in peer's slot e&1 --> polled there
//
// ll.hpp has the rules. Reuse holds by the channel's argument: a rank writes a slot again in launch e + 2, when every
// peer's launch e is over, with all its reads. So words need no acknowledgement, and no reset. A buffer of R records
// has world size x R of them in a slot.
#pragma once
#include <fusewire/device/ll.hpp>

namespace fusewire {

/// Passed to kernels by value; ll_buffer::view() makes it.
struct ll_buffer_view {
  sym<ll_word<>> words;  // 2 slots of [ranks][records][stride]
  int records = 0;       // of each source, which have less than 2^32 bytes
  int record_words = 0;  // of a record
  int stride = 0;        // words from a record to the next; those behind record_words are nobody's
};

/// One launch's slot of a buffer. Requires: ranks, records and words that exist; a checked build (FUSEWIRE_CHECKED)
/// takes 0 for those that do not, and check() throws bad_argument.
class ll_slot {
 public:
  /// epoch: of the launch.
  __device__ ll_slot(ll_buffer_view const& x, world_view const& w, epoch_t epoch) : x_(x), w_(w), epoch_(epoch) {}

  /// Records from this rank, on `peer`; with i, record i. send() stores into it.
  __device__ ll_word<>* to(int peer, int i = 0) const { return word(records(rank_in(peer), w_.rank()), i, 0); }
  /// Records from this rank, on the peer with this signal segment (world_view::signal).
  __device__ ll_word<>* to(std::byte* signal) const { return records(signal, w_.rank()); }
  /// Records from `source`, on this rank; with i, record i. An ll_reader reads it.
  __device__ ll_word<> const* from(int source, int i = 0) const {
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
    return reinterpret_cast<Word*>(reinterpret_cast<byte*>(records) + at * unsigned(sizeof(ll_word<>)));
  }

  /// Stores word j of record i from this rank, on `peer`.
  /// Called by: one thread for each word. Order: relaxed, system; no other store is published.
  template <ll_payload T>
  __device__ void send(int peer, int i, int j, T x) const {
    ll_store(word(to(peer), i, j), x, epoch_);
  }

  /// Refreshes the record whose turn it is (ll_turn), unless this launch writes it: used(source, i) says whether it
  /// writes record i of `source`.
  /// Called by: every thread of one group of a launch, in every launch whose records may be unused.
  template <group Group, class Used>
  __device__ void refresh(Group g, Used const& used) const {
    unsigned const all = unsigned(w_.size()) * unsigned(x_.records), turn = ll_turn(epoch_, all);
    if (turn >= all) return;
    int const source = int(turn / unsigned(x_.records)), i = int(turn % unsigned(x_.records));
    if (!used(source, i)) ll_clear(g, place(records(w_.rank(), source), i, 0), x_.record_words);
  }

 private:
  /// Those of `source` on `peer`.
  __device__ ll_word<>* records(int peer, int source) const { return records(w_.signal[peer], source); }
  __device__ ll_word<>* records(std::byte* signal, int source) const {
    return reinterpret_cast<ll_word<>*>(signal + x_.words.offset) +
           std::uint64_t(unsigned(detail::slot_of(epoch_)) * unsigned(w_.size()) + unsigned(source)) *
               (unsigned(x_.records) * unsigned(x_.stride));
  }
  /// The argument, in range if kernels check.
  __device__ int checked(misuse what, int value, int below) const {
    return detail::checked_index(w_, what, value, below, int(x_.words.offset / sizeof(flag)));
  }
  __device__ int rank_in(int rank) const { return checked(misuse::record_rank, rank, w_.size()); }

  ll_buffer_view const& x_;
  world_view const& w_;
  epoch_t epoch_;
};

}  // namespace fusewire
