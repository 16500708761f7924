// A channel inside a kernel: two slots of inbox memory, flags for each, and the epoch that says which slot is in use.
//
//   launch e on rank r        slot e&1 of every rank            launch e on rank p
//   begin --- header --------------------------------------------> end waits for every rank's header of e
//   to(p, i) --- data, flag -----> inbox, flags ------------------> from(r, i)
//   end: the last block out, or to depart(), makes the epoch e
//
// Why two slots need no barrier. Rank r may write into p's slot of parity e&1 in launch e+2 only after p has read it in
// launch e.
//   1. r's launch e+2 starts after its launch e+1 has ended (stream order).
//   2. r's launch e+1 has seen p's header of e+1, whatever the shape: end() waits for the header of every rank (the
//      credit rule).
//   3. p sent that header from its launch e+1, hence after its launch e, and everything that it read, had ended (stream
//      order).
// Why a flag needs no reset. Each slot has its own flags; a flag of slot e&1 is raised to exactly e in launch e and to
// nothing else before launch e+2, and a wait asks for exactly e. A flag that a shape does not use keeps an old epoch,
// which no later wait asks for. Slot addresses depend only on the capacity; flag indices and the layout within a slot
// may depend on the launch, because all ranks agree on it: the header carries what was launched, and ranks that
// disagree abandon the launch and say in what.
// Why it does not deadlock. Block 0 sends the headers before anything waits, or the last block to begin does
// (begin_readable), and no block waits before it has begun. The host launches only grids whose blocks are all resident;
// what lies between is the kernel's own argument.
#pragma once
#include <fusewire/core/stream.hpp>
#include <fusewire/device/flag.hpp>
#include <fusewire/device/memory.hpp>

namespace fusewire {

/// What a launch is, for ranks to compare. Equal on all ranks, and as many blocks, or the launch is abandoned.
struct launch_header {
  std::uint64_t what[launch_words] = {};
  std::uint64_t mine[2] = {};     // this rank's own words, readable by peers: see peer_word()
  std::uint64_t same_blocks = 1;  // 0: ranks may launch different numbers of blocks
};

/// Lives in the bulk segment; only its own rank touches it.
struct channel_state {
  epoch_t epoch;    // launches that have ended
  unsigned ticket;  // blocks of the current launch that are done
  unsigned next;    // work handed out so far
  unsigned arrived[max_ranks];
  unsigned began;  // blocks of the current launch that have, if peers read this rank's memory
  /// For each part of the device: the launch in which it last released what the stream wrote before
  epoch_t released_in[platform::max_parts];
};

class channel_epoch;

/// Passed to kernels by value; made by channel::view().
struct channel_view {
  world_view world;
  sym<std::byte> slots;          // 2 x slot_bytes
  std::uint64_t slot_bytes = 0;  // channel_options::max_bytes and a gap
  /// 2 x (headers [W], acknowledgements [W]), data [flags_per_source][2][W]: a flag beyond the last is beyond them all
  sym<flag> flags;
  int flags_per_source = 0;
  sym<channel_state> state;
  bool poison = false;  // channel_options::poison
  launch_header header;

  /// This rank's inbox in slot 0 or 1, for those who must name both before they know the epoch.
  template <class T>
  __host__ __device__ T* slot(int i) const {
    return reinterpret_cast<T*>(world.here(slots) + std::uint64_t(i) * slot_bytes);
  }

