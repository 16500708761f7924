// A channel inside a kernel: two slots of inbox memory, flags for each, and the epoch that says which slot is in use.
//
//   launch e on rank r        slot e&1 of every rank            launch e on rank p
//   begin --- header --------------------------------------------> end waits for every rank's header of e
//   to(p, i) --- data, flag -----> inbox, flags ------------------> from(r, i)
//   end: the last block to exit, or to call arrive_exit(), sets the epoch to e
//
// Why two slots need no barrier. Rank r may write into p's slot of parity e&1 in launch e+2 only after p has read it in
// launch e.
//   1. r's launch e+2 starts after its launch e+1 has ended (stream order).
//   2. r's launch e+1 has seen p's header of e+1, whatever the shape: end() waits for the header of every rank (the
//      credit rule).
//   3. p sent that header from its launch e+1, hence after its launch e, with everything that it read, had ended
//      (stream order).
// Why a flag needs no reset. Each slot has its own flags. A flag of slot e&1 is raised to exactly e in launch e, and to
// nothing else before launch e+2; a wait asks for exactly e. A flag that a shape does not use keeps an old epoch, which
// no later wait asks for. Slot addresses depend only on the capacity. Flag indices and the layout within a slot may
// depend on the launch, because all ranks agree on it: the header says what was launched, and ranks that disagree
// abandon the launch and name the difference.
// Why it does not deadlock. The headers are sent before anything waits: by block 0 or, in begin_readable, by the last
// block to begin. No block waits before it has begun, and the host launches only grids whose blocks are all resident.
// For the rest of a launch, its kernel must have its own argument.
#pragma once
#include <fusewire/core/programmatic_launch.hpp>
#include <fusewire/device/channel_control.hpp>
#include <fusewire/device/channel_pull.hpp>
#include <fusewire/device/ticket.hpp>

namespace fusewire {

// A launch's use of a channel, in three types:
//
//   channel_epoch    what every kernel calls: inbox, flags, work, end
//   channel_pull     e.pull(): for kernels whose ranks read each other's own memory
//   channel_control  e.control(): for operators whose launches end in steps (channel_launch.hpp) or poison their
//   results

/// One launch's use of a channel.
/// Requires, for every call: a rank that exists; a flag i with 0 <= i < channel_options::flags_per_source; an inbox as
/// large as what is stored there. The simulator checks all of it; where FUSEWIRE_CHECKED is defined, kernels check all
/// but the inbox's size.
class channel_epoch : public detail::launch_place {
 public:
  using launch_place::launch_place;

  /// `peer`'s inbox of this launch: channel_options::max_bytes bytes, in whatever layout the kernel chooses.
  template <class T>
  __device__ T* inbox(int peer) const {
    return reinterpret_cast<T*>(c_->world.on(rank_in(misuse::inbox_rank, peer), c_->slots) +
                                detail::slot_of(number()) * c_->slot_bytes);
  }
  /// This rank's own inbox of this launch.
  template <class T>
  __device__ T* inbox() const {
    return inbox<T>(c_->world.rank());
  }

  /// Flag i from this rank, on `peer`. Raise it with signal(g, e.to(peer, i), e.number()) or signal(g, peer, i).
  __device__ flag* to(int peer, int i) const {
    return data_flag(rank_in(misuse::signal_rank, peer), c_->world.rank(), flag_in(misuse::signal_flag, i));
  }
  /// Flag i from `source`, on this rank.
  __device__ flag* from(int source, int i) const {
    return data_flag(c_->world.rank(), rank_in(misuse::wait_rank, source), flag_in(misuse::wait_flag, i));
  }

  /// Publishes what the group stored and raises flag i on `peer`. As fusewire::signal.
  template <group Group>
  __device__ void signal(Group g, int peer, int i) const {
    fusewire::signal(g, to(peer, i), number());
  }
  /// Raises flag i of `source` on this rank, for this rank's own blocks. Requires: what the group stored is in this
  /// rank's memory.
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
  __device__ __forceinline__ void wait(Group g, int first, int last, int i) const {
    wait_all(
        g, c_->world, last - first + 1, [this, first, i](int s) { return from(first + s, i); }, number(),
        [first](int s) { return first + s; });
  }

  /// As wait(); returns whether the flag came. For `word` see fusewire::try_wait.
  template <group Group>
  [[nodiscard]] __device__ bool try_wait(Group g, int source, int i, int* word) const {
    return fusewire::try_wait(g, c_->world, from(source, i), number(), word, source);
  }
  /// The same for each of the sources [first, last]: whether all flags came.
  template <group Group>
  [[nodiscard]] __device__ bool try_wait(Group g, int first, int last, int i, int* word) const {
    return try_wait_all(
        g, c_->world, last - first + 1, [this, first, i](int s) { return from(first + s, i); }, number(),
        [first](int s) { return first + s; }, word);
  }
  /// Flag i of `source`, for fusewire::wait_any().
  __device__ awaited awaits(int source, int i) const { return {from(source, i), number(), source}; }

