// flash_decode: attention of one query token per sequence over a KV cache that is sharded over the ranks by tokens, one
// kernel launch per call. The kernel is in flash_decode_kernel.hpp.
#pragma once
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include <fusewire/ops/detail/flash_decode_kernel.hpp>
#include <fusewire/ops/flash_decode_call.hpp>
#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/ll_buffer.hpp>
#include <fusewire/launch/operands.hpp>

namespace fusewire {

/// Attention of one query token per sequence over a paged KV cache, of which every rank holds some of the tokens. Its
/// launches are in the same order on every rank, each on any stream.
template <class T, decode_features Features = decode_features{}>
class flash_decode {
  static_assert(is_16_bit_float<T>, "flash_decode: T is bf16 or f16; a KV cache in fp8, with scales, is not there");

 public:
  /// Collective. Takes memory for blocks' partials from the symmetric heap, and signal_bytes() of its signal segment.
  /// Fails: bad_argument; rank_mismatch; out_of_space. Uses neither slots nor data flags of the channel.
  flash_decode(channel& ch, flash_decode_options const& o, std::source_location where = std::source_location::current())
      : ch_(ch), o_(o), owners_(std::max(1, o.q_heads), ch.world().size()) {
    check(where);
    if (o_.scale == 0) o_.scale = 1 / std::sqrt(float(o_.head_dim));
    load_kernel(ch.world(), kernel(), threads(), shared_bytes(), where);
    auto& h = ch.heap();
    h.names().add_launch("flashdec", describe_flash_decode);
    using named = fusewire::heap::named;
    auto const number = [](char const* name, int value) { return named{name, std::uint64_t(value)}; };
    h.require_equal_on_ranks(
        "flash_decode",
        std::array{number("max_batch", o.max_batch), number("head_dim", o.head_dim), number("q_heads", o.q_heads),
                   number("kv_heads", o.kv_heads), number("shots", int(o.shots)), number("output", int(o.output)),
                   named{"scale (its bits)", std::bit_cast<std::uint32_t>(o_.scale)}},
        where);
    for (int b : ch.world().exchange().all_gather(schedule_of(o.max_batch, where).blocks))
      blocks_ = std::max(blocks_, b);
    workspace_ = {h, h.template allocate<split_kv_view::word>(split_kv_view::size(records(), record()), 256, where)};
    inbox_.emplace(ch, ll_buffer_options{inbox_records(ch.world().size(), o), record().used(), "item"}, where);
    sym<split_kv_view::word> const words = workspace_.get();
    ch.world().fill(h.here(words), 0, words.count * sizeof(split_kv_view::word), "flash_decode: workspace", where);
    ch.world().exchange().barrier();
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
    check(c, where);
    kv_schedule const schedule = schedule_of(c.batch, where);
    bool const looks = detail::checked || detail::simulator::get().there();
    decode_lengths lengths(c.lengths, c.batch, max_tokens() + looks, o_.kv_heads, schedule.attending);
    lengths.outside = c.window_begins;
    lengths.pieces = pieces(o_);
    decode_arguments<T> const g{
        .q = c.q,
        .k = c.k_cache,
        .v = c.v_cache,
        .pages = c.block_table,
        .out = c.out,
        .lse = c.lse,
        .lengths = lengths,
        .max_pages = o_.max_pages,
        .page_shift = std::countr_zero(unsigned(o_.page_size)),
        .group = group(),
        .two_shot = !scattered() && (o_.shots == reduce_algorithm::automatic ? schedule.two_shot
                                                                             : o_.shots == reduce_algorithm::two_shot),
        .kv_is_ready = c.kv_is_ready && aligned(c.k_cache) && aligned(c.v_cache),
        .scores = {o_.scale * log2_of_e, c.soft_cap * log2_of_e},
        .lse_unit = o_.lse_base == lse_base::two ? 1 : ln_of_2,
        .inbox = inbox_->view(),
        .workspace = {ch_.heap().here(workspace_.get()), records()},
        .vec4s = record().vec4s(),
        .pages_to_check = looks ? c.pages : 0,
        .scattered = scattered(),
        .own = own(),
        .owners = owners_};
    launch_header header = make_header(
        "flashdec",
        std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(scattered()) << 1 |
            std::uint64_t(Features.batch_invariant) << 2 | std::uint64_t(o_.head_dim) << 8,
        std::uint64_t(c.batch), std::uint64_t(o_.q_heads), std::uint64_t(o_.kv_heads), std::uint64_t(o_.max_batch));
    header.equal_grids = 0;  // a rank with less room takes fewer
    fusewire::launch(ch_.world(), stream,
                     {.blocks = schedule.blocks,
                      .threads = threads(),
                      .shared_bytes = shared_bytes(),
                      .programmatic = detail::may_be_early(o_.reserved_cus),
                      .where = where},
                     kernel(), ch_.view(header), g);
  }

