// The host side that flash_decode and nodes_flash_decode share: checks of options and calls, the memory of blocks'
// partials and of ranks' records, a launch.
#pragma once
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/ll_buffer.hpp>
#include <fusewire/launch/operands.hpp>
#include <fusewire/ops/detail/flash_decode_arguments.hpp>
#include <fusewire/ops/flash_decode_call.hpp>

namespace fusewire {

/// What such an operator has besides its kernel. A base class.
template <class T, decode_features Features>
class decode_operator {
 protected:
  /// `name` in messages. Loads nothing. Fails: bad_argument.
  decode_operator(char const* name, channel& ch, flash_decode_options const& o, std::source_location where)
      : name_(name), ch_(ch), o_(o) {
    check(where);
    if (o_.scale == 0) o_.scale = 1 / std::sqrt(float(o_.head_dim));
  }

  /// Takes memory: blocks' partials in the bulk segment, `inbox_records` records of each rank in the signal segment.
  /// Collective in the channel's world. Requires: the kernel is loaded. Fails: bad_argument; out_of_space.
  template <class Kernel>
  void allocate(Kernel kernel, int inbox_records, std::source_location where) {
    auto& h = ch_.heap();
    for (int b : ch_.world().exchange().all_gather(schedule_of(kernel, o_.max_batch, where).blocks))
      blocks_ = std::max(blocks_, b);
    workspace_ = {h, h.template allocate<split_kv_view::word>(split_kv_view::size(records(), record()), 256, where)};
    inbox_.emplace(ch_, ll_buffer_options{inbox_records, record().used(), "item"}, where);
    sym<split_kv_view::word> const words = workspace_.get();
    ch_.world().fill(h.here(words), 0, words.count * sizeof(split_kv_view::word), text(name_, ": workspace").c_str(),
                     where);
    ch_.world().exchange().barrier();
  }
  /// What ranks compare.
  auto named_options() const {
    using named = fusewire::heap::named;
    auto const number = [](char const* name, int value) { return named{name, std::uint64_t(value)}; };
    return std::array{number("max_batch", o_.max_batch),
                      number("head_dim", o_.head_dim),
                      number("q_heads", o_.q_heads),
                      number("kv_heads", o_.kv_heads),
                      number("shots", int(o_.shots)),
                      number("output", int(o_.output)),
                      named{"scale (its bits)", std::bit_cast<std::uint32_t>(o_.scale)}};
  }

  /// What every kernel of Flash Decode gets; results are those of all heads, in one shot. Requires: a call that check()
  /// accepts.
  decode_arguments<T> arguments(flash_decode_call<T> const& c, kv_schedule const& schedule,
                                head_partition const& owners) const {
    bool const looks = looks_at_tables();
    decode_lengths lengths(c.lengths, c.batch, max_tokens() + looks, o_.kv_heads, schedule.attending);
    lengths.outside = c.window_begins;
    lengths.pieces = pieces(o_);
    return {.q = c.q,
            .k = c.k_cache,
            .v = c.v_cache,
            .pages = c.block_table,
            .out = c.out,
            .lse = c.lse,
            .lengths = lengths,
            .max_pages = o_.max_pages,
            .page_shift = std::countr_zero(unsigned(o_.page_size)),
            .group = group(),
            .two_shot = false,
            .kv_is_ready = c.kv_is_ready && aligned(c.k_cache) && aligned(c.v_cache),
            .scores = {o_.scale * log2_of_e, c.soft_cap * log2_of_e},
            .lse_unit = o_.lse_base == lse_base::two ? 1 : ln_of_2,
            .inbox = inbox_->view(),
            .workspace = {ch_.heap().here(workspace_.get()), records()},
            .vec4s = record().vec4s(),
            .pages_to_check = looks ? c.pages : 0,
            .scattered = false,
            .own = {0, o_.q_heads},
            .owners = owners};
  }
  /// What ranks compare of a launch. `launch_name`: up to 8 letters.
  launch_header header(char const* launch_name, int batch, bool scattered) const {
    launch_header h = make_header(launch_name,
                                  std::uint64_t(std::is_same_v<T, f16>) | std::uint64_t(scattered) << 1 |
                                      std::uint64_t(Features.batch_invariant) << 2 | std::uint64_t(o_.head_dim) << 8,
                                  std::uint64_t(batch), std::uint64_t(o_.q_heads), std::uint64_t(o_.kv_heads),
                                  std::uint64_t(o_.max_batch));
    h.equal_grids = 0;  // a rank with less room takes fewer
    return h;
  }
  /// How it is launched.
  launch_shape shape(kv_schedule const& schedule, std::source_location where) const {
    return {.blocks = schedule.blocks,
            .threads = threads(),
            .shared_bytes = shared_bytes(),
            .programmatic = detail::may_be_early(o_.reserved_cus),
            .where = where};
  }
  /// The grid of a call, and what it works on.
  template <class Kernel>
  kv_schedule schedule_of(Kernel kernel, int batch, std::source_location where) const {
    int const fit = resident_blocks(ch_.world(), kernel, threads(), shared_bytes(), o_.reserved_cus, where);
    detail::require_resident(name_, ch_.world(), fit, threads(), shared_bytes(), o_.reserved_cus, where);
    return kv_schedule::of(shape_of(o_, batch), ch_.world().size(), decode_policy_for(o_.head_dim),
                           {ch_.world().cus_per_rank(o_.reserved_cus), fit});
  }

