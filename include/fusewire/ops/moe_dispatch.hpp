// moe_dispatch: each token's row to the ranks of its experts, one kernel launch per call. The kernel is in
// moe_dispatch_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/moe_dispatch_kernel.hpp>
#include <fusewire/ops/detail/moe_operator.hpp>

namespace fusewire {

/// Rows of bytes in memory: elements of any type.
template <class Byte>
struct moe_rows {
  Byte* data = nullptr;    // row 0; null: no rows
  int bytes = 0;           // of a row
  std::int64_t pitch = 0;  // bytes from one row to the next

  moe_rows() = default;
  /// Rows of `bytes` bytes, `pitch` bytes from one to the next.
  template <class Void>
    requires std::is_void_v<Void>
  moe_rows(Void* data, int bytes, std::int64_t pitch) : data(static_cast<Byte*>(data)), bytes(bytes), pitch(pitch) {}
  /// Those of a matrix, however many it has.
  template <class T>
    requires(std::is_const_v<Byte> || !std::is_const_v<T>)
  moe_rows(matrix<T> const& m)
      : data(reinterpret_cast<Byte*>(m.data)), bytes(int(std::size_t(m.cols) * sizeof(T))),
        pitch(m.ld * std::int64_t(sizeof(T))) {}
};

/// One call. All ranks pass rows of the same bytes, and either all of them weights or none; each has its own tokens.
struct moe_dispatch_call {
  moe_rows<std::byte const> x;            // [tokens]: bytes a multiple of 16, at multiples of 16
  moe_rows<std::byte const> scales = {};  // [tokens]: bytes a multiple of 4, at multiples of 4; none: no scales
  moe_rows<std::byte> out;  // [max_rows]: what comes here, in the layout; rows between experts stay as they are
  moe_rows<std::byte> out_scales = {};         // [max_rows], where there are scales
  std::int32_t const* experts = nullptr;       // [tokens, top_k]; -1: none
  std::int64_t const* wide_experts = nullptr;  // the same as 64-bit integers, instead
  float const* weights = nullptr;              // [tokens, top_k], for the routing's row_weights; null: all 1
  int tokens = 0;                              // of this rank, 0 to max_tokens
  /// On the device: how many tokens there are, 0 to `tokens`; null: all. Replays of a graph see the number of their
  /// time
  std::int32_t const* device_tokens = nullptr;
  moe_routing_view routing;  // written; with `routed` read
  /// True: `routing` is that of an earlier call whose tokens lie in the same order. Experts and weights are not read.
  /// Every rank passes the same
  bool routed = false;
};

/// Sends the rows of tokens, in 16 bits, in 8 bits with scales, or any others. A token goes to a rank once, however
/// many of its experts the rank has. Rows come in an order that depends on nothing but the tables; see moe_layout.
class moe_dispatch : moe_operator {
 public:
  /// Collective. Fails: bad_argument; rank_mismatch; out_of_space when the channel cannot hold the rows or their flags.
  moe_dispatch(channel& ch, moe_options const& o, std::source_location where = std::source_location::current())
      : moe_operator("moe_dispatch", ch, o, where) {
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
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, moe_options const& o) {
    return moe_inbox{shape_of(ranks, o), {.row = int(row_bytes(o))}}.bytes();
  }
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int ranks, moe_options const& o) { return moe_dispatch_flags::count(shape_of(ranks, o)); }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph, whose replays see the tables of their time.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors(). check() throws bad_argument where a
  /// table has an expert that does not exist, *device_tokens is out of range, or more than max_rows rows come.
  void operator()(hipStream_t stream, moe_dispatch_call const& c,
                  std::source_location where = std::source_location::current()) {
    check(c, where);
    moe_token_bytes const token{c.x.bytes, c.scales.data ? c.scales.bytes : 0};
    auto const payload = [](auto const& rows, auto const& scales) {
      return moe_payload{const_cast<std::byte*>(rows.data), const_cast<std::byte*>(scales.data), rows.pitch,
                         scales.pitch};
    };
    moe_blocks const blocks =
        blocks_of(&moe_dispatch_kernel<>, shared_bytes(), std::max(shape_.segments(), moe_chunks::most_of(c.tokens)),
                  shape_.ranks * moe_chunks::most_of(std::max(c.tokens, moe_usual_tokens)), where);
    moe_dispatch_arguments const g{.routing = c.routing,
                                   .token = token,
                                   .in = payload(c.x, c.scales),
                                   .out = payload(c.out, c.out_scales),
                                   .experts = table(c),
                                   .wide = c.experts == nullptr,
                                   .weights = c.weights,
                                   .tokens = c.tokens,
                                   .device_tokens = c.device_tokens,
                                   .routed = c.routed,
                                   .senders = blocks.senders};
    launch_header header = make_header(
        "moe_disp", std::uint64_t(c.routed) | std::uint64_t(c.weights != nullptr && !c.routed) << 1,
        std::uint64_t(token.row), std::uint64_t(token.scales), std::uint64_t(o_.experts), std::uint64_t(o_.top_k));
    header.equal_grids = 0;  // ranks have different numbers of tokens
    launch(ch_.world(), stream,
           {.blocks = blocks.all, .threads = moe_threads, .shared_bytes = shared_bytes(), .where = where},
           &moe_dispatch_kernel<>, ch_.view(header), g);
  }