  /// The query heads that a rank owns with output::heads, in contiguous ranges of which the first ones may have one
  /// head more; none if there are fewer heads than ranks. Requires: options that the constructor accepts.
  static index_range heads_of(int rank, int ranks, flash_decode_options const& o) {
    return head_partition(o.q_heads, ranks).of(rank);
  }

  /// What the operator takes of a heap of `ranks` ranks, with a channel that it needs: at least as much on every GPU
  /// that it runs on. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, flash_decode_options const& o) {
    decode_shape const shape = shape_of(o, o.max_batch);
    decode_policy const policy = decode_policy_for(o.head_dim);
    int const blocks = kv_schedule::of(shape, ranks, policy, {policy.most_cus, std::numeric_limits<int>::max()}).blocks;
    return channel::requirements(ranks, {.max_bytes = 1, .flags_per_source = 1}) +
           fusewire::requirements::of<split_kv_view::word>(split_kv_view::size(records(blocks, o), shape.record)) +
           ll_buffer::requirements(ranks, {inbox_records(ranks, o), shape.record.used()});
  }
  /// What an operator takes of the signal segment: an inbox for the results of `ranks` ranks, twice.
  static std::size_t signal_bytes(int ranks, flash_decode_options const& o) {
    return ll_buffer::bytes(ranks, inbox_records(ranks, o), shape_of(o, o.max_batch).record.used());
  }

 private:
  /// Whether no two tokens share what a unit caches together.
  static bool aligned(void const* cache) { return reinterpret_cast<std::uintptr_t>(cache) % 32 == 0; }
  /// Whether ranks have results of different heads.
  bool scattered() const { return o_.output == output::heads && ch_.world().size() > 1; }
  /// The query heads whose results this rank has.
  index_range own() const { return scattered() ? owners_.of(ch_.world().rank()) : index_range{0, o_.q_heads}; }
  int group() const { return o_.q_heads / o_.kv_heads; }
  /// Most pieces of a head item, if they are batch-invariant.
  static int pieces(flash_decode_options const& o) {
    return decode_lengths::pieces_that_pay(shape_of(o, o.max_batch), decode_policy_for(o.head_dim));
  }
  /// Records of the workspace, for launches of up to `blocks` blocks.
  static int records(int blocks, flash_decode_options const& o) {
    return Features.batch_invariant ? o.max_batch * o.kv_heads * pieces(o) : 2 * blocks;
  }
  int records() const { return records(blocks_, o_); }
  /// A single rank sends nothing.
  static int inbox_records(int ranks, flash_decode_options const& o) {
    return ranks == 1 ? 1 : o.max_batch * o.kv_heads;
  }
  static decode_shape shape_of(flash_decode_options const& o, int batch) {
    return {batch, o.max_pages * o.page_size, o.kv_heads, {o.q_heads / o.kv_heads, o.head_dim}};
  }
  int max_tokens() const { return o_.max_pages * o_.page_size; }
  int threads() const { return decode_threads(o_.head_dim); }
  int shared_bytes() const { return decode_shared::bytes(group(), o_.head_dim); }
  decode_record record() const { return {group(), o_.head_dim}; }
  auto kernel() const {
    switch (o_.head_dim) {
      case 64: return &flash_decode_kernel<T, 64, Features.bits()>;
      case 96: return &flash_decode_kernel<T, 96, Features.bits()>;
      case 192: return &flash_decode_kernel<T, 192, Features.bits()>;
      case 256: return &flash_decode_kernel<T, 256, Features.bits()>;
      default: return &flash_decode_kernel<T, 128, Features.bits()>;
    }
  }

