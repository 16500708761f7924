// The host side of operators that dispatch tokens: checks, what their kernels are told, and what the channel must hold.
#pragma once
#include <fusewire/ops/detail/moe_operator.hpp>
#include <fusewire/ops/detail/moe_rows.hpp>
#include <fusewire/ops/moe_dispatch_call.hpp>

namespace fusewire {

/// A base class.
class moe_dispatcher : protected moe_operator {
 public:
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, moe_options const& o) {
    return moe_inbox{shape_of(ranks, o), {.row = int(row_bytes(o))}}.bytes();
  }

 protected:
  using moe_operator::moe_operator;
  ~moe_dispatcher() = default;

  /// As the constructor finds it.
  static moe_shape shape_of(int ranks, moe_options const& o) {
    return detail::moe_shape_of("moe_dispatch", ranks, o, std::source_location::current());
  }
  /// Flags of a source for the dispatch alone.
  static int flags_of_dispatch(int ranks, moe_options const& o) {
    return moe_dispatch_flags::count(shape_of(ranks, o));
  }
  /// Of a block that dispatches.
  int shared_bytes() const { return moe_dispatch_shared(shape_); }
  /// Pieces that a call sends.
  int sent(moe_dispatch_call const& c) const { return std::max(shape_.segments(), moe_chunks::most_of(c.tokens)); }
  /// Pieces that it receives.
  int received(moe_dispatch_call const& c) const { return shape_.ranks * moe_chunks::most_of(usual_tokens(c.tokens)); }
  /// What the kernel is told of a call, of whose blocks `senders` send.
  moe_dispatch_arguments arguments(moe_dispatch_call const& c, int senders) const {
    auto const payload = [](auto const& rows, auto const& scales) {
      return moe_payload{const_cast<std::byte*>(rows.data), const_cast<std::byte*>(scales.data), rows.pitch,
                         scales.pitch};
    };
    return {.routing = c.routing,
            .token = token_bytes(c),
            .in = payload(c.x, c.scales),
            .out = payload(c.out, c.out_scales),
            .experts = table(c),
            .wide = c.experts == nullptr,
            .weights = c.weights,
            .tokens = c.tokens,
            .device_tokens = c.device_tokens,
            .routed = c.routed,
            .senders = senders};
  }
  /// A launch's header: `launch_name` of up to 8 letters.
  launch_header header(char const* launch_name, moe_dispatch_call const& c) const {
    moe_token_bytes const token = token_bytes(c);
    launch_header h = make_header(
        launch_name, std::uint64_t(c.routed) | std::uint64_t(c.weights != nullptr && !c.routed) << 1,
        std::uint64_t(token.row), std::uint64_t(token.scales), std::uint64_t(o_.experts), std::uint64_t(o_.top_k));
    h.equal_grids = 0;  // ranks have different numbers of tokens
    return h;
  }
  /// A launch in words, from what its header says.
  static std::string in_words(char const* name, std::uint64_t const (&what)[launch_words]) {
    return text(name, what[1] & 1 ? " by an earlier routing" : "", what[1] & 2 ? " with weights" : "", ", rows of ",
                what[2], " bytes and ", what[3], " of scales, experts = ", what[4], ", top_k = ", what[5]);
  }
  /// Fails: bad_argument.
  void check(moe_dispatch_call const& c, std::source_location where) const {
    require(c.tokens >= 0 && c.tokens <= o_.max_tokens, where, name_, ": tokens = ", c.tokens,
            "; expected 0 to max_tokens = ", o_.max_tokens);
    require(c.x.bytes >= 16 && c.x.bytes % 16 == 0, where, name_, ": x has rows of ", c.x.bytes,
            " bytes; expected a multiple of 16");
    bool const any = c.tokens > 0, scaled = c.scales.data != nullptr, routes = !c.routed;
    require(!scaled || (c.scales.bytes >= 4 && c.scales.bytes % 4 == 0), where, name_, ": scales has rows of ",
            c.scales.bytes, " bytes; expected a multiple of 4");
    int const bytes = moe_token_bytes{c.x.bytes, scaled ? c.scales.bytes : 0}.pitch();
    require(std::size_t(bytes) <= row_bytes(o_), where, name_, ": a row and its scales take ", bytes,
            " bytes; max_row_bytes is ", o_.max_row_bytes);
    require_routing(c.routing, where);
    if (any) require_rows("x", c.x, c.x.bytes, 16, where);
    if (any && scaled) require_rows("scales", c.scales, c.scales.bytes, 4, where);
    require_rows("out", c.out, c.x.bytes, 16, where);
    if (scaled) require_rows("out_scales", c.out_scales, c.scales.bytes, 4, where);
    require(!(c.experts && c.wide_experts), where, name_,
            ": both experts and wide_experts are given; expected one of them");
    if (any && routes) require_address("experts", table(c), c.experts ? 4 : 8, where);
    if (c.weights) require_address("weights", c.weights, 4, where);
    if (c.device_tokens) require_address("device_tokens", c.device_tokens, 4, where);
    std::uint64_t const tokens = std::uint64_t(c.tokens), entries = routes ? tokens * std::uint64_t(o_.top_k) : 0,
                        most = std::uint64_t(shape_.max_rows), entry = c.experts ? 4 : 8;
    auto const of = [](char const* name, auto const& r, std::uint64_t count) {
      return detail::operand{name, r.data, count, std::uint64_t(r.bytes), std::uint64_t(r.pitch)};
    };
    detail::operand const read[] = {of("x", c.x, tokens), of("scales", c.scales, tokens),
                                    detail::operand{"experts", table(c), entries, entry, entry},
                                    detail::operand{"weights", c.weights, entries, 4, 4},
                                    detail::operand{"device_tokens", c.device_tokens, 1, 4, 4}};
    detail::operand const written[] = {of("out", c.out, most), of("out_scales", c.out_scales, scaled ? most : 0)};
    detail::check_operands(name_, written, read, where);
  }

 private:
  static void const* table(moe_dispatch_call const& c) {
    return c.experts ? static_cast<void const*>(c.experts) : c.wide_experts;
  }
  template <class Byte>
  void require_rows(char const* name, moe_rows<Byte> const& r, int bytes, int multiple,
                    std::source_location where) const {
    require_address(name, r.data, multiple, where);
    require(r.bytes == bytes, where, name_, ": ", name, " has rows of ", r.bytes, " bytes; expected ", bytes);
    require(r.pitch >= bytes && r.pitch % multiple == 0, where, name_, ": rows of ", name, " are ", r.pitch,
            " bytes apart; expected a multiple of ", multiple, ", at least ", bytes);
  }
  static moe_token_bytes token_bytes(moe_dispatch_call const& c) {
    return {c.x.bytes, c.scales.data ? c.scales.bytes : 0};
  }
};

}  // namespace fusewire