 private:
  static moe_shape shape_of(int ranks, moe_options const& o) {
    return detail::moe_shape_of("moe_dispatch", ranks, o, std::source_location::current());
  }
  int shared_bytes() const { return moe_dispatch_shared(shape_); }
  static void const* table(moe_dispatch_call const& c) {
    return c.experts ? static_cast<void const*>(c.experts) : c.wide_experts;
  }
  static std::string describe(std::uint64_t const (&what)[launch_words]) {
    return text("moe_dispatch", what[1] & 1 ? " by an earlier routing" : "", what[1] & 2 ? " with weights" : "",
                ", rows of ", what[2], " bytes and ", what[3], " of scales, experts = ", what[4],
                ", top_k = ", what[5]);
  }

  void check(moe_dispatch_call const& c, std::source_location where) const {
    require(c.tokens >= 0 && c.tokens <= o_.max_tokens, where, "moe_dispatch: tokens = ", c.tokens,
            "; expected 0 to max_tokens = ", o_.max_tokens);
    require(c.x.bytes >= 16 && c.x.bytes % 16 == 0, where, "moe_dispatch: x has rows of ", c.x.bytes,
            " bytes; expected a multiple of 16");
    bool const any = c.tokens > 0, scaled = c.scales.data != nullptr, routes = !c.routed;
    require(!scaled || (c.scales.bytes >= 4 && c.scales.bytes % 4 == 0), where, "moe_dispatch: scales has rows of ",
            c.scales.bytes, " bytes; expected a multiple of 4");
    int const bytes = moe_token_bytes{c.x.bytes, scaled ? c.scales.bytes : 0}.pitch();
    require(std::size_t(bytes) <= row_bytes(o_), where, "moe_dispatch: a row and its scales take ", bytes,
            " bytes; max_row_bytes is ", o_.max_row_bytes);
    require_routing(c.routing, where);
    if (any) require_rows("x", c.x, c.x.bytes, 16, where);
    if (any && scaled) require_rows("scales", c.scales, c.scales.bytes, 4, where);
    require_rows("out", c.out, c.x.bytes, 16, where);
    if (scaled) require_rows("out_scales", c.out_scales, c.scales.bytes, 4, where);
    require(!(c.experts && c.wide_experts), where,
            "moe_dispatch: both experts and wide_experts are given; expected one of them");
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
    detail::check_operands("moe_dispatch", written, read, where);
  }
  template <class Byte>
  void require_rows(char const* name, moe_rows<Byte> const& r, int bytes, int multiple,
                    std::source_location where) const {
    require_address(name, r.data, multiple, where);
    require(r.bytes == bytes, where, "moe_dispatch: ", name, " has rows of ", r.bytes, " bytes; expected ", bytes);
    require(r.pitch >= bytes && r.pitch % multiple == 0, where, "moe_dispatch: rows of ", name, " are ", r.pitch,
            " bytes apart; expected a multiple of ", multiple, ", at least ", bytes);
  }
};

}  // namespace fusewire
