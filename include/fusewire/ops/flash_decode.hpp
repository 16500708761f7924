// flash_decode: attention of one query token per sequence over a KV cache that is sharded over the ranks by tokens, one
// kernel launch per call. The kernel is in flash_decode_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/decode_operator.hpp>
#include <fusewire/ops/detail/flash_decode_kernel.hpp>

namespace fusewire {

/// Attention of one query token per sequence over a paged KV cache, of which every rank holds some of the tokens. Its
/// launches are in the same order on every rank, each on any stream.
template <class T, decode_features Features = decode_features{}>
class flash_decode : decode_operator<T, Features> {
  static_assert(is_16_bit_float<T>, "flash_decode: T is bf16 or f16; a KV cache in fp8, with scales, is not there");
  using base = decode_operator<T, Features>;
  using base::ch_, base::o_;

 public:
  /// Collective. Takes memory for blocks' partials from the symmetric heap, and signal_bytes() of its signal segment.
  /// Fails: bad_argument; rank_mismatch; out_of_space. Uses neither slots nor data flags of the channel.
  flash_decode(channel& ch, flash_decode_options const& o, std::source_location where = std::source_location::current())
      : base("flash_decode", ch, o, where), owners_(o.q_heads, ch.world().size()) {
    require(
        o.output == output::replicated || o.shots != reduce_algorithm::two_shot, where,
        "flash_decode: output::heads with two shots; expected one shot, which sends each partial result to the rank "
        "that owns its head");
    load_kernel(ch.world(), kernel(), base::threads(), base::shared_bytes(), where);
    ch.heap().names().add_launch("flashdec", describe_flash_decode);
    ch.heap().require_equal_on_ranks("flash_decode", base::named_options(), where);
    base::allocate(kernel(), inbox_records(ch.world().size(), o), where);
  }
  flash_decode(flash_decode const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~flash_decode() = default;

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be
  /// captured in a graph, whose replays see the lengths and tables of their time.
  /// Requires: the pages of a sequence's tokens are numbers of pages of the caches; a cache has less than 2^32 rows of
  /// d.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, flash_decode_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    base::check(c, own().size(), where);
    kv_schedule const schedule = base::schedule_of(kernel(), c.batch, where);
    decode_arguments<T> g = base::arguments(c, schedule, owners_);
    g.two_shot = !scattered() &&
                 (o_.shots == reduce_algorithm::automatic ? schedule.two_shot : o_.shots == reduce_algorithm::two_shot);
    g.scattered = scattered();
    g.own = own();
    fusewire::launch(ch_.world(), stream, base::shape(schedule, where), kernel(),
                     ch_.view(base::header("flashdec", c.batch, scattered())), g);
  }

  /// The query heads that a rank owns with output::heads, in contiguous ranges of which the first ones may have one
  /// head more; none if there are fewer heads than ranks. Requires: options that the constructor accepts.
  static index_range heads_of(int rank, int ranks, flash_decode_options const& o) {
    return head_partition(o.q_heads, ranks).of(rank);
  }

  /// What the operator takes of a heap of `ranks` ranks, with a channel that it needs: at least as much on every GPU
  /// that it runs on. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, flash_decode_options const& o) {
    return channel::requirements(ranks, {.max_bytes = 1, .flags_per_source = 1}) + base::workspace(ranks, o) +
           ll_buffer::requirements(ranks, {inbox_records(ranks, o), base::shape_of(o, o.max_batch).record.used()});
  }
  /// What an operator takes of the signal segment: an inbox for the results of `ranks` ranks, twice.
  static std::size_t signal_bytes(int ranks, flash_decode_options const& o) {
    return ll_buffer::bytes(ranks, inbox_records(ranks, o), base::shape_of(o, o.max_batch).record.used());
  }

 private:
  /// Whether ranks have results of different heads.
  bool scattered() const { return o_.output == output::heads && ch_.world().size() > 1; }
  /// The query heads whose results this rank has.
  index_range own() const { return scattered() ? owners_.of(ch_.world().rank()) : index_range{0, o_.q_heads}; }
  /// A single rank sends nothing.
  static int inbox_records(int ranks, flash_decode_options const& o) {
    return ranks == 1 ? 1 : o.max_batch * o.kv_heads;
  }
  auto kernel() const {
    switch (o_.head_dim) {
      case 64: return &flash_decode_kernel<T, 64, Features.bits()>;
      case 96: return &flash_decode_kernel<T, 96, Features.bits()>;
      case 192: return &flash_decode_kernel<T, 192, Features.bits()>;
      case 256: return &flash_decode_kernel<T, 256, Features.bits()>;
      default: return &flash_decode_kernel<T, 128, Features.bits()>;
    }
  }

  head_partition owners_;  // of query heads, if results are scattered
};

}  // namespace fusewire
