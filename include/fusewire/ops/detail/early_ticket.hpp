// How blocks end a launch in which block 0 alone collects the credit of all ranks while the others work.
#pragma once
#include <fusewire/device/channel_view.hpp>

namespace fusewire::detail {

/// A block's ticket. Blocks but block 0 draw it before they work, so its round trip to memory takes no time of theirs.
/// Made by: every thread of a block, behind begin(). Not for kernels that use next() or last_block().
class early_ticket {
 public:
  __device__ early_ticket(block b, channel_epoch const& e) : e_(e) {
    if (b.index() == 0) return;
    platform::wait_loaded(e.number());
    b.sync();
    if (b.leader()) exits_before_ = e.control().arrive_exit();
  }
  /// Ends the launch for the block. Called by: every thread of the block, last of all.
  __device__ void end(block b) const {
    if (b.index() == 0) e_.end(b);
    else if (b.leader()) e_.control().finish_exit(b, exits_before_);
  }

 private:
  channel_epoch const& e_;
  unsigned exits_before_ = 0;  // in the leader
};

}  // namespace fusewire::detail