  /// Called by: every thread that uses the epoch, first of all; the last wave of block 0 in any case, which tells the
  /// peers. In a kernel with launch_shape::early: after wait_for_stream().
  __device__ channel_epoch begin(block b) const;
  /// begin() of a kernel in which peers read this rank's own memory, as wait_begun() lets them. What earlier kernels
  /// wrote into it lies in the L2s of all parts of the device (XCDs), and a kernel's end brings it to this device
  /// alone, as far as anybody says (docs/litmus.md, kernel_end_reaches_peers). So the first block of each part releases
  /// it, and the last block to begin tells the peers.
  /// Called by: every thread of every block. Requires: a block on every part, so as many blocks as
  /// world::dispatch_parts().
  __device__ channel_epoch begin_readable(block b) const;
};

namespace detail {

/// Where a launch's parts of a channel are: its slot, and rows of flags, one of each source. Ranks compare them when
/// they meet.
__host__ __device__ constexpr epoch_t slot_of(epoch_t epoch) { return epoch & 1; }
__host__ __device__ constexpr int header_row(epoch_t epoch) { return 2 * int(slot_of(epoch)); }
__host__ __device__ constexpr int acknowledgement_row(epoch_t epoch) { return 2 * int(slot_of(epoch)) + 1; }
__host__ __device__ constexpr int data_row(epoch_t epoch, int i) { return 4 + 2 * i + int(slot_of(epoch)); }

/// Whether kernels check what they are passed: where FUSEWIRE_CHECKED is defined, as NDEBUG is for the host. It costs
/// registers and time.
#ifdef FUSEWIRE_CHECKED
inline constexpr bool checked = true;
#else
inline constexpr bool checked = false;
#endif

/// The first that finds something wrong in a rank's kernels says so, and ends all waits; check() throws bad_argument.
__device__ inline void note_misuse(world_view const& w, misuse what, int value, int accepted, int at = 0) {
  watch* const mine = watch_of(w, w.rank);
  unsigned nothing = 0;
  if (!platform::atomic_compare_exchange<order::relaxed, scope::system>(&mine->wrong, nothing, unsigned(what))) return;
  mine->wrong_block = platform::block_index(), mine->wrong_value = value, mine->accepted = accepted,
  mine->wrong_at = at;
  abandon(w, false);
}
/// `value` where it is below `below` or nobody checks, else 0.
__device__ inline int checked_index(world_view const& w, misuse what, int value, int below) {
  if constexpr (checked)
    if (value < 0 || value >= below) {
      note_misuse(w, what, value, below);
      return 0;
    }
  return value;
}

}  // namespace detail

/// One launch's use of a channel. Requires, wherever they are asked for: a rank that exists; a flag i with 0 <= i <
/// channel_options::flags_per_source; an inbox that is as large as what is stored there. Checked by the simulator, and
/// but for the inbox's size where FUSEWIRE_CHECKED is defined.
class channel_epoch {
 public:
  __device__ channel_epoch(channel_view const& c, epoch_t number) : c_(&c), before_(number - 1) {}

  __device__ epoch_t number() const { return before_ + 1; }

  /// `peer`'s inbox of this launch: channel_options::max_bytes bytes, laid out as the kernel likes.
  template <class T>
  __device__ T* inbox(int peer) const {
    return reinterpret_cast<T*>(c_->world.on(rank_in(misuse::inbox_rank, peer), c_->slots) +
                                detail::slot_of(number()) * c_->slot_bytes);
  }
  template <class T>
  __device__ T* inbox() const {
    return inbox<T>(c_->world.rank);
  }

  /// Where in the signal segment this launch's headers are, for a wait's report.
  __device__ std::uint64_t headers() const {
    return c_->flags.offset + detail::slot_of(number()) * std::uint64_t(2 * c_->world.size) * sizeof(flag);
  }

  /// Flag i from this rank, on `peer`. Signal it with signal(g, e.to(peer, i), e.number()) or signal(g, peer, i).
  __device__ flag* to(int peer, int i) const {
    return data_flag(rank_in(misuse::signal_rank, peer), c_->world.rank, flag_in(misuse::signal_flag, i));
  }
  /// Flag i from `source`, here.
  __device__ flag* from(int source, int i) const {
    return data_flag(c_->world.rank, rank_in(misuse::wait_rank, source), flag_in(misuse::wait_flag, i));
  }

  /// Publishes what the group stored and raises flag i on `peer`. As fusewire::signal.
  template <group Group>
  __device__ void signal(Group g, int peer, int i) const {
    fusewire::signal(g, to(peer, i), number());
  }
  /// Raises flag i of `source` on this rank, for this rank's own blocks: what the group stored is in this rank's
  /// memory.
  template <group Group>
  __device__ void signal_here(Group g, int source, int i) const {
    fusewire::signal<scope::device>(g, from(source, i), number());
  }
  /// Waits for flag i of `source`. As fusewire::wait.
  template <group Group>
  __device__ void wait(Group g, int source, int i) const {
    fusewire::wait(g, c_->world, from(source, i), number(), source);
  }
  /// Waits for flag i of each of the sources [first, last].
  template <group Group>
  __device__ void wait(Group g, int first, int last, int i) const {
    wait_all(
        g, c_->world, last - first + 1, [this, first, i](int s) { return from(first + s, i); }, number(),
        [first](int s) { return first + s; });
  }

  /// Whether flag i of `source` is up now. Order: as wait() if it is.
  __device__ bool arrived(int source, int i) const {
    return platform::atomic_load<order::acquire, scope::system>(&from(source, i)->value) == number();
  }

