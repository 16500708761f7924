// Pushes of AG+GEMM's large tiles on gfx942. A group copies a piece of A from memory into registers, in sets of words,
// and from there to the peer's inbox, past the caches: an L2 would keep the words until the signal.
//
//   push_by_block   a block copies a piece; its next piece is loaded while the words of this one are on the link:
//                   store 0, load 1, signal 0; store 1, load 2, signal 1; ...
//   push_by_waves   where every tile has a block of its own. Each wave of a block copies a piece by itself, and loads a
//                   set before it stores the one before. One block for each peer then suffices: eight waves together
//                   keep more under way than a link can carry
//
// A block's next words follow the flag, not the other way round: a flag would queue on the link behind them. With
// gather::k the blocks of a link move one chunk together, and a flag queues behind the words of the others. So where
// they are four or more, a thread has two words under way and not eight: 64 KB of four blocks.
//
// Order, deadlock: as gather_pieces.hpp has it. The group that copies a piece raises its flag.
#pragma once
#include <type_traits>

#include <fusewire/kernels/gather_pieces.hpp>
#include <fusewire/tile/buffer_gfx942.hpp>

namespace fusewire {

namespace detail {

/// A group's share of the pieces. Threads: of the group. Words: 16-byte words of a thread in a set.
template <class T, group Group, int Threads, int Words>
class pusher {
 public:
  /// Pieces first, first + step, ... are this group's. sparing: a thread has at most two words under way.
  __device__ pusher(channel_epoch const& e, world_view const& w, gather_plan<T> const& x, int first, int step,
                    bool sparing)
      : e_(e), w_(w), x_(x), sparing_(sparing), next_(first), step_(step) {}

  // They push the pieces. The first words are asked for before start(), which makes the epoch known.

  /// A piece ahead. Requires: the group is a block.
  template <class Start>
  __device__ void push_pieces(Start const& start) {
    bool const any = open();
    set s;
    load(s);
    start();
    if (!any) return;
    aim();
    // The first words stand ahead of the loop, which begins with what the compiler computes once for all pieces
    store(s);
    for (;;) {
      while (left_ > 0) load(s), store(s);
      int const peer = going_.peer, flag = going_.piece.flag;
      bool const more = open();
      load(s);  // nothing, if there is no more
      if (more) aim();
      e_.signal(Group{}, peer, flag);
      if (!more) return;
      __builtin_amdgcn_s_barrier();  // the other waves' words wait for the flag; it orders nothing
      store(s);
    }
  }
  /// A set ahead.
  template <class Start>
  __device__ void push_sets(Start const& start) {
    bool const any = open();
    set a, b;
    load(a);
    start();
    if (!any) return;
    aim();
    while (push(a, b) && push(b, a)) continue;
  }

 private:
  struct set {
    bytes16 word[Words];
    int to[Words];  // bytes from the piece's first element in the inbox, or nowhere
  };

  /// Stores `now` and, if it is the end of a piece, signals. Loads `next` before: of the same piece, or the next one.
  /// Whether there is such a set.
  __device__ bool push(set const& now, set& next) {
    int const peer = going_.peer, flag = going_.piece.flag;
    bool const ends = left_ == 0, more = !ends || open();
    load(next);  // nothing, if there is no more
    store(now);
    if (!ends) return true;
    e_.signal(Group{}, peer, flag);
    if (more) aim();
    return more;
  }

