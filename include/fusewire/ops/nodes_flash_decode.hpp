// nodes_flash_decode: attention of one query token per sequence over a KV cache that is sharded by tokens over the
// ranks of all nodes, one kernel launch per call. The kernel is in nodes_flash_decode_kernel.hpp.
#pragma once
#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/detail/decode_operator.hpp>
#include <fusewire/ops/detail/nodes_flash_decode_kernel.hpp>

namespace fusewire {

/// As flash_decode, for the ranks of all nodes: every rank gets the results of all heads. Ranks of a node combine their
/// partials in fp32, each those of 1/ranks-per-node of the query heads, and exchange them with their place on other
/// nodes; these are combined in fp32 in the order of nodes, and rounded to T once. The bits are the same on every rank
/// and in every run.
/// Across the network: in each call a rank puts rows of (head_dim + 2) x 4 bytes to each other node, one for each
/// sequence and query head that it owns: ceil(q_heads / ranks-per-node) heads or one fewer. A put has at least 4 KiB of
/// rows, if there are as many, and a call has up to 64 puts per rank and other node.
template <class T, decode_features Features = decode_features{}>
class nodes_flash_decode : decode_operator<T, Features> {
  static_assert(is_16_bit_float<T>, "nodes_flash_decode: T is bf16 or f16");
  using base = decode_operator<T, Features>;
  using base::o_;

 public:
  /// Collective in the network's world of all nodes. Takes workspace() of the symmetric heap. Accepts the options of
  /// flash_decode with output::replicated and reduce_algorithm::automatic. Fails: bad_argument; rank_mismatch;
  /// out_of_space.
  nodes_flash_decode(nodes_channel& ch, flash_decode_options const& o,
                     std::source_location where = std::source_location::current())
      : base("nodes_flash_decode", ch.near(), o, where), ch_(ch), owners_(o.q_heads, near()) {
    require(o.output == output::replicated, where,
            "nodes_flash_decode: output::heads; expected output::replicated: a place of a node owns heads, but every "
            "rank gets all results");
    require(o.shots == reduce_algorithm::automatic, where, "nodes_flash_decode: shots = ", int(o.shots),
            "; expected automatic: partial results go to the owner of their head, and results to all ranks");
    int const nodes = ch.all().size() / near();
    auto const wanted = channel_for(nodes, near(), o), found = ch.near().options();
    require<out_of_space>(wanted.max_bytes <= found.max_bytes, where, "nodes_flash_decode: ", nodes, " nodes of ",
                          near(), " ranks, max_batch = ", o.max_batch, " and q_heads = ", o.q_heads, " of ", o.head_dim,
                          " take ", wanted.max_bytes, " bytes; the channel's max_bytes is ", found.max_bytes);
    require<out_of_space>(wanted.flags_per_source <= found.flags_per_source, where, "nodes_flash_decode: needs ",
                          wanted.flags_per_source, " flags per source; the channel has ", found.flags_per_source);
    load_kernel(world(), kernel(), base::threads(), base::shared_bytes(), where);
    ch.near().heap().names().add_launch(
        "nodes_fd", [](std::uint64_t const(&what)[launch_words]) { return "nodes_" + describe_flash_decode(what); });
    ch.require_equal_on_ranks("nodes_flash_decode", base::named_options(), where);
    base::allocate(kernel(), inbox_records(o), where);
  }
  nodes_flash_decode(nodes_flash_decode const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~nodes_flash_decode() = default;

  /// What nodes_channel's options should be, at least, for `nodes` nodes of `near` ranks. Requires: options that the
  /// constructor accepts.
  static channel_options channel_for(int nodes, int near, flash_decode_options const& o) {
    std::int64_t const words = nodes_decode_plan::most_words(o.max_batch * ceil_div(o.q_heads, near), o.head_dim);
    return {.max_bytes = std::size_t(nodes * words) * sizeof(float), .flags_per_source = nodes_decode_plan::max_units};
  }
  /// What the operator takes of the heap of a node's `near` ranks, besides its channel: at least as much on every GPU
  /// that it runs on. Requires: options that the constructor accepts.
  static fusewire::requirements workspace(int near, flash_decode_options const& o) {
    return base::workspace(near, o) +
           ll_buffer::requirements(near, {inbox_records(o), base::shape_of(o, o.max_batch).record.used()});
  }

  /// Launches one kernel. Call it on the ranks of all nodes, in the same order, on any stream: see launch(). Can be
  /// captured in a graph, whose replays see the lengths and tables of their time. All ranks pass the same q and batch.
  /// Requires: as flash_decode.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, flash_decode_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    base::check(c, o_.q_heads, where);
    kv_schedule const schedule = base::schedule_of(kernel(), c.batch, where);
    fusewire::launch(world(), stream, base::shape(schedule, where), kernel(),
                     ch_.view(base::header("nodes_fd", c.batch, false)),
                     nodes_decode_arguments<T>{base::arguments(c, schedule, owners_), base::group(), plan(c.batch)});
  }

  /// How the results of a call travel between nodes, in words.
  std::string describe(int batch) const {
    nodes_decode_plan const p = plan(batch);
    return text("nodes_flash_decode: ", p.rows, " rows of ", p.words_of_row(o_.head_dim) * 4,
                " bytes to each other node, in ", p.units, " puts");
  }

 private:
  fusewire::world& world() const { return ch_.near().world(); }
  int near() const { return world().size(); }
  nodes_decode_plan plan(int batch) const {
    return nodes_decode_plan::of(owners_.of(world().rank()), batch, o_.head_dim);
  }
  static int inbox_records(flash_decode_options const& o) { return o.max_batch * o.kv_heads; }
  auto kernel() const {
    switch (o_.head_dim) {
      case 64: return &nodes_flash_decode_kernel<T, 64, Features.bits()>;
      case 96: return &nodes_flash_decode_kernel<T, 96, Features.bits()>;
      case 192: return &nodes_flash_decode_kernel<T, 192, Features.bits()>;
      case 256: return &nodes_flash_decode_kernel<T, 256, Features.bits()>;
      default: return &nodes_flash_decode_kernel<T, 128, Features.bits()>;
    }
  }

  nodes_channel& ch_;
  head_partition owners_;  // of query heads, by place
};

}  // namespace fusewire