  /// Waits until `source` has begun this launch. After begin_readable() what its stream wrote into its own memory
  /// before is then readable; what an earlier kernel stored into a peer is not: signal that from the kernel that
  /// stores. False if it has not begun, or has launched something else: then neither its words nor memory that they
  /// lead to must be used.
  template <group Group>
  [[nodiscard]] __device__ bool wait_begun(Group g, int source) const {
    flag const* const f = header_flag(c_->world.rank, source);
    fusewire::wait(g, c_->world, f, number(), source);
    return load(&f->value) == number() && says_the_same(f);
  }
  /// Word i of `source`'s launch_header::mine. Requires: wait_begun(g, source), whose answer says whether it is one.
  /// After an abandoned launch `source` may be ahead, and change the words at any time: read each once, and check that
  /// what they lead to is there.
  __device__ std::uint64_t peer_word(int source, int i) const {
    return load(&header_flag(c_->world.rank, source)->note[header_words + i]);
  }

  /// One of `total` pieces of work on `source`'s memory is done; the last one tells `source`, whose wait_acknowledged()
  /// waits for it.
  /// Called by: every thread of the group that did the piece.
  template <group Group>
  __device__ void acknowledge(Group g, int source, unsigned total) const {
    platform::drain_stores();
    g.sync();
    if (!g.leader()) return;
    unsigned* const arrived = &c_->world.here(c_->state)->arrived[source];
    if (platform::atomic_fetch_add<order::acq_rel, scope::device>(arrived, 1u) + 1 != total) return;
    platform::atomic_store<order::relaxed, scope::device>(arrived, 0u);
    fusewire::signal(thread{}, acknowledgement_flag(source, c_->world.rank), number());
  }
  /// Tells `source` at once that this rank has no work on its memory.
  template <group Group>
  __device__ void acknowledge_nothing(Group g, int source) const {
    if (g.leader()) fusewire::signal(thread{}, acknowledgement_flag(source, c_->world.rank), number());
  }
  /// Returns when every rank is done with this rank's memory. Called by: every thread of one group.
  template <group Group>
  __device__ void wait_acknowledged(Group g) const {
    wait_all(
        g, c_->world, c_->world.size, [&](int r) { return acknowledgement_flag(c_->world.rank, r); }, number(),
        [](int r) { return r; });
  }

  /// channel_options::poison.
  __device__ bool may_poison() const { return c_->poison; }
  /// Whether what is computed from here on, or from what this block has waited for, should be stored as NaN:
  /// channel_options::poison is set, and a wait of some rank was given up. Where it is set, this is a trip to memory.
  __device__ bool poisons() const {
    if (!may_poison()) return false;
    // The address is made when it is asked for: mainloops have no registers left for it
    int const rank = platform::uniform(platform::opaque(c_->world.rank));
    return platform::atomic_load<order::relaxed, scope::system>(&detail::watch_of(c_->world, rank)->abandoned) != 0;
  }

  /// 0, 1, 2, ... over all blocks of this launch: work for whoever is free. Called by: every thread of the block;
  /// `shared` is one word of its shared memory.
  __device__ int next(block b, int* shared) const {
    if (b.leader())
      *shared = int(platform::atomic_fetch_add<order::relaxed, scope::device>(&c_->world.here(c_->state)->next, 1u));
    b.sync();
    int const i = *shared;
    b.sync();
    return i;
  }

  /// Called by: every thread of every block, last of all.
  __device__ void end(block b) const {
    if (b.index() == 0) collect_credit(b);
    leave(b);
  }
  /// The two halves of end(), for kernels in which some threads have time before the others.
  /// Waits for the header of every rank. Called by: every thread of one group of block 0, once.
  template <group Group>
  __device__ void collect_credit(Group g) const {
    wait_all(
        g, c_->world, c_->world.size, [&](int r) { return header_flag(c_->world.rank, r); }, number(),
        [](int r) { return r; });
    for (int r = g.rank(); r < c_->world.size; r += g.size()) {
      flag* const f = header_flag(c_->world.rank, r);
      unsigned* const too_late = &detail::watch_of(c_->world, c_->world.rank)->too_late;
      if (load(&f->value) != number()) {  // abandoned; a later launch must not be named instead of this one
        platform::atomic_store<order::relaxed, scope::system>(too_late, 1u);
        continue;
      }
      if (says_the_same(f) || load(too_late) != 0) continue;
      detail::note_disagreement(c_->world, r, f, header_flag(c_->world.rank, c_->world.rank));
      detail::abandon(c_->world, false);
    }
  }
  /// Called by: every thread of every block, last of all.
  __device__ void leave(block b) const {
    b.sync();
    if (b.leader()) leave(b, depart());
  }
  /// leave() split in two, so that the ticket's round trip to memory overlaps other work. Not for kernels that use
  /// next().
  /// Called by: one thread of every block, the first when all threads of the block that have called begin() have the
  /// epoch, the second with what the first has returned, any time after it. The last block to depart makes the epoch
  /// this one: nobody reads it any more.
  __device__ unsigned depart() const {
    if constexpr (detail::checked)
      if (platform::atomic_load<order::acquire, scope::device>(&c_->world.here(c_->state)->epoch) >= number())
        detail::note_misuse(c_->world, misuse::end_again, int(number()), 0);
    return platform::atomic_fetch_add<order::relaxed, scope::device>(&c_->world.here(c_->state)->ticket, 1u) + 1;
  }
  __device__ void leave(block b, unsigned departed) const {
    if (departed != unsigned(b.count())) return;
    channel_state* const s = c_->world.here(c_->state);
    platform::atomic_store<order::relaxed, scope::device>(&s->ticket, 0u);
    platform::atomic_store<order::relaxed, scope::device>(&s->next, 0u);
    platform::atomic_store<order::relaxed, scope::device>(&s->epoch, number());
  }

