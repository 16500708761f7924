// Pushes of AG+GEMM on gfx942. A sender block copies its chunks of A from memory into registers, and from there to the
// peers' inboxes, past the caches: an L2 would keep the words until the signal. The block's waves form groups, two for
// large tiles, else eight. A group copies a chunk at a time, and the groups take turns on the link, so that it carries
// one group's words while others signal:
//
//   group 0   store 0 | load 2, drain, signal 0 | store 2 | load 4, drain, signal 2 | ...
//   group 1           | store 1                 | load 3, drain, signal 1 | store 3 | ...
//
// Words are in the order of their chunks on a link, and a group stores its next chunk only behind its flag, so the flag
// does not queue behind it. One block for each peer keeps a link busy where chunks are large; where they are small, it
// raises the first flag as early as a link can.
//
// Turns: each wave counts itself in LDS when it has stored its part of a chunk. The next chunk's turn comes when all
// waves of the group have.
// Order: a wave counts itself in LDS again when its stores of a chunk are done. The last one of its group acquires that
// count, and raises the flag (signal). No wave begins the group's next chunk before that, so a count is of one chunk.
// A wave that is a group by itself needs no such count.
// Deadlock: a wave waits only for waves of its own block, which wait for memory and for earlier chunks. See also
// transfer_chunks.hpp.
#pragma once
#include <type_traits>

#include <fusewire/comm/all_gather/transfer_chunks.hpp>
#include <fusewire/arch/gfx942/memory_buffer.hpp>

namespace fusewire {

namespace detail {

/// How the groups of a sender block take turns, in LDS: waves that have stored a chunk, in all; of each group, waves
/// whose stores of a chunk are done, and flags raised.
template <int Groups>
struct link_turns {
  unsigned stored, done[Groups];
};

/// A wave's share of a sender block's chunks. Threads: of the block.
template <class T, int Threads, int Groups>
class pusher {
  static constexpr int threads = Threads / Groups, waves = threads / wave::width, words = 16;  // of a group; of a set
  static_assert((threads & (threads - 1)) == 0);

 public:
  /// Chunks worker, worker + workers, ... are the block's.
  __device__ pusher(link_turns<Groups>& turns, channel_epoch const& e, world_view const& w, gather_plan<T> const& x,
                    int worker, int workers)
      : turns_(turns), e_(e), w_(w), x_(x), group_(platform::uniform(wave{}.index()) / waves),
        next_(worker + group_ * workers), step_(Groups * workers) {}

  /// Pushes the chunks. The first loads are issued before start(), which makes the epoch known. Called by: every
  /// thread of the block, whose LDS is free afterwards.
  template <class Start>
  __device__ void push(Start const& start) {
    bool more = open();
    set s;
    load(s, group_ == 0);  // the first chunk has the paths to memory for itself
    start();
    if (threadIdx.x <= Groups) (threadIdx.x == 0 ? turns_.stored : turns_.done[threadIdx.x - 1]) = 0;
    block{}.sync();
    if (group_ > 0) load(s);
    if (more) {
      aim();
      int turn = group_, flags = 1;
      wait_for(turns_.stored, turn * waves);
      // The first chunk stands ahead of the loop, which begins with what the compiler computes once for all chunks
      bool counted = store_and_count(s);
      for (;; ++flags) {
        if (!counted) {
          while (is_left()) load(s), store(s);
          count();
        }
        int const peer = going_.peer, flag = going_.chunk.flag;
        bool const needed = going_.needed;
        more = open();
        load(s);  // nothing, if there is no more
        if (more) aim();
        if (is_last_done()) {
          if (needed) e_.signal(wave{}, peer, flag);
          if (waves > 1 && wave{}.leader())
            platform::atomic_fetch_add<order::relaxed, scope::block>(&turns_.done[group_], 1u);
        }
        if (!more) break;
        if (waves > 1) wait_for(turns_.done[group_], flags * (waves + 1));
        wait_for(turns_.stored, (turn += Groups) * waves);
        counted = store_and_count(s);
      }
    }
    block{}.sync();
  }

 private:
  /// A word of each thread of a group, `words` times. Each is a row further down, or several; see open().
  struct set {
    bytes16 word[words];
    int first, to;  // number of the first word; bytes to the thread's place in the chunk, or oob_offset
  };

  /// Returns when the number in LDS is `least` or more.
  __device__ static void wait_for(unsigned const& n, int least) {
    while (platform::uniform(int(platform::atomic_load<order::relaxed, scope::block>(&n))) < least) platform::backoff();
    platform::sched_barrier();
  }
  /// Counts this wave, which has stored its part of a chunk.
  __device__ void count() {
    if (wave{}.leader()) platform::atomic_fetch_add<order::relaxed, scope::block>(&turns_.stored, 1u);
  }
  /// Stores the chunk's first words, and counts this wave if these are all: whether it did.
  __device__ bool store_and_count(set const& s) {
    store(s);
    bool const all = !is_left();
    if (all) count();
    return all;
  }
  /// Returns when this wave's stores of a chunk are done: whether those of all waves of its group are.
  __device__ bool is_last_done() {
    platform::drain_stores();
    if (waves == 1) return true;
    unsigned before = 0;
    if (wave{}.leader()) before = platform::atomic_fetch_add<order::acq_rel, scope::block>(&turns_.done[group_], 1u);
    return platform::uniform(int(before)) % (waves + 1) == waves - 1;
  }

