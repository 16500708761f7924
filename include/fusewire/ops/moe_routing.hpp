// moe_routing: memory for where the tokens of a layer of experts go. moe_dispatch writes it; moe_combine, later layers
// and backward passes use it again.
#pragma once
#include <fusewire/comm/moe_routing_view.hpp>
#include <fusewire/launch/operator_memory.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire {

/// The experts of a layer, and room for its tokens; the same on every rank.
struct moe_options {
  int max_tokens = 0;     // capacity: tokens of a rank
  int experts = 0;        // of all ranks, a multiple of their number; rank r has those from r * experts / ranks on
  int top_k = 0;          // experts of a token, 1 to 16
  int max_row_bytes = 0;  // capacity: bytes of a row and its scales; both are rounded up to multiples of 16
  moe_layout layout = moe_layout::by_token;  // of the rows that a rank receives
  int alignment = 1;                         // by_expert: an expert's first row is a multiple of it
  /// Capacity: rows that a rank receives, in its layout. 0: the most that can come. Where more come, check() throws
  /// bad_argument
  int max_rows = 0;
  int reserved_cus = 0;  // compute units left to other work
};

namespace detail {

/// The shape of a layer. Fails: bad_argument, beginning with `name`.
inline moe_shape moe_shape_of(char const* name, int ranks, moe_options const& o, std::source_location where) {
  constexpr int max_extent = 1 << 30;
  require(o.max_tokens >= 1 && o.max_tokens <= moe_shape::most_tokens, where, name, ": max_tokens = ", o.max_tokens,
          "; expected 1 to ", moe_shape::most_tokens);
  require(o.experts >= 1 && o.experts % ranks == 0 && o.experts / ranks <= moe_shape::most_experts, where, name,
          ": experts = ", o.experts, "; expected a multiple of the ", ranks, " ranks, up to ", moe_shape::most_experts,
          " for each");
  require(o.top_k >= 1 && o.top_k <= moe_shape::most_top_k, where, name, ": top_k = ", o.top_k, "; expected 1 to ",
          moe_shape::most_top_k);
  require(o.alignment >= 1 && o.alignment <= 1 << 16, where, name, ": alignment = ", o.alignment, "; expected 1 to ",
          1 << 16);
  require(o.layout == moe_layout::by_token || o.layout == moe_layout::by_expert, where, name,
          ": layout = ", int(o.layout), "; expected a value of fusewire::moe_layout");
  moe_shape s{.ranks = ranks,
              .max_tokens = o.max_tokens,
              .experts = o.experts / ranks,
              .top_k = o.top_k,
              .alignment = o.alignment,
              .layout = o.layout};
  require(s.worst_rows() <= max_extent && std::int64_t(ranks) * o.max_tokens * o.top_k <= max_extent, where, name,
          ": up to ", s.worst_rows(), " rows for a rank; expected up to ", max_extent);
  require(o.max_rows >= 0 && o.max_rows <= s.worst_rows(), where, name, ": max_rows = ", o.max_rows, "; expected 0 to ",
          s.worst_rows(), ", the most that can come");
  s.max_rows = o.max_rows ? o.max_rows : int(s.worst_rows());
  return s;
}

}  // namespace detail

/// A routing's memory, on this rank's device.
class moe_routing {
 public:
  /// Not collective. Fails: bad_argument; runtime_failure.
  moe_routing(world& w, moe_options const& o, std::source_location where = std::source_location::current())
      : shape_(detail::moe_shape_of("moe_routing", w.size(), o, where)),
        memory_(w, moe_routing_view::bytes(shape_), "moe_routing", where) {
    w.fill(memory_.get(), 0, moe_routing_view::bytes(shape_), "moe_routing", where);
  }

  /// What calls and kernels get: it is plain, and valid as long as this object.
  moe_routing_view view() const { return moe_routing_view::at(memory_.get(), shape_); }
  /// As view().
  operator moe_routing_view() const { return view(); }

 private:
  moe_shape shape_;
  operator_memory memory_;
};

}  // namespace fusewire