  /// Goes to the next piece, if there is one.
  __device__ bool open() {
    left_ = 0;
    for (int const count = x_.pieces.count();; next_ += step_) {
      if (next_ >= count) return false;
      going_ = push_at(w_, x_, next_);
      if (going_.needed) break;
    }
    next_ += step_;
    gather_piece const& p = going_.piece;
    row_ = platform::uniform(p.row - x_.map.first_row(w_.rank));
    column_ = platform::uniform(p.col - x_.map.first_col(w_.rank));
    from_ = {x_.a.at(row_, column_), nowhere - 1};
    int const per_row = platform::uniform(p.cols / per_16_bytes<T>), thread = Group{}.rank();
    float const of_one = platform::quick_reciprocal(float(per_row));  // exact enough for numbers up to 1024
    thread_row_ = int((float(thread) + 0.5f) * of_one);
    thread_word_ = thread - thread_row_ * per_row;
    rows_ = platform::uniform(int((float(Threads) + 0.5f) * of_one));
    per_row_ = per_row;
    left_ = platform::uniform(p.rows * per_row);
    return true;
  }
  /// Finds where the piece goes. Requires: the epoch is known.
  __device__ void aim() { to_ = shard_in(e_.template inbox<T>(going_.peer), x_.map, w_.rank).at(row_, column_); }

  /// Starts the loads of the piece's next words.
  __device__ void load(set& s) {
    int const from_ld = int(x_.a.ld) * int(sizeof(T)), to_ld = x_.map.cols() * int(sizeof(T));
#pragma unroll
    for (int i = 0; i < Words; ++i) {
      bool const is_one = i * Threads + Group{}.rank() < left_;
      s.word[i] = from_.load(is_one ? thread_row_ * from_ld + thread_word_ * 16 : nowhere, 0);
      s.to[i] = is_one ? thread_row_ * to_ld + thread_word_ * 16 : nowhere;
      thread_row_ += rows_;
      thread_word_ += Threads - rows_ * per_row_;
      if (thread_word_ >= per_row_) thread_word_ -= per_row_, ++thread_row_;
    }
    left_ = left_ > Words * Threads ? left_ - Words * Threads : 0;
  }
  /// Stores them in the inbox of the piece that aim() was called for last.
  __device__ void store(set const& s) const {
    memory_buffer const to(to_, nowhere - 1);
#pragma unroll
    for (int i = 0; i < Words; ++i) {
      to.store_far(s.word[i], s.to[i]);
      if (sparing_ && 1 <= i && i + 1 < Words) platform::wait_for_memory<1>();
    }
    platform::keep_order();
  }

  channel_epoch const& e_;
  world_view const& w_;
  gather_plan<T> const& x_;
  bool const sparing_;
  int next_, step_;  // number of the next piece; between this group's pieces
  // The piece: what is pushed where, its place in this rank's shard, and its words that are not asked for yet
  piece_push going_{};
  int row_ = 0, column_ = 0, left_ = 0;
  // Where its words are, and where they go; 16-byte words of a row; rows that a word of each thread fills; this
  // thread's next word
  memory_buffer from_{nullptr, 0};
  T* to_ = nullptr;
  int per_row_ = 1, rows_ = 0, thread_row_ = 0, thread_word_ = 0;
};

}  // namespace detail

/// Pushes this moving block's share of the pieces. It calls start(), which makes the epoch known.
/// Called by: every thread of the block, which has `Threads`.
template <int Threads, class T, class Start>
__device__ void push_by_block(std::integral_constant<int, Threads>, channel_epoch const& e, world_view const& w,
                              gather_plan<T> const& x, int worker, int workers, Start const& start) {
  bool const sparing = x.map.by == gather::k && workers >= 4 * (w.size - 1);
  detail::pusher<T, block, Threads, 8>(e, w, x, worker, workers, sparing).push_pieces(start);
}
/// As push_by_block().
template <int Threads, class T, class Start>
__device__ void push_by_waves(std::integral_constant<int, Threads>, channel_epoch const& e, world_view const& w,
                              gather_plan<T> const& x, int worker, int workers, Start const& start) {
  constexpr int waves = Threads / wave::width;
  int const first = worker * waves + platform::uniform(wave{}.index());
  detail::pusher<T, wave, wave::width, 16>(e, w, x, first, workers * waves, false).push_sets(start);
}

}  // namespace fusewire
