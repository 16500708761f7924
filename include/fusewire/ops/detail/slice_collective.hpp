// What all_gather, reduce_scatter and the all-to-alls have in common on the host: each rank sends every other one a
// slice. They check options, take memory, and launch.
#pragma once
#include <array>
#include <optional>

#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/ll_buffer.hpp>
#include <fusewire/launch/operands.hpp>
#include <fusewire/ops/detail/no_rows.hpp>
#include <fusewire/ops/detail/slice_kernel.hpp>

namespace fusewire::detail {

/// Capacity of such a collective, and how its slices travel.
struct slice_options {
  std::int64_t max_bytes;   // of a slice
  row_transport transport;  // automatic: by the bytes of a call's slices
  int reserved_cus;         // compute units left to other work
};

/// A collective of slices on a channel.
class slice_collective {
 public:
  static constexpr std::int64_t max_slice = std::int64_t(1) << 40;  // bytes

  /// Collective. `name`: in messages; `word`: in headers, up to 8 letters. Fails: bad_argument; rank_mismatch;
  /// out_of_space.
  slice_collective(channel& ch, char const* name, char const* word, slice_options const& o, std::source_location where)
      : ch_(ch), name_(name), word_(word), o_(o) {
    check(where);
    load_no_rows(ch.world(), where);
    ch.heap().names().add_launch(word, [name](std::uint64_t const(&what)[launch_words]) {
      return text(name, what[1] ? " by LL words" : " by flags", ", slices of ", what[2], " bytes",
                  what[3] ? text(", at most, in rows of ", what[3]) : std::string());
    });
    using named = fusewire::heap::named;
    ch.heap().require_equal_on_ranks(name,
                                     std::array{named{"bytes of a slice", std::uint64_t(o.max_bytes)},
                                                named{"transport", std::uint64_t(o.transport)}},
                                     where);
    if (auto const w = word_options(ch.world().size(), o); w.records > 0) words_.emplace(ch, w, where);
  }

