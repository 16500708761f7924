// The host side of operators that combine: checks, what their kernels are told, and what the channel must hold.
#pragma once
#include <fusewire/ops/detail/moe_operator.hpp>
#include <fusewire/ops/detail/moe_results.hpp>
#include <fusewire/ops/moe_combine_call.hpp>

namespace fusewire {

/// A base class.
template <class T>
class moe_combiner : protected moe_operator {
 public:
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, moe_options const& o) {
    return std::max(std::size_t(1), std::size_t(ranks - 1) * std::size_t(o.max_tokens) * row_bytes(o));
  }

 protected:
  using moe_operator::moe_operator;
  ~moe_combiner() = default;

  /// Flags of a source for the combine alone.
  static int flags_of_combine(moe_options const& o) { return moe_chunks::most_of(o.max_tokens); }
  /// Pieces that a call receives; it sends as many to each other rank.
  int received(moe_combine_call<T> const& c) const { return moe_chunks::most_of(usual_tokens(c.out.rows)); }
  /// What the kernel is told of a call, of whose blocks `senders` send.
  static moe_combine_arguments<T> arguments(moe_combine_call<T> const& c, int senders) {
    return {c.routing, c.in, c.out, c.weights, senders};
  }
  /// A launch's header: `launch_name` of up to 8 letters.
  launch_header header(char const* launch_name, moe_combine_call<T> const& c) const {
    launch_header h =
        make_header(launch_name, std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(c.weights != nullptr) << 1,
                    std::uint64_t(c.in.cols), std::uint64_t(o_.experts), std::uint64_t(o_.top_k));
    h.equal_grids = 0;  // a rank with less room takes fewer blocks
    return h;
  }
  /// A launch in words, from what its header says.
  static std::string in_words(char const* name, std::uint64_t const (&what)[launch_words]) {
    return text(name, what[1] & 1 ? " f16" : " bf16", what[1] & 2 ? " with weights" : "", ", columns = ", what[2],
                ", experts = ", what[3], ", top_k = ", what[4]);
  }
  /// Fails: bad_argument.
  void check(moe_combine_call<T> const& c, std::source_location where) const {
    int const cols = c.in.cols;
    std::int64_t const bytes = std::int64_t(cols) * std::int64_t(sizeof(T));
    require(cols >= 1 && bytes % 16 == 0 && std::size_t(bytes) <= row_bytes(o_), where, name_, ": in has ", cols,
            " columns; expected a multiple of ", per_16_bytes<T>, ", up to ", row_bytes(o_) / sizeof(T));
    require_routing(c.routing, where);
    require(c.in.rows == shape_.max_rows, where, name_, ": in has ", c.in.rows,
            " rows; expected max_rows = ", shape_.max_rows);
    require(c.out.cols == cols && c.out.rows >= 0 && c.out.rows <= shape_.max_tokens, where, name_, ": out is [",
            c.out.rows, ", ", c.out.cols, "]; expected [up to ", shape_.max_tokens, ", ", cols, "]");
    require(!c.weights || shape_.layout == moe_layout::by_expert, where, name_,
            ": weights are given, and rows are by_token; expected rows that have their weights");
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
    detail::check_operands(name_, written, read, where);
  }

 private:
  template <class U>
  void require_view(char const* name, matrix<U> const& m, std::source_location where) const {
    require_address(name, m.data, 16, where);
    require(m.ld >= m.cols && is_row_aligned<16>(m), where, name_, ": ", name, " has ld = ", m.ld,
            "; expected a multiple of ", per_16_bytes<T>, ", at least its ", m.cols, " columns");
  }
};

}  // namespace fusewire