  /// Whether flag i of `source` is up now. Order: as wait() if it is.
  __device__ bool arrived(int source, int i) const {
    return platform::atomic_load<order::acquire, scope::system>(&from(source, i)->value) == number();
  }

  /// 0, 1, 2, ... over all blocks of this launch, from each of the `work_counters` counters: a block that is free
  /// claims its next work. Called by: every thread of the block; `shared` is one word of its shared memory. A counter
  /// needs no reset between launches: the last block to exit sets all of them to 0. By then every block that claims has
  /// exited, and the blocks of the next launch begin after the end of this one.
  template <int Counter = 0>
  __device__ int next(block b, int* shared) const {
    static_assert(Counter >= 0 && Counter < work_counters, "channel_epoch::next: there are work_counters counters");
    unsigned* const next = &c_->world.here(c_->state)->next[Counter];
    if (b.leader()) *shared = int(platform::atomic_fetch_add<order::relaxed, scope::device>(next, 1u));
    b.sync();
    int const i = *shared;
    b.sync();
    return i;
  }

  /// Whether the calling block is the last of this rank to call it in this launch. What the blocks stored into this
  /// rank's memory before is visible to the last one; none of them waits. As last_to_arrive().
  /// Called by: every thread of every block, once in a launch; `shared` is one word of its shared memory.
  [[nodiscard]] __device__ bool last_block(block b, int* shared) const {
    return last_to_arrive(b, &c_->world.here(c_->state)->arrived_blocks, unsigned(b.count()), shared);
  }

  /// Ends the launch: block 0 waits for every rank's header. Called by: every thread of every block, last of all.
  __device__ __forceinline__ void end(block b) const {
    if (b.index() == 0) control().collect_credit(b);
    control().finish_exit(b);
  }

  /// Calls for kernels whose ranks read each other's memory.
  __device__ channel_pull pull() const { return channel_pull(*this); }
  /// Calls for operators whose launches end in steps, or poison their results.
  __device__ channel_control control() const { return channel_control(*this); }

 private:
  friend struct channel_view;

  /// The argument, in range if kernels check.
  __device__ int rank_in(misuse call, int rank) const {
    return detail::checked_index(c_->world, call, rank, c_->world.size());
  }
  __device__ int flag_in(misuse call, int i) const {
    return detail::checked_index(c_->world, call, i, c_->flags_per_source);
  }

  /// Releases what earlier kernels left in the L2 of this XCD, if no block on the XCD has done so yet.
  /// True in the last wave to call it: then all XCDs have released, because a block counts itself only after its own
  /// release, which waits for the writeback.
  /// Called by: the last wave of every block.
  __device__ bool is_readable(block b) const {
    channel_state* const s = c_->world.here(c_->state);
    int began = 0;
    if (wave{}.leader()) {
      if (platform::atomic_exchange<order::relaxed, scope::device>(&s->released_in[platform::xcd_index()], number()) !=
          number())
        platform::fence<order::release, scope::system>();
      began = int(platform::atomic_fetch_add<order::relaxed, scope::device>(&s->began, 1u)) + 1;
      if (began == b.count()) platform::atomic_store<order::relaxed, scope::device>(&s->began, 0u);
    }
    return platform::shuffle(began, 0) == b.count();
  }

  /// Each lane tells one peer what was launched. The last wave of block 0 does it, so that the other waves can start on
  /// their work.
  __device__ void send_header(block b) const {
    int const lanes = b.size() - wave{}.index() * wave::width;  // the last wave may be partial
    for (int p = wave{}.rank(); p < c_->world.size(); p += lanes) {
      flag* const f = header_flag(p, c_->world.rank());
      for (int i = 0; i < launch_words; ++i) store(&f->note[i], c_->header.what[i]);
      store(&f->note[launch_words], blocks_to_compare());
      for (int i = 0; i < 2; ++i) store(&f->note[header_words + i], c_->header.mine[i]);
      if constexpr (detail::checked)
        if (p == c_->world.rank() && load(&f->value) >= number())
          detail::note_misuse(c_->world, misuse::begin_again, int(number()), 0);
      platform::atomic_store<order::release, scope::system>(&f->value, number());
    }
  }
};

__device__ inline channel_epoch channel_view::begin(block b) const {
  channel_epoch const e(*this, platform::atomic_load<order::relaxed, scope::device>(&world.here(state)->epoch) + 1);
  if (b.index() == 0 && wave{}.index() == (b.size() - 1) / wave::width) e.send_header(b);
  return e;
}

__device__ inline channel_epoch channel_view::begin_readable(block b) const {
  if constexpr (platform::max_xcds == 1) return begin(b);
  if constexpr (detail::checked)
    if (b.count() < xcds) {
      if (b.leader()) detail::note_misuse(world, misuse::few_blocks, b.count(), xcds);
      return begin(b);
    }
  channel_epoch const e(*this, platform::atomic_load<order::relaxed, scope::device>(&world.here(state)->epoch) + 1);
  if (wave{}.index() == (b.size() - 1) / wave::width && e.is_readable(b)) e.send_header(b);
  return e;
}

}  // namespace fusewire
