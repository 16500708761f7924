// moe_dispatch: each token's row to the ranks of its experts, one kernel launch per call. The kernel is in
// moe_dispatch_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/moe_dispatch_kernel.hpp>
#include <fusewire/ops/detail/moe_dispatcher.hpp>

namespace fusewire {

/// Sends the rows of tokens, in 16 bits, in 8 bits with scales, or any others. A token goes to a rank once, however
/// many of its experts the rank has. Rows come in an order that depends on nothing but the tables; see moe_layout.
class moe_dispatch : moe_dispatcher {
 public:
  /// Collective. Fails: bad_argument; rank_mismatch; out_of_space when the channel cannot hold the rows or their flags.
  moe_dispatch(channel& ch, moe_options const& o, std::source_location where = std::source_location::current())
      : moe_dispatcher("moe_dispatch", ch, o, where) {
    (void)load_kernel(ch.world(), &moe_dispatch_kernel<>, moe_threads, shared_bytes(), where);
    ch.heap().names().add_launch("moe_disp", describe);
    agree(max_bytes(shape_.ranks, o), flags_per_source(shape_.ranks, o), where);
  }
  moe_dispatch(moe_dispatch const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~moe_dispatch() = default;

  /// What the operator needs of a channel. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, moe_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  using moe_dispatcher::max_bytes;
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int ranks, moe_options const& o) { return flags_of_dispatch(ranks, o); }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph, whose replays see the tables of their time.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors(). check() throws bad_argument where a
  /// table has an expert that does not exist, *device_tokens is out of range, or more than max_rows rows come.
  void operator()(hipStream_t stream, moe_dispatch_call const& c,
                  std::source_location where = std::source_location::current()) {
    check(c, where);
    moe_blocks const blocks = blocks_of(&moe_dispatch_kernel<>, shared_bytes(), sent(c), received(c), where);
    launch(ch_.world(), stream,
           {.blocks = blocks.all, .threads = moe_threads, .shared_bytes = shared_bytes(), .where = where},
           &moe_dispatch_kernel<>, ch_.view(header("moe_disp", c)), arguments(c, blocks.senders));
  }

 private:
  static std::string describe(std::uint64_t const (&what)[launch_words]) { return in_words("moe_dispatch", what); }
};

}  // namespace fusewire