  /// Goes to the group's next chunk: whether there is one. A word of each thread covers `rows_at_once_` rows of it.
  __device__ bool open() {
    words_ = word_ = per_row_ = 0;
    int const i = platform::no_hoist(next_);  // nor ahead of a count in LDS, for which others wait
    if (i >= x_.chunks.count()) return false;
    going_ = push_at(w_, x_, i);
    next_ = i + step_;
    if (!going_.needed) return true;
    gather_chunk const& p = going_.chunk;
    row_ = platform::uniform(p.row - x_.map.first_row(w_.rank()));
    column_ = platform::uniform(p.col - x_.map.first_col(w_.rank()));
    from_ = {x_.a.at(row_, column_), unsigned(p.rows * from_ld())};
    per_row_ = platform::uniform(p.cols / per_16_bytes<T>);
    // A row has 2^shift threads, at least one for each word unless the group has fewer
    shift_ = platform::uniform(per_row_ >= threads ? __builtin_ctz(threads)
                               : per_row_ > 1      ? 32 - __builtin_clz(per_row_ - 1)
                                                   : 0);
    rows_at_once_ = threads >> shift_;
    begin_columns(0);
    return true;
  }
  /// Goes to the chunk's columns from word `first` of a row on.
  __device__ void begin_columns(int first) {
    int const thread = int(threadIdx.x) % threads, row = thread >> shift_,
              column = first + (thread & ((1 << shift_) - 1));
    bool const is_one = column < per_row_;
    lane_from_ = is_one ? row * from_ld() + column * 16 : oob_offset;
    lane_to_ = is_one ? row * to_ld() + column * 16 : oob_offset;
    first_column_ = first;
    word_ = 0;
    words_ = platform::uniform((going_.chunk.rows + rows_at_once_ - 1) >> (__builtin_ctz(threads) - shift_));
  }
  /// Whether words of the chunk are not issued yet.
  __device__ bool is_left() {
    if (word_ >= words_ && first_column_ + threads < per_row_) begin_columns(first_column_ + threads);
    return word_ < words_;
  }
  /// Finds where the chunk goes. Requires: the epoch is known.
  __device__ void aim() {
    to_ = shard_in(e_.template inbox<T>(going_.peer), x_.map, w_.rank()).at(row_, column_);
    to_bytes_ = platform::uniform(going_.chunk.rows * to_ld());
  }

  /// Starts the loads of the chunk's next words, or of none. Words beyond the chunk are zeros.
  __device__ void load(set& s, bool any = true) {
    int const step = platform::uniform(rows_at_once_ * from_ld());
    any = any && word_ < words_;
    int const lane = any ? lane_from_ : oob_offset;
#pragma unroll
    for (int i = 0; i < words; ++i) s.word[i] = from_.load(lane, (word_ + i) * step);
    s.first = word_;
    s.to = any ? lane_to_ : oob_offset;
    if (any) word_ += words;
  }
  /// Stores them in the inbox of the chunk that aim() was called for last. Words beyond the chunk are left out.
  __device__ void store(set const& s) const {
    int const step = platform::uniform(rows_at_once_ * to_ld());
    memory_buffer const to(to_, to_bytes_);
#pragma unroll
    for (int i = 0; i < words; ++i) to.store_system(s.word[i], s.to, (s.first + i) * step);
    platform::sched_barrier();
  }
  /// Bytes between rows of this rank's shard, and between those of an inbox.
  __device__ int from_ld() const { return int(x_.a.ld) * int(sizeof(T)); }
  __device__ int to_ld() const { return x_.map.cols() * int(sizeof(T)); }

  link_turns<Groups>& turns_;
  channel_epoch const& e_;
  world_view const& w_;
  gather_plan<T> const& x_;
  int const group_;
  int next_, step_;  // number of the group's next chunk; between its chunks
  // The chunk: what is pushed where; its place in this rank's shard; words of a row; see open(); the first word of a
  // row in hand; of these columns: words of a thread, and those that are issued
  chunk_push going_{};
  int row_ = 0, column_ = 0, per_row_ = 0, shift_ = 0, rows_at_once_ = 1, first_column_ = 0, words_ = 0, word_ = 0;
  // Where it is and where it goes; bytes to this thread's first word in both
  memory_buffer from_{nullptr, 0};
  T* to_ = nullptr;
  int to_bytes_ = 0, lane_from_ = oob_offset, lane_to_ = oob_offset;
};

}  // namespace detail

/// Pushes this sender block's share of the chunks. It calls start(), which makes the epoch known.
/// shared: LDS of the block, free before and afterwards. Called by: every thread of the block, which has `Threads`;
/// its waves form `Groups` groups.
template <int Threads, int Groups, class T, class Start>
__device__ void push_alternating(std::integral_constant<int, Threads>, std::integral_constant<int, Groups>,
                                 void* shared, channel_epoch const& e, world_view const& w, gather_plan<T> const& x,
                                 int worker, int workers, Start const& start) {
  detail::pusher<T, Threads, Groups>(*static_cast<detail::link_turns<Groups>*>(shared), e, w, x, worker, workers)
      .push(start);
}

}  // namespace fusewire
