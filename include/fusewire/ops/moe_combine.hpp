// moe_combine: results of experts to the ranks of their tokens, and their sums, one kernel launch per call. The kernel
// is in moe_combine_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/moe_combine_kernel.hpp>
#include <fusewire/ops/detail/moe_operator.hpp>

namespace fusewire {

/// One call. All ranks pass the same columns, and the routing of the same call of moe_dispatch.
template <class T>
struct moe_combine_call {
  matrix<T const> in;  // [max_rows, cols]: rows in the routing's layout; cols, ld: multiples of 16 bytes
  /// [tokens, cols]: a sum for each token of this rank, 0 for one without experts; those after out.rows are left out
  matrix<T> out;
  /// [max_received, top_k] as the routing's row_weights, by_expert: rows are multiplied by them; null: by 1
  float const* weights = nullptr;
  moe_routing_view routing;  // of the dispatch
};

/// The sum over the experts of each token, in T: f16 or bf16. A rank adds up its experts' rows in fp32, in the order of
/// the token's table, and rounds to T once; by_token it sends its row as it is. The token's rank adds these in fp32, in
/// the order of ranks, and rounds to T once. The same bits in every run. docs/operators.md has the error bound.
template <class T>
  requires is_16_bit_float<T>
class moe_combine : moe_operator {
 public:
  /// Collective. Fails: bad_argument; rank_mismatch; out_of_space when the channel cannot hold the rows or their flags.
  moe_combine(channel& ch, moe_options const& o, std::source_location where = std::source_location::current())
      : moe_operator("moe_combine", ch, o, where) {
    (void)load_kernel(ch.world(), &moe_combine_kernel<T>, moe_threads, 0, where);
    ch.heap().names().add_launch("moe_comb", describe);
    agree(max_bytes(shape_.ranks, o), flags_per_source(shape_.ranks, o), where);
  }
  moe_combine(moe_combine const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~moe_combine() = default;

  /// What the operator needs of a channel. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, moe_options const& o) {
    return channel::requirements(ranks,
                                 {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
  }
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, moe_options const& o) {
    return std::max(std::size_t(1), std::size_t(ranks - 1) * std::size_t(o.max_tokens) * row_bytes(o));
  }
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int, moe_options const& o) { return moe_chunks::most_of(o.max_tokens); }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph, whose replays see the routing of their time.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, moe_combine_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    check(c, where);
    int const chunks = moe_chunks::most_of(std::max(c.out.rows, moe_usual_tokens));
    moe_blocks const blocks = blocks_of(&moe_combine_kernel<T>, 0, (shape_.ranks - 1) * chunks, chunks, where);
    launch_header header =
        make_header("moe_comb", std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(c.weights != nullptr) << 1,
                    std::uint64_t(c.in.cols), std::uint64_t(o_.experts), std::uint64_t(o_.top_k));
    header.equal_grids = 0;  // a rank with less room takes fewer blocks
    launch(ch_.world(), stream, {.blocks = blocks.all, .threads = moe_threads, .where = where}, &moe_combine_kernel<T>,
           ch_.view(header), moe_combine_arguments<T>{c.routing, c.in, c.out, c.weights, blocks.senders});
  }

 private:
  static std::string describe(std::uint64_t const (&what)[launch_words]) {
    return text("moe_combine", what[1] & 1 ? " f16" : " bf16", what[1] & 2 ? " with weights" : "",
                ", columns = ", what[2], ", experts = ", what[3], ", top_k = ", what[4]);
  }

  void check(moe_combine_call<T> const& c, std::source_location where) const {
    int const cols = c.in.cols;
    std::int64_t const bytes = std::int64_t(cols) * std::int64_t(sizeof(T));
    require(cols >= 1 && bytes % 16 == 0 && std::size_t(bytes) <= row_bytes(o_), where, "moe_combine: in has ", cols,
            " columns; expected a multiple of ", per_16_bytes<T>, ", up to ", row_bytes(o_) / sizeof(T));
    require_routing(c.routing, where);
    require(c.in.rows == shape_.max_rows, where, "moe_combine: in has ", c.in.rows,
            " rows; expected max_rows = ", shape_.max_rows);
    require(c.out.cols == cols && c.out.rows >= 0 && c.out.rows <= shape_.max_tokens, where, "moe_combine: out is [",
            c.out.rows, ", ", c.out.cols, "]; expected [up to ", shape_.max_tokens, ", ", cols, "]");
    require(!c.weights || shape_.layout == moe_layout::by_expert, where,
            "moe_combine: weights are given, and rows are by_token; expected rows that have their weights");
    require_view("in", c.in, where);
    if (c.out.rows > 0) require_view("out", c.out, where);
    if (c.weights) require_address("weights", c.weights, 4, where);
    auto const of = [&](char const* name, auto const& m) {
      return detail::operand{name, m.data, std::uint64_t(m.rows), std::uint64_t(bytes),
                             std::uint64_t(m.ld) * sizeof(T)};
    };
    std::uint64_t const entries = std::uint64_t(shape_.max_received()) * std::uint64_t(shape_.top_k);
    detail::operand const read[] = {of("in", c.in), detail::operand{"weights", c.weights, entries, 4, 4}};
    detail::operand const written[] = {of("out", c.out)};
    detail::check_operands("moe_combine", written, read, where);
  }
  template <class U>
  void require_view(char const* name, matrix<U> const& m, std::source_location where) const {
    require_address(name, m.data, 16, where);
    require(m.ld >= m.cols && is_row_aligned<16>(m), where, "moe_combine: ", name, " has ld = ", m.ld,
            "; expected a multiple of ", per_16_bytes<T>, ", at least its ", m.cols, " columns");
  }
};

}  // namespace fusewire