  kv_schedule schedule_of(int batch, std::source_location where) const {
    int const fit = resident_blocks(ch_.world(), kernel(), threads(), shared_bytes(), o_.reserved_cus, where);
    detail::require_resident("flash_decode", ch_.world(), fit, threads(), shared_bytes(), o_.reserved_cus, where);
    return kv_schedule::of(shape_of(o_, batch), ch_.world().size(), decode_policy_for(o_.head_dim),
                           {ch_.world().cus_per_rank(o_.reserved_cus), fit});
  }

  void check(std::source_location where) const {
    auto const& o = o_;
    constexpr int max_extent = 1 << 30, max_heads = 1 << 20;
    require(o.max_batch >= 1, where, "flash_decode: max_batch = ", o.max_batch, "; expected at least 1");
    require(o.kv_heads >= 1 && o.kv_heads <= max_heads, where, "flash_decode: kv_heads = ", o.kv_heads,
            "; expected 1 to ", max_heads);
    require(o.q_heads >= o.kv_heads && o.q_heads % o.kv_heads == 0 && o.q_heads / o.kv_heads <= 16, where,
            "flash_decode: q_heads = ", o.q_heads, "; expected 1 to 16 times kv_heads = ", o.kv_heads);
    require(o.head_dim == 64 || o.head_dim == 96 || o.head_dim == 128 || o.head_dim == 192 || o.head_dim == 256, where,
            "flash_decode: head_dim = ", o.head_dim, "; expected 64, 96, 128, 192 or 256, the same for K and V",
            o.head_dim == 576 || o.head_dim == 512 ? ": there is no kernel for multi-head latent attention" : "");
    require(group() <= decode_shared::most_heads(o.head_dim), where, "flash_decode: q_heads = ", o.q_heads,
            " of head_dim = ", o.head_dim, "; expected up to ", decode_shared::most_heads(o.head_dim),
            " times kv_heads = ", o.kv_heads, ", whose results the shared memory has room for");
    require(o.page_size >= 1 && std::has_single_bit(unsigned(o.page_size)), where,
            "flash_decode: page_size = ", o.page_size, "; expected a power of two");
    require(o.max_pages >= 1 && o.max_pages <= max_extent / o.page_size, where,
            "flash_decode: max_pages = ", o.max_pages, "; expected 1 to ", max_extent / o.page_size, " pages of ",
            o.page_size, " tokens");
    require(o.max_batch <= max_extent / o.max_pages, where, "flash_decode: max_batch = ", o.max_batch,
            " with max_pages = ", o.max_pages, "; expected a block table of up to ", max_extent, " entries");
    require(std::isfinite(o.scale), where, "flash_decode: scale = ", o.scale,
            "; expected a finite number, 0 for 1 / sqrt(head_dim)");
    require(o.shots == reduce_algorithm::automatic || o.shots == reduce_algorithm::one_shot ||
                o.shots == reduce_algorithm::two_shot,
            where, "flash_decode: shots = ", int(o.shots), "; expected a value of fusewire::reduce_algorithm");
    require(o.output == output::replicated || o.output == output::heads, where,
            "flash_decode: output = ", int(o.output), "; expected a value of fusewire::output");
    require(
        o.output == output::replicated || o.shots != reduce_algorithm::two_shot, where,
        "flash_decode: output::heads with two shots; expected one shot, which sends each partial result to the rank "
        "that owns its head");
    require(o.lse_base == lse_base::e || o.lse_base == lse_base::two, where,
            "flash_decode: lse_base = ", int(o.lse_base), "; expected a value of fusewire::lse_base");
    detail::require_reserved("flash_decode", ch_.world(), o.reserved_cus, where);
    double const units =
        double(o.max_batch) * o.kv_heads * (decode_lengths::units_of(max_tokens()) + decode_lengths::switch_cost);
    require(units <= max_extent, where, "flash_decode: max_batch = ", o.max_batch, " sequences of ", max_tokens(),
            " tokens and ", o.kv_heads, " KV heads; expected up to ", max_extent,
            " units of 128 tokens of a head, and 4 more per head of a sequence");
    double const words = double(o.max_batch) * o.kv_heads * pieces(o) * record().words();
    require(!Features.batch_invariant || words <= max_extent / 4, where,
            "flash_decode: batch_invariant, max_batch = ", o.max_batch, " with q_heads = ", o.q_heads, " of ",
            o.head_dim, " in ", pieces(o), " pieces: ", words, " words of partial results; expected up to ",
            max_extent / 4);
    double const vec4s = double(o.max_batch) * o.kv_heads * record().vec4s();
    require(vec4s <= max_extent, where, "flash_decode: max_batch = ", o.max_batch, " with q_heads = ", o.q_heads,
            " of ", o.head_dim, ": outputs of ", 4 * vec4s, " numbers; expected up to ", 4.0 * max_extent);
  }

