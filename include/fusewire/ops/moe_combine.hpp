// moe_combine: results of experts to the ranks of their tokens, and their sums, one kernel launch per call. The kernel
// is in moe_combine_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/moe_combine_kernel.hpp>
#include <fusewire/ops/detail/moe_combiner.hpp>

namespace fusewire {

/// The sum over the experts of each token, in T: f16 or bf16. A rank adds up its experts' rows in fp32, in the order of
/// the token's table, and rounds to T once; by_token it sends its row as it is. The token's rank adds these in fp32, in
/// the order of ranks, and rounds to T once. The same bits in every run. docs/operators.md has the error bound.
template <class T>
  requires is_16_bit_float<T>
class moe_combine : moe_combiner<T> {
 public:
  /// Collective. Fails: bad_argument; rank_mismatch; out_of_space when the channel cannot hold the rows or their flags.
  moe_combine(channel& ch, moe_options const& o, std::source_location where = std::source_location::current())
      : moe_combiner<T>("moe_combine", ch, o, where) {
    (void)load_kernel(ch.world(), &moe_combine_kernel<T>, moe_threads, 0, where);
    ch.heap().names().add_launch("moe_comb", describe);
    this->agree(max_bytes(ch.world().size(), o), flags_per_source(ch.world().size(), o), where);
  }
  moe_combine(moe_combine const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~moe_combine() = default;

  /// What the operator needs of a channel. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, moe_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  using moe_combiner<T>::max_bytes;
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int, moe_options const& o) { return moe_combiner<T>::flags_of_combine(o); }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph, whose replays see the routing of their time.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, moe_combine_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    this->check(c, where);
    int const chunks = this->received(c);
    moe_blocks const blocks =
        this->blocks_of(&moe_combine_kernel<T>, 0, (this->shape_.ranks - 1) * chunks, chunks, where);
    launch(this->ch_.world(), stream, {.blocks = blocks.all, .threads = moe_threads, .where = where},
           &moe_combine_kernel<T>, this->ch_.view(this->header("moe_comb", c)), this->arguments(c, blocks.senders));
  }

 private:
  static std::string describe(std::uint64_t const (&what)[launch_words]) {
    return moe_combiner<T>::in_words("moe_combine", what);
  }
};

}  // namespace fusewire
