// nodes_all_reduce: the sum over the ranks of all nodes of arrays, on every rank, one kernel launch per call. The
// kernel is in nodes_all_reduce_kernel.hpp.
#pragma once
#include <array>

#include <fusewire/launch/operands.hpp>
#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/ops/detail/nodes_all_reduce_kernel.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct nodes_all_reduce_options {
  std::int64_t max_count = 0;  // capacity: elements of a call
  int reserved_cus = 0;        // compute units left to other work
};

/// A call. All ranks pass the same count.
template <class T>
struct nodes_all_reduce_call {
  T const* in = nullptr;   // [count]: this rank's summands; any alignment
  T* out = nullptr;        // [count]: the sums; may be `in`, else it does not overlap it
  std::int64_t count = 0;  // elements, 0 to max_count
};

/// The sum over the ranks of all nodes of T: float, f16 or bf16. Each rank adds up 1/ranks-per-node of the array, and
/// exchanges its sums with its place on other nodes. Sums are added in fp32: those of a node in the order of its ranks,
/// these in the order of nodes. They are rounded to T once. The bits are the same on every rank, and in every run; on
/// one node they are all_reduce's.
template <class T>
  requires is_16_bit_float<T> || std::is_same_v<T, float>
class nodes_all_reduce {
 public:
  /// Collective in the network's world of all nodes. Loads the kernel. Fails: bad_argument; rank_mismatch;
  /// out_of_space.
  nodes_all_reduce(nodes_channel& ch, nodes_all_reduce_options const& o,
                   std::source_location where = std::source_location::current())
      : ch_(ch), o_(o) {
    check(where);
    (void)load_kernel(world(), kernel, nodes_all_reduce_plan::threads, 0, where);
    ch.near().heap().names().add_launch("nodes_ar", [](std::uint64_t const(&what)[launch_words]) {
      return text("nodes_all_reduce, ", what[2], " elements of ", what[1], " bytes");
    });
    using named = fusewire::heap::named;
    ch.require_equal_on_ranks("nodes_all_reduce", std::array{named{"max_count", std::uint64_t(o.max_count)}}, where);
  }
  nodes_all_reduce(nodes_all_reduce const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~nodes_all_reduce() = default;

  /// What nodes_channel's options should be, at least, for `nodes` nodes of `near` ranks. Requires: options that the
  /// constructor accepts.
  static channel_options channel_for(int nodes, int near, nodes_all_reduce_options const& o) {
    auto const p = plan(o.max_count, near);
    // A call of fewer elements may have chunks that the segment does not fill
    std::int64_t const padding = nodes_all_reduce_plan::max_chunks * nodes_all_reduce_plan::granule;
    nodes_all_reduce_plan const most{1, int(p.segment() + padding)};
    return {.max_bytes = std::size_t(most.slot_bytes(near, nodes, sizeof(T))),
            .flags_per_source = 2 * nodes_all_reduce_plan::max_chunks};
  }

  /// Launches one kernel. Call it on the ranks of all nodes, in the same order, on any stream: see launch(). Can be
  /// captured in a graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, nodes_all_reduce_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    require(c.count >= 0 && c.count <= o_.max_count, where, "nodes_all_reduce: count = ", c.count,
            "; expected 0 to max_count = ", o_.max_count);
    if (c.count > 0) {
      address("in", c.in, where);
      address("out", c.out, where);
      std::uint64_t const bytes = std::uint64_t(c.count) * sizeof(T);
      detail::operand const read{"in", c.in, 1, bytes, bytes}, written{"out", c.out, 1, bytes, bytes};
      bool const in_place = static_cast<T const*>(c.out) == c.in;
      detail::check_operands("nodes_all_reduce", std::span(&written, 1), std::span(&read, in_place ? 0 : 1), where);
    }
    launch_header header = make_header("nodes_ar", sizeof(T), std::uint64_t(c.count));
    header.equal_grids = 0;  // a rank with less room takes fewer blocks
    nodes_all_reduce_plan const p = plan(c.count, world().size());
    constexpr int threads = nodes_all_reduce_plan::threads;
    int const fit = resident_blocks(world(), kernel, threads, 0, o_.reserved_cus, where);
    detail::require_resident("nodes_all_reduce", world(), fit, threads, 0, o_.reserved_cus, where);
    launch(world(), stream, {.blocks = std::clamp(p.chunks, 1, fit), .threads = threads, .where = where}, kernel,
           ch_.view(header), nodes_all_reduce_arguments<T>{c.in, c.out, c.count, p});
  }

  /// How a call of so many elements travels, in words.
  std::string describe(std::int64_t count) const {
    if (count == 0) return "nodes_all_reduce: nothing";
    auto const p = plan(count, world().size());
    return text("nodes_all_reduce: ", p.chunks, " chunks of ", p.chunk * 16, " bytes of each rank's segment");
  }

 private:
  static constexpr auto kernel = &nodes_all_reduce_kernel<T>;
  static constexpr std::int64_t max_elements = nodes_all_reduce_plan::max_vectors * per_16_bytes<T>;

  fusewire::world& world() const { return ch_.near().world(); }
  static nodes_all_reduce_plan plan(std::int64_t count, int near) {
    return nodes_all_reduce_plan::of(count * std::int64_t(sizeof(T)), near);
  }
  void check(std::source_location where) const {
    require(o_.max_count >= 1 && o_.max_count <= max_elements, where, "nodes_all_reduce: max_count = ", o_.max_count,
            "; expected 1 to ", max_elements);
    detail::require_reserved("nodes_all_reduce", world(), o_.reserved_cus, where);
    int const near = world().size(), nodes = ch_.all().size() / near;
    auto const wanted = channel_for(nodes, near, o_), found = ch_.near().options();
    require<out_of_space>(wanted.max_bytes <= found.max_bytes, where, "nodes_all_reduce: ", nodes, " nodes of ", near,
                          " ranks and max_count = ", o_.max_count, " take ", wanted.max_bytes,
                          " bytes; the channel's max_bytes is ", found.max_bytes);
    require<out_of_space>(wanted.flags_per_source <= found.flags_per_source, where, "nodes_all_reduce: needs ",
                          wanted.flags_per_source, " flags per source; the channel has ", found.flags_per_source);
  }
  static void address(char const* name, T const* p, std::source_location where) {
    require(p != nullptr, where, "nodes_all_reduce: ", name, " is null");
    require(reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0, where, "nodes_all_reduce: ", name, " = ", p,
            "; expected an address that is a multiple of ", sizeof(T));
  }

  nodes_channel& ch_;
  nodes_all_reduce_options o_;
};

}  // namespace fusewire
