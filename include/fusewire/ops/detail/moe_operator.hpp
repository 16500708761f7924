// What moe_dispatch and moe_combine have in common: a channel, the shape of the layer, and checks.
#pragma once
#include <algorithm>
#include <array>

#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/operands.hpp>
#include <fusewire/ops/detail/moe_blocks.hpp>
#include <fusewire/ops/moe_routing.hpp>

namespace fusewire {

/// The host side of both, but for their calls.
class moe_operator {
 protected:
  /// Fails: bad_argument, beginning with `name`.
  moe_operator(char const* name, channel& ch, moe_options const& o, std::source_location where)
      : name_(name), ch_(ch), o_(o), shape_(detail::moe_shape_of(name, ch.world().size(), o, where)) {
    require(o.max_row_bytes >= 16 && o.max_row_bytes <= 1 << 24, where, name, ": max_row_bytes = ", o.max_row_bytes,
            "; expected 16 to ", 1 << 24);
    detail::require_reserved(name, ch.world(), o.reserved_cus, where);
  }
  ~moe_operator() = default;

  /// Bytes of a row at most.
  static std::size_t row_bytes(moe_options const& o) { return round_up(std::size_t(o.max_row_bytes), 16); }

  /// Collective. Fails: out_of_space when the channel has not so much; rank_mismatch when ranks have other options.
  void agree(std::size_t bytes, int flags, std::source_location where) const {
    require<out_of_space>(bytes <= ch_.options().max_bytes, where, name_, ": what ", shape_.ranks, " ranks send for ",
                          "max_tokens = ", o_.max_tokens, " and max_row_bytes = ", o_.max_row_bytes, " takes ", bytes,
                          " bytes; the channel's max_bytes is ", ch_.options().max_bytes);
    require<out_of_space>(flags <= ch_.options().flags_per_source, where, name_, ": needs ", flags,
                          " flags per source; the channel has ", ch_.options().flags_per_source);
    using named = fusewire::heap::named;
    auto const number = [](char const* name, int value) { return named{name, std::uint64_t(value)}; };
    ch_.heap().require_equal_on_ranks(name_,
                                      std::array{number("max_tokens", o_.max_tokens), number("experts", o_.experts),
                                                 number("top_k", o_.top_k), number("max_row_bytes", o_.max_row_bytes)},
                                      where);
  }
  /// Tokens of a rank for which blocks are counted, if this one has `tokens`: others may have more.
  int usual_tokens(int tokens) const { return std::min(o_.max_tokens, std::max(tokens, 64)); }
  /// The blocks of a launch that sends `sent` pieces and receives `received`. Fails: bad_argument when none fits.
  template <class... P>
  moe_blocks blocks_of(void (*kernel)(P...), int shared_bytes, int sent, int received,
                       std::source_location where) const {
    int const fit = resident_blocks(ch_.world(), kernel, moe_threads, shared_bytes, o_.reserved_cus, where);
    detail::require_resident(name_, ch_.world(), fit, moe_threads, shared_bytes, o_.reserved_cus, where);
    return moe_blocks::of(sent, received, std::min(fit, moe_blocks_per_cu * ch_.world().cus_per_rank(o_.reserved_cus)));
  }
  /// Fails: bad_argument when a call's routing is not one of this layer's.
  void require_routing(moe_routing_view const& r, std::source_location where) const {
    require(r.tokens != nullptr, where, name_, ": routing is empty; expected that of a moe_routing");
    require(r.shape == shape_, where, name_, ": routing was made with other options than the operator");
  }
  /// Fails: bad_argument when rows are by_token.
  void require_by_expert(std::source_location where) const {
    require(shape_.layout == moe_layout::by_expert, where, name_,
            ": layout = by_token; expected by_expert: an expert's rows lie side by side");
  }
  /// Fails: bad_argument when p is null or no multiple.
  void require_address(char const* what, void const* p, int multiple, std::source_location where) const {
    require(p != nullptr, where, name_, ": ", what, " is null");
    require(reinterpret_cast<std::uintptr_t>(p) % unsigned(multiple) == 0, where, name_, ": ", what, " = ", p,
            "; expected an address that is a multiple of ", multiple);
  }

  char const* name_;  // of the operator, in messages
  channel& ch_;       // whose launches it adds to
  moe_options o_;     // as given
  moe_shape shape_;   // from them
};

}  // namespace fusewire