  /// Query heads per KV head.
  int group() const { return o_.q_heads / o_.kv_heads; }
  /// Of one sequence on one rank.
  int max_tokens() const { return o_.max_pages * o_.page_size; }
  /// Of a block.
  int threads() const { return decode_threads(o_.head_dim); }
  /// Bytes of LDS of a block.
  int shared_bytes() const { return decode_shared::bytes(group(), o_.head_dim); }
  /// A partial result of one head item.
  decode_record record() const { return {group(), o_.head_dim}; }
  /// A call with `batch` sequences.
  static decode_shape shape_of(flash_decode_options const& o, int batch) {
    return {batch, o.max_pages * o.page_size, o.kv_heads, {o.q_heads / o.kv_heads, o.head_dim}};
  }
  /// Bytes of the workspace, for `ranks` ranks of a heap on the largest GPU.
  static fusewire::requirements workspace(int ranks, flash_decode_options const& o) {
    decode_shape const shape = shape_of(o, o.max_batch);
    decode_policy const policy = decode_policy_for(o.head_dim);
    int const blocks = kv_schedule::of(shape, ranks, policy, {policy.most_cus, std::numeric_limits<int>::max()}).blocks;
    return fusewire::requirements::of<split_kv_view::word>(split_kv_view::size(records(blocks, o), shape.record));
  }

  /// The call reads [batch] and writes the results of `own` heads of each sequence. Fails: bad_argument.
  void check(flash_decode_call<T> const& c, int own, std::source_location where) const {
    require(c.batch >= 1 && c.batch <= o_.max_batch, where, name_, ": batch = ", c.batch,
            "; expected 1 to max_batch = ", o_.max_batch);
    address("q", c.q, 16, where);
    address("k_cache", c.k_cache, 16, where);
    address("v_cache", c.v_cache, 16, where);
    address("block_table", c.block_table, 4, where);
    address("lengths", c.lengths, 4, where);
    std::int64_t const results = std::int64_t(c.batch) * own;
    if (results > 0) address("out", c.out, 8, where);
    if (c.lse) address("lse", c.lse, 4, where);
    if (c.window_begins) address("window_begins", c.window_begins, 4, where);
    require(Features.sliding_window || !c.window_begins, where, name_,
            ": window_begins without its kernel; expected null, or a ", name_,
            "<T, decode_features{.sliding_window = true}>");
    require(std::isfinite(c.soft_cap) && c.soft_cap >= 0, where, name_, ": soft_cap = ", c.soft_cap,
            "; expected a positive number, or 0 for none");
    require(Features.soft_cap || c.soft_cap == 0, where, name_, ": soft_cap = ", c.soft_cap,
            " without its kernel; expected 0, or a ", name_, "<T, decode_features{.soft_cap = true}>");
    std::int64_t const tokens = std::int64_t(c.pages) << std::countr_zero(unsigned(o_.page_size)),
                       max_pages = (std::int64_t(1) << 32) / o_.page_size / o_.kv_heads;
    require(c.pages >= 0 && c.pages <= max_pages, where, name_, ": pages = ", c.pages, "; expected 0 (not said) to ",
            max_pages, ", which have 2^32 rows of head_dim");
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
    detail::check_operands(name_, written, read, where);
  }

  char const* name_;        // as it was made
  channel& ch_;             // as it was made
  flash_decode_options o_;  // as it was made, with a scale

 private:
  /// Whether no two tokens share what a unit caches together.
  static bool aligned(void const* cache) { return reinterpret_cast<std::uintptr_t>(cache) % 32 == 0; }
  static bool looks_at_tables() { return detail::checked || detail::simulator::get().there(); }
  /// Most pieces of a head item, if they are batch-invariant.
  static int pieces(flash_decode_options const& o) {
    return decode_lengths::pieces_that_pay(shape_of(o, o.max_batch), decode_policy_for(o.head_dim));
  }
  /// Records of the workspace, for launches of up to `blocks` blocks.
  static int records(int blocks, flash_decode_options const& o) {
    return Features.batch_invariant ? o.max_batch * o.kv_heads * pieces(o) : 2 * blocks;
  }
  int records() const { return records(blocks_, o_); }

