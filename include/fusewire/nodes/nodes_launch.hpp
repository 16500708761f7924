// A launch of a kernel over nodes, as its mainloop sees it: channel_launch's calls for ranks of all nodes.
#pragma once
#include <fusewire/core/programmatic_launch.hpp>
#include <fusewire/nodes/nodes_view.hpp>

namespace fusewire {

/// A launch on a channel of several nodes. As channel_launch, without peers that read this rank's memory.
class nodes_launch {
 public:
  /// Of a kernel's parameter.
  __device__ explicit nodes_launch(nodes_view const& ch) : c_(ch), e_(ch, {ch, 0}) {}

  /// See channel_launch::begin().
  __device__ __forceinline__ void begin() {
    wait_prior_grid();
    e_ = c_.begin(block{});
    launch_dependents();
  }
  /// The epoch of this launch. Requires: begin() has returned.
  __device__ nodes_epoch const& epoch() const { return e_; }

  /// As channel_epoch::next().
  __device__ int next(block b, int* shared) { return e_.near().next(b, shared); }

  /// Waits for the headers of near ranks and of far peers. Called by: every thread of one group of block 0, once.
  template <group Group>
  __device__ void wait_peers(Group g) const {
    e_.collect_credit(g);
  }
  /// Ends the launch. Called by: every thread of every block, last of all.
  __device__ __forceinline__ void end(block b) const { e_.end(b); }

  /// See channel_launch: end() in steps.
  __device__ void wait_epoch() const { platform::wait_loaded(e_.number()); }
  /// See channel_control::arrive_exit().
  __device__ unsigned arrive_exit() const { return e_.near().control().arrive_exit(); }
  /// See channel_control::finish_exit().
  __device__ void finish_exit(block b, unsigned exits_before) const {
    e_.near().control().finish_exit(b, exits_before);
  }

 private:
  nodes_view const& c_;
  nodes_epoch e_;
};

}  // namespace fusewire
