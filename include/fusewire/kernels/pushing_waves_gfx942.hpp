// Pushes of AG+GEMM on gfx942 where every tile has a block of its own: the waves of one moving block for each peer copy
// pieces, each wave by itself.
//
//   words of A in registers   | first | second | third | ...     a set: up to 16 KB; a piece has one or more sets
//   to the peer's inbox               | first  | second | ...    past the caches; behind a piece's last set: signal
//
// A wave loads a set before it stores the one before, so the link is idle only while the wave waits for its last stores
// and raises the flag. Eight waves together keep more under way than a link can carry, and leave all but W - 1 compute
// units to the tiles. Stores go past the L2: it would keep them until the signal.
//
// Order, deadlock: as gather_pieces.hpp has it. The group that copies a piece and raises its flag is a wave.
#pragma once
#include <fusewire/kernels/gather_pieces.hpp>
#include <fusewire/tile/buffer_gfx942.hpp>

namespace fusewire {

namespace detail {

/// One wave's share of the pieces.
template <class T>
class pushing_wave {
  static constexpr int words = 16;  // 16-byte words of a lane in a set
  struct set {
    bytes16 word[words];
    int to[words];  // bytes from the piece's first element in the inbox, or nowhere
  };

 public:
  /// Pieces first, first + step, ... are this wave's.
  __device__ pushing_wave(channel_epoch const& e, world_view const& w, gather_plan<T> const& x, int first, int step)
      : e_(e), w_(w), x_(x), next_(first), step_(step) {}

  /// Pushes the pieces; the first words are asked for before start(), which makes the epoch known.
  template <class Start>
  __device__ void run(Start const& start) {
    bool const any = open();
    set a, b;
    load(a);
    start();
    if (!any) return;
    while (push(a, b) && push(b, a)) continue;
  }

 private:
  /// Stores `now` and, if it is the end of a piece, signals. Loads `next` before: of the same piece, or the next one.
  /// Whether there is such a set.
  __device__ bool push(set const& now, set& next) {
    int const peer = going_.peer, flag = going_.piece.flag;
    memory_buffer const to(shard_in(e_.template inbox<T>(peer), x_.map, w_.rank).at(row_, column_), nowhere - 1);
    bool const ends = left_ == 0, more = !ends || open();
    load(next);  // nothing, if there is no more
#pragma unroll
    for (int i = 0; i < words; ++i) to.store_far(now.word[i], now.to[i]);
    if (ends) e_.signal(wave{}, peer, flag);
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
    int const per_row = platform::uniform(p.cols / per_16_bytes<T>), lane = wave{}.rank();
    float const of_one = platform::quick_reciprocal(float(per_row));  // exact enough for numbers up to 64
    lane_row_ = int((float(lane) + 0.5f) * of_one);
    lane_word_ = lane - lane_row_ * per_row;
    rows_ = platform::uniform(int((float(wave::width) + 0.5f) * of_one));
    per_row_ = per_row;
    left_ = platform::uniform(p.rows * per_row);
    return true;
  }

  /// Starts the loads of the piece's next words.
  __device__ void load(set& s) {
    int const from_ld = int(x_.a.ld) * int(sizeof(T)), to_ld = x_.map.cols() * int(sizeof(T));
#pragma unroll
    for (int i = 0; i < words; ++i) {
      bool const is_one = i * wave::width + wave{}.rank() < left_;
      s.word[i] = from_.load(is_one ? lane_row_ * from_ld + lane_word_ * 16 : nowhere, 0);
      s.to[i] = is_one ? lane_row_ * to_ld + lane_word_ * 16 : nowhere;
      lane_row_ += rows_;
      lane_word_ += wave::width - rows_ * per_row_;
      if (lane_word_ >= per_row_) lane_word_ -= per_row_, ++lane_row_;
    }
    left_ = left_ > words * wave::width ? left_ - words * wave::width : 0;
  }

  channel_epoch const& e_;
  world_view const& w_;
  gather_plan<T> const& x_;
  int next_, step_;  // number of the next piece; between this wave's pieces
  // The piece: what is pushed where, its place in this rank's shard, and its words that are not asked for yet
  piece_push going_{};
  int row_ = 0, column_ = 0, left_ = 0;
  // Where its words are; 16-byte words of a row; rows that a wave's words fill; this lane's next word
  memory_buffer from_{nullptr, 0};
  int per_row_ = 1, rows_ = 0, lane_row_ = 0, lane_word_ = 0;
};

}  // namespace detail

/// Pushes this moving block's share of the pieces. It calls start(), which makes the epoch known.
/// Called by: every thread of the block.
template <class T, class Start>
__device__ void push_by_waves(channel_epoch const& e, world_view const& w, gather_plan<T> const& x, int worker,
                              int workers, Start const& start) {
  int const waves = block{}.size() / wave::width;
  detail::pushing_wave<T>(e, w, x, worker * waves + platform::uniform(wave{}.index()), workers * waves).run(start);
}

}  // namespace fusewire