 private:
  friend struct channel_view;

  __device__ flag* flag_at(int peer, int row, int source) const {
    return c_->world.on(peer, c_->flags) + row * c_->world.size + source;
  }
  __device__ flag* header_flag(int peer, int source) const {
    return flag_at(peer, detail::header_row(number()), source);
  }
  __device__ flag* acknowledgement_flag(int peer, int source) const {
    return flag_at(peer, detail::acknowledgement_row(number()), source);
  }
  __device__ flag* data_flag(int peer, int source, int i) const {
    return flag_at(peer, detail::data_row(number(), i), source);
  }

  /// What is passed, if nobody checks.
  __device__ int rank_in(misuse call, int rank) const {
    return detail::checked_index(c_->world, call, rank, c_->world.size);
  }
  __device__ int flag_in(misuse call, int i) const {
    return detail::checked_index(c_->world, call, i, c_->flags_per_source);
  }

  /// Releases what earlier kernels left in this part's L2, if no block on it has. True in the last wave that comes: all
  /// parts have then, because a block counts itself only when its own release, which waits for the writeback, is over.
  /// Called by: the last wave of every block.
  __device__ bool is_readable(block b) const {
    channel_state* const s = c_->world.here(c_->state);
    int began = 0;
    if (wave{}.leader()) {
      if (platform::atomic_exchange<order::relaxed, scope::device>(&s->released_in[platform::part_index()], number()) !=
          number())
        platform::fence<order::release, scope::system>();
      began = int(platform::atomic_fetch_add<order::relaxed, scope::device>(&s->began, 1u)) + 1;
      if (began == b.count()) platform::atomic_store<order::relaxed, scope::device>(&s->began, 0u);
    }
    return platform::shuffle(began, 0) == b.count();
  }

  /// Each lane tells one peer what was launched. The last wave of block 0 does it, so that the others can start on
  /// their work.
  __device__ void send_header(block b) const {
    int const lanes = b.size() - wave{}.index() * wave::width;  // the last wave may be a part of one
    for (int p = wave{}.rank(); p < c_->world.size; p += lanes) {
      flag* const f = header_flag(p, c_->world.rank);
      for (int i = 0; i < launch_words; ++i) store(&f->note[i], c_->header.what[i]);
      store(&f->note[launch_words], blocks_to_compare());
      for (int i = 0; i < 2; ++i) store(&f->note[header_words + i], c_->header.mine[i]);
      if constexpr (detail::checked)
        if (p == c_->world.rank && load(&f->value) >= number())
          detail::note_misuse(c_->world, misuse::begin_again, int(number()), 0);
      platform::atomic_store<order::release, scope::system>(&f->value, number());
    }
  }

  __device__ bool says_the_same(flag const* header) const {
    bool equal = load(&header->note[launch_words]) == blocks_to_compare();
    for (int i = 0; i < launch_words; ++i) equal &= load(&header->note[i]) == c_->header.what[i];
    return equal;
  }

  __device__ std::uint64_t blocks_to_compare() const {
    return c_->header.same_blocks * std::uint64_t(platform::grid_blocks());
  }

  channel_view const* c_;
  epoch_t before_;  // as it was loaded: whoever does arithmetic with it waits for it
};

__device__ inline channel_epoch channel_view::begin(block b) const {
  channel_epoch const e(*this, platform::atomic_load<order::relaxed, scope::device>(&world.here(state)->epoch) + 1);
  if (b.index() == 0 && wave{}.index() == (b.size() - 1) / wave::width) e.send_header(b);
  return e;
}

__device__ inline channel_epoch channel_view::begin_readable(block b) const {
  if constexpr (platform::max_parts == 1) return begin(b);
  channel_epoch const e(*this, platform::atomic_load<order::relaxed, scope::device>(&world.here(state)->epoch) + 1);
  if (wave{}.index() == (b.size() - 1) / wave::width && e.is_readable(b)) e.send_header(b);
  return e;
}

}  // namespace fusewire