  /// What it takes of a heap of `ranks` ranks, and needs of a channel. Requires: options that the constructor accepts.
  static fusewire::requirements requirements(int ranks, slice_options const& o) {
    auto const r = channel::requirements(
        ranks, {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
    auto const w = word_options(ranks, o);
    return w.records == 0 ? r : r + ll_buffer::requirements(ranks, w);
  }
  /// What channel_options should be, at least. Calls of fewer bytes take no more.
  static std::size_t max_bytes(int ranks, slice_options const& o) {
    if (o.transport == row_transport::ll_words) return 1;
    auto const p = row_plan::of_slices(o.max_bytes, ranks, row_transport::flags);
    return std::max(std::size_t(1), flag_rows<std::byte>::bytes(ranks, 1, p.sections));
  }
  /// Likewise.
  static int flags_per_source(int ranks, slice_options const& o) {
    if (o.transport == row_transport::ll_words) return 1;
    return std::min(row_plan::max_chunks, row_plan::of_slices(o.max_bytes, ranks, row_transport::flags).rows);
  }
  /// The LL buffer that it makes; without records if none.
  static ll_buffer_options word_options(int ranks, slice_options const& o) {
    using rows = ll_rows<std::byte>;
    ll_buffer_options w{.records = 0, .words = rows::vectors_per_record * rows::words_per_vector, .name = "row"};
    std::int64_t const bytes = o.transport == row_transport::ll_words ? o.max_bytes
                               : o.transport == row_transport::flags
                                   ? 0
                                   : std::min(o.max_bytes, row_plan::words_up_to(ranks));
    if (ranks > 1 && bytes > 0)
      w.records = rows::records(1, row_plan::of_slices(bytes, ranks, row_transport::ll_words).sections);
    return w;
  }

  /// Of a call.
  row_plan plan(std::int64_t bytes) const { return row_plan::of_slices(bytes, ch_.world().size(), o_.transport); }
  /// How a call of slices of so many bytes travels, in words.
  std::string describe(std::int64_t bytes) const {
    if (bytes == 0) return text(name_, ": nothing");
    auto const p = plan(bytes);
    return text(name_, p.words ? ": LL words, " : ": flags, ", p.rows, " rows of ", p.row_bytes(), " bytes, ",
                p.rows_per_chunk, " a chunk");
  }

  /// Loads a kernel before the first launch that can wait, if calls may take it.
  template <class Kernel>
  void load(bool words, Kernel kernel, std::source_location where) const {
    if (o_.transport != (words ? row_transport::flags : row_transport::ll_words))
      (void)load_kernel(ch_.world(), kernel, row_plan::array_threads, 0, where);
  }
  /// Loads exchange_slices.
  template <class Slices>
  void load_slices(std::source_location where) const {
    load(true, &exchange_slices<ll_rows, 1, Slices>, where);
    load(false, &exchange_slices<flag_rows, row_plan::max_vectors, Slices>, where);
  }
  /// Launches `kernel` with arguments(row_arguments) and more arguments; 1 / share of the blocks send. Fails: as
  /// launch().
  template <class Kernel, class Arguments, class... More>
  void start(hipStream_t stream, row_plan const& p, launch_header header, Kernel kernel, int share,
             Arguments const& arguments, std::source_location where, More const&... more) const {
    header.equal_grids = 0;  // a rank with less room takes fewer blocks
    int const fit = resident_blocks(ch_.world(), kernel, p.threads, 0, o_.reserved_cus, where);
    require_resident(name_, ch_.world(), fit, p.threads, 0, o_.reserved_cus, where);
    auto const roles = p.roles_of(fit, share);
    launch(ch_.world(), stream, {.blocks = roles.blocks, .threads = p.threads, .where = where}, kernel,
           ch_.view(header), arguments(p.arguments(roles, words_ ? &words_->view() : nullptr)), more...);
  }
  /// Launches exchange_slices. As start(). `row`: bytes, of counted slices.
  template <class Slices>
  void start_slices(hipStream_t stream, row_plan const& p, std::int64_t bytes, Slices const& slices,
                    std::source_location where, std::int64_t row = 0) const {
    auto const as_it_is = [](row_arguments const& g) { return g; };
    auto const h = header(p.words, bytes, row);
    if (p.words) start(stream, p, h, &exchange_slices<ll_rows, 1, Slices>, 2, as_it_is, where, slices);
    else start(stream, p, h, &exchange_slices<flag_rows, row_plan::max_vectors, Slices>, 2, as_it_is, where, slices);
  }
  /// Launches what keeps the ranks together, of a call without elements.
  void start_none(hipStream_t stream, std::source_location where) const {
    launch_no_rows(ch_, stream, header(false, 0), where);
  }
  /// What ranks compare.
  launch_header header(bool words, std::int64_t bytes, std::int64_t row = 0) const {
    return make_header(word_, words, std::uint64_t(bytes), std::uint64_t(row));
  }

  /// Checks the arrays of a call of slices of `count` elements, `pitch` apart; `in` and `out` have in_slices and
  /// out_slices of them. in_place: where `out` may be. Fails: bad_argument.
  template <class T>
  void check_arrays(T const* in, int in_slices, T* out, int out_slices, T const* in_place, std::int64_t count,
                    std::int64_t pitch, std::source_location where) const {
    require(pitch >= count, where, name_, ": pitch = ", pitch, "; expected at least count = ", count, ", or 0");
    address("in", in, where);
    address("out", static_cast<T const*>(out), where);
    auto const slices = [&](char const* name, T const* p, int n) {
      return operand{name, p, std::uint64_t(n), std::uint64_t(count) * sizeof(T), std::uint64_t(pitch) * sizeof(T)};
    };
    operand const read = slices("in", in, in_slices), written = slices("out", out, out_slices);
    check_operands(name_, std::span(&written, 1), std::span(&read, out == in_place ? 0 : 1), where);
  }
  /// Checks a count against the capacity in elements. Fails: bad_argument.
  void check_count(std::int64_t count, std::int64_t most, std::source_location where) const {
    require(count >= 0 && count <= most, where, name_, ": count = ", count, "; expected 0 to max_count = ", most);
  }
  /// Checks an address. Fails: bad_argument.
  template <class T>
  void address(char const* what, T const* p, std::source_location where) const {
    require(p != nullptr, where, name_, ": ", what, " is null");
    require(reinterpret_cast<std::uintptr_t>(p) % alignof(T) == 0, where, name_, ": ", what, " = ", p,
            "; expected an address that is a multiple of ", alignof(T));
  }

  /// The channel's world.
  fusewire::world& world() const { return ch_.world(); }

 private:
  void check(std::source_location where) const {
    require(o_.transport == row_transport::automatic || o_.transport == row_transport::ll_words ||
                o_.transport == row_transport::flags,
            where, name_, ": transport = ", int(o_.transport), "; expected a value of fusewire::row_transport");
    require_reserved(name_, ch_.world(), o_.reserved_cus, where);
    int const ranks = ch_.world().size();
    std::size_t const bytes = max_bytes(ranks, o_);
    require<out_of_space>(bytes <= ch_.options().max_bytes, where, name_, ": what ", ranks, " ranks send of ",
                          o_.max_bytes, " bytes each takes ", bytes, " bytes; the channel's max_bytes is ",
                          ch_.options().max_bytes);
    int const flags = flags_per_source(ranks, o_);
    require<out_of_space>(flags <= ch_.options().flags_per_source, where, name_, ": needs ", flags,
                          " flags per source; the channel has ", ch_.options().flags_per_source);
  }

  channel& ch_;
  char const *name_, *word_;
  slice_options o_;
  std::optional<ll_buffer> words_;  // if some calls travel as LL words
};

/// The slice of an operator whose options count elements of T. Fails: bad_argument.
template <class T, class Options>
slice_options slice_options_of(char const* name, Options const& o, std::source_location where) {
  constexpr std::int64_t most = slice_collective::max_slice / std::int64_t(sizeof(T));
  require(o.max_count >= 1 && o.max_count <= most, where, name, ": max_count = ", o.max_count, "; expected 1 to ",
          most);
  return {o.max_count * std::int64_t(sizeof(T)), o.transport, o.reserved_cus};
}

}  // namespace fusewire::detail
