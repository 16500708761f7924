// A launch as its kernel sees it: how its threads begin, how it hands out work, how it ends. Every thread makes one at
// the start of a kernel and passes it to its mainloop, which makes the calls. Only a kernel that has more to do after
// its tiles ends the launch itself.
//
//   begin        waits for earlier work on the stream, where the launch may run ahead of it; then epoch() is known
//   next         0, 1, 2, ...: work for whichever block is free
//   wait_peers   block 0: waits for every rank's header, and until no rank reads this one's memory any more
//   end          the last block to exit sets the epoch to this launch's
#pragma once
#include <fusewire/core/programmatic_launch.hpp>
#include <fusewire/device/channel_view.hpp>

namespace fusewire {

/// A launch on a channel.
class channel_launch {
 public:
  /// peers_read: whether peers read this rank's own memory during the launch; see channel_view::begin_readable().
  __device__ explicit channel_launch(channel_view const& ch, bool peers_read = false)
      : c_(ch), peers_read_(peers_read), e_(ch, 0) {}

  /// Called by: every thread that uses the epoch, before it reads anything that the stream has written.
  __device__ void begin() {
    wait_prior_grid();
    // c_ is a parameter of the kernel, so the compiler knows where its channel is
    e_ = {c_, (peers_read_ ? c_.begin_readable(block{}) : c_.begin(block{})).number()};
    launch_dependents();
  }
  /// The epoch of this launch. Requires: begin() has returned.
  __device__ channel_epoch const& epoch() const { return e_; }

  /// As channel_epoch::next().
  __device__ int next(block b, int* shared) { return e_.next(b, shared); }

  /// Waits for every rank's header and, if peers read this rank's memory, for their acknowledgements. Called by: every
  /// thread of one group of block 0, once.
  template <group Group>
  __device__ void wait_peers(Group g) const {
    if (peers_read_) e_.pull().wait_acknowledged(g);
    e_.control().collect_credit(g);
  }
  /// Ends the launch. Called by: every thread of every block, last of all.
  __device__ void end(block b) const {
    if (b.index() == 0) wait_peers(b);
    e_.control().finish_exit(b);
  }

  /// end() in steps, for mainloops that claim no work and would have to wait for a round trip to memory at the end of a
  /// block. wait_epoch() returns when the calling thread has the epoch. Called by: one thread of every block. It calls
  /// arrive_exit() when every thread of the block that has called begin() has returned from wait_epoch(), in block 0
  /// also after wait_peers(). It calls finish_exit() with arrive_exit()'s result at any time after that.
  __device__ void wait_epoch() const { platform::wait_loaded(e_.number()); }
  /// See channel_control::arrive_exit().
  __device__ unsigned arrive_exit() const { return e_.control().arrive_exit(); }
  /// See channel_control::finish_exit().
  __device__ void finish_exit(block b, unsigned exits_before) const { e_.control().finish_exit(b, exits_before); }

 private:
  channel_view const& c_;
  bool peers_read_;
  channel_epoch e_;
};

/// A part of a channel's launch: the tiles of a kernel that has begun the launch before them, and ends it after them.
class part_of_launch {
 public:
  /// Of launch e.
  __device__ explicit part_of_launch(channel_epoch const& e) : e_(e) {}

  /// The launch has begun.
  __device__ void begin() const {}
  /// As channel_epoch::next().
  __device__ int next(block b, int* shared) const { return e_.next(b, shared); }
  /// The kernel does it at the end of the launch.
  template <group Group>
  __device__ void wait_peers(Group) const {}
  /// The launch goes on.
  __device__ void end(block) const {}
  /// The epoch is known.
  __device__ void wait_epoch() const {}
  /// No block leaves with its tiles.
  __device__ unsigned arrive_exit() const { return 0; }
  /// See arrive_exit().
  __device__ void finish_exit(block, unsigned) const {}

 private:
  channel_epoch const& e_;
};

/// A launch of a kernel that communicates with no other rank.
class local_launch {
 public:
  /// Waits for earlier work on the stream, as channel_launch::begin().
  __device__ void begin() {
    wait_prior_grid();
    launch_dependents();
  }
  /// Block b gets the numbers b, b + blocks, ...
  __device__ int next(block b, int*) {
    int const i = b.index() + drawn_;
    drawn_ += b.count();
    return i;
  }
  /// No rank has to be waited for.
  template <group Group>
  __device__ void wait_peers(Group) const {}
  /// Nothing has to be reset.
  __device__ void end(block) const {}
  /// There is no epoch to wait for.
  __device__ void wait_epoch() const {}
  /// As channel_launch::arrive_exit(); finish_exit() needs nothing of it.
  __device__ unsigned arrive_exit() const { return 0; }
  /// See arrive_exit().
  __device__ void finish_exit(block, unsigned) const {}

 private:
  int drawn_ = 0;
};

}  // namespace fusewire