  void check(std::source_location where) const {
    auto const& o = o_;
    constexpr int max_extent = 1 << 30, max_heads = 1 << 20;
    require(o.max_batch >= 1, where, name_, ": max_batch = ", o.max_batch, "; expected at least 1");
    require(o.kv_heads >= 1 && o.kv_heads <= max_heads, where, name_, ": kv_heads = ", o.kv_heads, "; expected 1 to ",
            max_heads);
    require(o.q_heads >= o.kv_heads && o.q_heads % o.kv_heads == 0 && o.q_heads / o.kv_heads <= 16, where, name_,
            ": q_heads = ", o.q_heads, "; expected 1 to 16 times kv_heads = ", o.kv_heads);
    require(o.head_dim == 64 || o.head_dim == 96 || o.head_dim == 128 || o.head_dim == 192 || o.head_dim == 256, where,
            name_, ": head_dim = ", o.head_dim, "; expected 64, 96, 128, 192 or 256, the same for K and V",
            o.head_dim == 576 || o.head_dim == 512 ? ": there is no kernel for multi-head latent attention" : "");
    require(group() <= decode_shared::most_heads(o.head_dim), where, name_, ": q_heads = ", o.q_heads,
            " of head_dim = ", o.head_dim, "; expected up to ", decode_shared::most_heads(o.head_dim),
            " times kv_heads = ", o.kv_heads, ", whose results the shared memory has room for");
    require(o.page_size >= 1 && std::has_single_bit(unsigned(o.page_size)), where, name_, ": page_size = ", o.page_size,
            "; expected a power of two");
    require(o.max_pages >= 1 && o.max_pages <= max_extent / o.page_size, where, name_, ": max_pages = ", o.max_pages,
            "; expected 1 to ", max_extent / o.page_size, " pages of ", o.page_size, " tokens");
    require(o.max_batch <= max_extent / o.max_pages, where, name_, ": max_batch = ", o.max_batch,
            " with max_pages = ", o.max_pages, "; expected a block table of up to ", max_extent, " entries");
    require(std::isfinite(o.scale), where, name_, ": scale = ", o.scale,
            "; expected a finite number, 0 for 1 / sqrt(head_dim)");
    require(o.shots == reduce_algorithm::automatic || o.shots == reduce_algorithm::one_shot ||
                o.shots == reduce_algorithm::two_shot,
            where, name_, ": shots = ", int(o.shots), "; expected a value of fusewire::reduce_algorithm");
    require(o.output == output::replicated || o.output == output::heads, where, name_, ": output = ", int(o.output),
            "; expected a value of fusewire::output");
    require(o.lse_base == lse_base::e || o.lse_base == lse_base::two, where, name_, ": lse_base = ", int(o.lse_base),
            "; expected a value of fusewire::lse_base");
    detail::require_reserved(name_, ch_.world(), o.reserved_cus, where);
    double const units =
        double(o.max_batch) * o.kv_heads * (decode_lengths::units_of(max_tokens()) + decode_lengths::switch_cost);
    require(units <= max_extent, where, name_, ": max_batch = ", o.max_batch, " sequences of ", max_tokens(),
            " tokens and ", o.kv_heads, " KV heads; expected up to ", max_extent,
            " units of 128 tokens of a head, and 4 more per head of a sequence");
    double const words = double(o.max_batch) * o.kv_heads * pieces(o) * record().words();
    require(!Features.batch_invariant || words <= max_extent / 4, where, name_,
            ": batch_invariant, max_batch = ", o.max_batch, " with q_heads = ", o.q_heads, " of ", o.head_dim, " in ",
            pieces(o), " pieces: ", words, " words of partial results; expected up to ", max_extent / 4);
    double const vec4s = double(o.max_batch) * o.kv_heads * record().vec4s();
    require(vec4s <= max_extent, where, name_, ": max_batch = ", o.max_batch, " with q_heads = ", o.q_heads, " of ",
            o.head_dim, ": outputs of ", 4 * vec4s, " numbers; expected up to ", 4.0 * max_extent);
  }
  void address(char const* name, void const* p, unsigned multiple, std::source_location where) const {
    require(p != nullptr, where, name_, ": ", name, " is null");
    require(reinterpret_cast<std::uintptr_t>(p) % multiple == 0, where, name_, ": ", name, " = ", p,
            "; expected an address that is a multiple of ", multiple);
  }

  owned<split_kv_view::word> workspace_;  // only this rank touches its own
  std::optional<ll_buffer> inbox_;
  int blocks_ = 1;  // of the largest launch of any rank
};

}  // namespace fusewire
