// A launch as its kernel sees it: how its threads begin, how work is handed out, how it ends. Made by every thread at
// the start of a kernel, and passed to its mainloop, which calls the rest; only a kernel that has more to do after its
// tiles ends the launch itself.
//
//   begin        waits for the stream's past, where the launch may run ahead of it; then the epoch is known --> epoch()
//   next         0, 1, 2, ...: work for whichever block is free
//   collect      block 0: waits for every rank's header, and until no rank reads this one's memory any more
//   end          the last block out makes the epoch this one
#pragma once
#include <fusewire/core/stream.hpp>
#include <fusewire/device/channel_view.hpp>

namespace fusewire {

/// A launch on a channel.
class channel_launch {
 public:
  /// peers_read: whether peers read this rank's own memory during the launch; see channel_view::begin_readable().
  __device__ explicit channel_launch(channel_view const& ch, bool peers_read = false)
      : c_(ch), peers_read_(peers_read), e_(ch, 0) {}

  /// Called by: every thread that uses the epoch, before anything that the stream has written is read.
  __device__ void begin() {
    wait_for_stream();
    // Its channel is known to be c_, a parameter of the kernel
    e_ = {c_, (peers_read_ ? c_.begin_readable(block{}) : c_.begin(block{})).number()};
    release_stream();
  }
  __device__ channel_epoch const& epoch() const { return e_; }

  /// As channel_epoch::next().
  __device__ int next(block b, int* shared) { return e_.next(b, shared); }

  /// Called by: every thread of one group of block 0, once.
  template <group Group>
  __device__ void collect(Group g) const {
    if (peers_read_) e_.wait_acknowledged(g);
    e_.collect_credit(g);
  }
  /// Called by: every thread of every block, last of all.
  __device__ void end(block b) const {
    if (b.index() == 0) collect(b);
    e_.leave(b);
  }

  /// end() in two halves, for a mainloop whose idle warps end the launch while others multiply: settle() returns when
  /// the calling thread has the epoch, and end_early() is called by one thread of a block, after collect(), when every
  /// thread of it that has called begin() has returned from settle().
  __device__ void settle() const { platform::settle(e_.number()); }
  __device__ void end_early(block b) const { e_.leave(b, e_.depart()); }

 private:
  channel_view const& c_;
  bool peers_read_;
  channel_epoch e_;
};

/// A launch of a kernel that communicates with nobody.
class local_launch {
 public:
  __device__ void begin() {
    wait_for_stream();
    release_stream();
  }
  /// Every block gets the numbers in turn.
  __device__ int next(block b, int*) {
    int const i = b.index() + drawn_;
    drawn_ += b.count();
    return i;
  }
  template <group Group>
  __device__ void collect(Group) const {}
  __device__ void end(block) const {}
  __device__ void settle() const {}
  __device__ void end_early(block) const {}

 private:
  int drawn_ = 0;
};

}  // namespace fusewire