  void check(flash_decode_call<T> const& c, std::source_location where) const {
    require(c.batch >= 1 && c.batch <= o_.max_batch, where, "flash_decode: batch = ", c.batch,
            "; expected 1 to max_batch = ", o_.max_batch);
    address("q", c.q, 16, where);
    address("k_cache", c.k_cache, 16, where);
    address("v_cache", c.v_cache, 16, where);
    address("block_table", c.block_table, 4, where);
    address("lengths", c.lengths, 4, where);
    std::int64_t const results = std::int64_t(c.batch) * own().size();
    if (results > 0) address("out", c.out, 8, where);
    if (c.lse) address("lse", c.lse, 4, where);
    if (c.window_begins) address("window_begins", c.window_begins, 4, where);
    require(Features.sliding_window || !c.window_begins, where,
            "flash_decode: window_begins without its kernel; expected null, or a "
            "flash_decode<T, decode_features{.sliding_window = true}>");
    require(std::isfinite(c.soft_cap) && c.soft_cap >= 0, where, "flash_decode: soft_cap = ", c.soft_cap,
            "; expected a positive number, or 0 for none");
    require(Features.soft_cap || c.soft_cap == 0, where, "flash_decode: soft_cap = ", c.soft_cap,
            " without its kernel; expected 0, or a flash_decode<T, decode_features{.soft_cap = true}>");
    std::int64_t const tokens = std::int64_t(c.pages) << std::countr_zero(unsigned(o_.page_size)),
                       max_pages = (std::int64_t(1) << 32) / o_.page_size / o_.kv_heads;
    require(c.pages >= 0 && c.pages <= max_pages, where, "flash_decode: pages = ", c.pages,
            "; expected 0 (not said) to ", max_pages, ", which have 2^32 rows of head_dim");
    auto const extent = []<class E>(char const* name, E const* data, std::int64_t count) {
      return detail::operand{name, data, std::uint64_t(count), sizeof(E), sizeof(E)};
    };
    std::int64_t const queries = std::int64_t(c.batch) * o_.q_heads, of_page = c.pages ? tokens : o_.page_size,
                       cached = of_page * o_.kv_heads * o_.head_dim;
    detail::operand const read[] = {extent("q", c.q, queries * o_.head_dim),
                                    extent("k_cache", c.k_cache, cached),
                                    extent("v_cache", c.v_cache, cached),
                                    extent("block_table", c.block_table, std::int64_t(c.batch) * o_.max_pages),
                                    extent("lengths", c.lengths, c.batch),
                                    extent("window_begins", c.window_begins, c.batch)};
    detail::operand const written[] = {extent("out", c.out, results * o_.head_dim), extent("lse", c.lse, results)};
    detail::check_operands("flash_decode", written, read, where);
  }
  static void address(char const* name, void const* p, unsigned multiple, std::source_location where) {
    require(p != nullptr, where, "flash_decode: ", name, " is null");
    require(reinterpret_cast<std::uintptr_t>(p) % multiple == 0, where, "flash_decode: ", name, " = ", p,
            "; expected an address that is a multiple of ", multiple);
  }

  channel& ch_;
  flash_decode_options o_;
  head_partition owners_;                 // of query heads, if results are scattered
  owned<split_kv_view::word> workspace_;  // only this rank touches its own
  std::optional<ll_buffer> inbox_;
  int blocks_ = 1;  // of the largest launch of any rank
};

}  // namespace fusewire
