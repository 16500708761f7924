// all_reduce: the sum over ranks of arrays or of rows, on every rank, one kernel launch per call, with an epilogue that
// sees whole rows. The kernels are in all_reduce_kernel.hpp.
#pragma once
#include <array>
#include <optional>

#include <fusewire/comm/quantised_rows.hpp>
#include <fusewire/launch/channel.hpp>
#include <fusewire/launch/ll_buffer.hpp>
#include <fusewire/launch/operands.hpp>
#include <fusewire/ops/detail/all_reduce_kernel.hpp>
#include <fusewire/ops/detail/all_reduce_plan.hpp>
#include <fusewire/ops/detail/no_rows.hpp>
#include <fusewire/ops/detail/row_epilogue_checks.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct all_reduce_options {
  int max_rows = 0;  // capacity: rows of a call, the tokens of a batch
  int max_cols = 0;  // capacity: elements of a row; a call without rows has up to max_rows * max_cols elements
  fusewire::reduce_algorithm shots = reduce_algorithm::automatic;  // automatic chooses by bytes and ranks
  row_transport transport = row_transport::automatic;              // likewise
  int reserved_cus = 0;                                            // compute units left to other work
};

/// A call without an epilogue. All ranks pass the same count.
template <class T>
struct all_reduce_call {
  T const* in = nullptr;   // [count]: this rank's summands; any alignment
  T* out = nullptr;        // [count]: the sums; may be `in`, else it does not overlap it
  std::int64_t count = 0;  // elements, 0 to max_rows * max_cols
};

/// The sum over ranks of T: float, f16 or bf16. Sums are added in fp32 in the order of ranks, and rounded to T once:
/// the same bits on every rank, in every run, with one shot and two, and whatever the other rows of a call are.
/// docs/operators.md has the error bound.
///
/// Partial: int8_t, fp8_e4m3fn or fp8_e4m3fnuz for T of 16 bits: calls that travel by flags, the larger ones, send
/// every rank's summands in it, with a scale for each 64 elements, and with two shots the sums, too. Ranks have the
/// same bits then as well; how a call travels decides which.
template <class T, partial_of<T> Partial = T>
class all_reduce {
 public:
  /// Collective. Loads the kernels of calls without an epilogue. Takes memory for LL words from the signal segment.
  /// Fails: bad_argument; rank_mismatch; out_of_space.
  all_reduce(channel& ch, all_reduce_options const& o, std::source_location where = std::source_location::current())
      : ch_(ch), o_(o) {
    check(where);
    int const ranks = ch.world().size();
    detail::load_no_rows(ch.world(), where);
    prepare<store_rows<T>>(where);
    ch.heap().names().add_launch("allreduc", describe_all_reduce);
    using named = fusewire::heap::named;
    ch.heap().require_equal_on_ranks(
        "all_reduce",
        std::array{named{"max_rows", std::uint64_t(o.max_rows)}, named{"max_cols", std::uint64_t(o.max_cols)},
                   named{"shots", std::uint64_t(o.shots)}, named{"transport", std::uint64_t(o.transport)},
                   named{"Partial", travels_as}},
        where);
    if (ranks > 1 && word_options(ranks, o).records > 0) words_.emplace(ch, word_options(ranks, o), where);
  }
  all_reduce(all_reduce const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~all_reduce() = default;

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Requires: options that the
  /// constructor accepts.
  static fusewire::requirements requirements(int ranks, all_reduce_options const& o) {
    auto const r = channel::requirements(
        ranks, {.max_bytes = max_bytes(ranks, o), .flags_per_source = flags_per_source(ranks, o)});
    if (ranks == 1 || word_options(ranks, o).records == 0) return r;
    return r + ll_buffer::requirements(ranks, word_options(ranks, o));
  }
  /// What channel_options should be, at least, for these options.
  static std::size_t max_bytes(int ranks, all_reduce_options const& o) {
    std::size_t const one = flag_bytes(ranks, o, reduce_algorithm::one_shot),
                      two = flag_bytes(ranks, o, reduce_algorithm::two_shot);
    return std::max({std::size_t(1), one, two});
  }
  /// The same of channel_options::flags_per_source.
  static int flags_per_source(int, all_reduce_options const& o) {
    if (o.transport == row_transport::ll_words) return 1;
    std::int64_t const chunks_of_array =
        std::int64_t(o.max_rows) * o.max_cols * std::int64_t(sizeof(T)) / all_reduce_plan::min_chunk + 1;
    return 2 * int(std::min<std::int64_t>(all_reduce_plan::max_chunks,
                                          std::max<std::int64_t>(chunks_of_array, o.max_rows)));
  }

  /// The LL buffer that the operator makes for calls that travel as words; without records if none does.
  static ll_buffer_options word_options(int ranks, all_reduce_options const& o) {
    ll_buffer_options words{
        .records = 0, .words = ll_rows<T>::vectors_per_record * ll_rows<T>::words_per_vector, .name = "row"};
    if (o.transport == row_transport::flags) return words;
    for (auto const shots : {reduce_algorithm::one_shot, reduce_algorithm::two_shot}) {
      if (o.shots != reduce_algorithm::automatic && o.shots != shots) continue;
      all_reduce_options most = o;
      if (o.transport == row_transport::automatic) {  // up to some number of bytes
        std::size_t const bytes = shots == reduce_algorithm::one_shot
                                      ? all_reduce_policy::of(compiled_for).one_shot_words /
                                            std::size_t(std::max(1, ranks - 1))
                                      : all_reduce_policy::of(compiled_for).two_shot_words,
                          row = std::size_t(o.max_cols) * sizeof(T);
        if (bytes == 0 || (ranks <= 2 && shots == reduce_algorithm::two_shot && o.shots != shots)) continue;
        most.max_rows = int(std::min(std::size_t(o.max_rows), (bytes + row - 1) / row));
      }
      for_largest(ranks, most, shots, row_transport::ll_words, [&](all_reduce_plan const& p) {
        int const padding = 2 + ceil_div((1 + p.two_shot) * p.sections.vectors, ll_rows<T>::vectors_per_record);
        words.records = std::max(words.records, ll_rows<T>::records(1 + p.two_shot, p.sections) + padding);
      });
    }
    return words;
  }

  /// Loads the kernels of calls with this epilogue, which their first call does otherwise; see load_kernel().
  template <row_epilogue<T> Epilogue>
  void prepare(std::source_location where = std::source_location::current()) {
    for (bool const words : {false, true})
      for (bool const two_shot : {false, true})
        for (int const vectors : {1, all_reduce_plan::max_vectors}) {
          if (words ? o_.transport == row_transport::flags : o_.transport == row_transport::ll_words) continue;
          all_reduce_plan p;
          p.words = words, p.two_shot = two_shot, p.vectors = vectors;
          with_kernel<Epilogue>(
              p, [&](auto kernel) { (void)load_kernel(ch_.world(), kernel, all_reduce_plan::max_threads, 0, where); });
        }
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, all_reduce_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    std::int64_t const most = std::int64_t(o_.max_rows) * o_.max_cols;
    require(c.count >= 0 && c.count <= most, where, "all_reduce: count = ", c.count,
            "; expected 0 to max_rows * max_cols = ", most);
    if (c.count == 0) return start_none(stream, where);
    address("in", c.in, where);
    address("out", c.out, where);
    detail::operand const read{"in", c.in, std::uint64_t(c.count), sizeof(T), sizeof(T)},
        written{"out", c.out, std::uint64_t(c.count), sizeof(T), sizeof(T)};
    bool const in_place = static_cast<T const*>(c.out) == c.in;
    detail::check_operands("all_reduce", std::span(&written, 1), std::span(&read, in_place ? 0 : 1), where);
    auto const p = all_reduce_plan::of_array<T>(c.count, ch_.world().size(), o_.shots, o_.transport);
    start(stream, p, row_view<T const>{c.in, c.count, p.cols, p.cols}, store_rows<T>{{c.out, c.count, p.cols, p.cols}},
          where);
  }
  /// The same of the rows of a matrix, [rows, cols], whose sums go to an epilogue: store_rows, rms_norm, or one of your
  /// own. All ranks pass the same rows and cols. An epilogue may store a row's results where its summands are.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <row_epilogue<T> Epilogue>
  void operator()(hipStream_t stream, std::type_identity_t<matrix<T const>> const& in, Epilogue const& e,
                  std::source_location where = std::source_location::current()) {
    require(in.rows >= 0 && in.rows <= o_.max_rows, where, "all_reduce: in has ", in.rows,
            " rows; expected 0 to max_rows = ", o_.max_rows);
    require(in.cols >= 1 && in.cols <= o_.max_cols && in.cols <= all_reduce_plan::max_cols<T>, where,
            "all_reduce: in has ", in.cols, " columns; expected 1 to ",
            std::min(o_.max_cols, all_reduce_plan::max_cols<T>), ", max_cols or what a block holds");
    require(in.ld >= in.cols, where, "all_reduce: in.ld = ", in.ld, "; expected at least its ", in.cols, " columns");
    detail::check_row_epilogue(e, in, where);
    if (in.rows == 0) return start_none(stream, where);
    address("in", in.data, where);
    auto const p = all_reduce_plan::of_rows<T>(in.rows, in.cols, ch_.world().size(), o_.shots, o_.transport);
    start(stream, p, row_view<T const>{in.data, std::int64_t(in.rows) * in.cols, in.cols, in.ld}, e, where);
  }

  /// How a call of so many elements travels, in words.
  std::string describe(std::int64_t count) const {
    if (count == 0) return "all_reduce: nothing";
    return in_words(all_reduce_plan::of_array<T>(count, ch_.world().size(), o_.shots, o_.transport));
  }
  /// The same of rows with an epilogue.
  std::string describe(int rows, int cols) const {
    if (rows == 0) return "all_reduce: nothing";
    return in_words(all_reduce_plan::of_rows<T>(rows, cols, ch_.world().size(), o_.shots, o_.transport));
  }

 private:
  /// A launch in words, from what its header says.
  static std::string describe_all_reduce(std::uint64_t const (&what)[launch_words]) {
    return text("all_reduce", what[1] & 1 ? " two-shot" : " one-shot", what[1] & 2 ? " by LL words" : " by flags",
                what[1] & 2 ? "" : partial_in_words(what[1] >> 2 & 3), ", elements of ", what[1] >> 8,
                " bytes, rows = ", what[2], ", columns = ", what[3]);
  }
  static char const* partial_in_words(std::uint64_t partial) {
    constexpr char const* names[] = {"", ", int8 blocks", ", fp8 blocks", ", fp8 blocks"};
    return names[partial];
  }
  static std::string in_words(all_reduce_plan const& p) {
    return text("all_reduce: ", p.two_shot ? "two-shot" : "one-shot", p.words ? ", LL words" : ", flags",
                p.words ? "" : partial_in_words(travels_as), ", ", p.rows, " rows of ", p.cols, ", ", p.rows_per_chunk,
                " a chunk");
  }

  /// The longest array, and the rows of the longest kind, in the transport that needs this memory.
  template <class Visit>
  static void for_largest(int ranks, all_reduce_options const& o, reduce_algorithm shots, row_transport by,
                          Visit const& visit) {
    visit(all_reduce_plan::of_array<T>(std::int64_t(o.max_rows) * o.max_cols, ranks, shots, by));
    visit(
        all_reduce_plan::of_rows<T>(o.max_rows, std::min(o.max_cols, all_reduce_plan::max_cols<T>), ranks, shots, by));
  }
  static std::size_t flag_bytes(int ranks, all_reduce_options const& o, reduce_algorithm shots) {
    if (o.transport == row_transport::ll_words || (o.shots != reduce_algorithm::automatic && o.shots != shots))
      return 0;
    std::size_t most = 0;
    for_largest(ranks, o, shots, row_transport::flags, [&](all_reduce_plan const& p) {
      std::size_t bytes = flag_rows<T>::bytes(ranks, 1 + p.two_shot, p.sections);
      if (o.shots == reduce_algorithm::automatic && shots == reduce_algorithm::one_shot && ranks > 2)
        bytes = std::min(bytes, all_reduce_policy::of(compiled_for).one_shot_flags * std::size_t(ranks - 1));
      // Smaller calls have other chunks, and so may pad a section by as much as a chunk
      std::size_t const padding = std::size_t(p.max_chunk) + std::size_t(p.sections.vectors) * 16;
      most = std::max(most, bytes + std::size_t(ranks - 1) * (1 + p.two_shot) * padding);
    });
    return most;
  }
  /// Calls visit with the kernel of a plan.
  template <class Epilogue, class Visit>
  static void with_kernel(all_reduce_plan const& p, Visit const& visit) {
    auto const vectors = [&]<template <class> class Exchange>() {
      auto const shots = [&]<int Vectors>() {
        if (p.two_shot) visit(&all_reduce_two_shot<T, Exchange, Vectors, Epilogue>);
        else visit(&all_reduce_one_shot<T, Exchange, Vectors, Epilogue>);
      };
      if (p.vectors == 1) shots.template operator()<1>();
      else shots.template operator()<all_reduce_plan::max_vectors>();
    };
    if (p.words) vectors.template operator()<ll_rows>();
    else if constexpr (std::is_same_v<Partial, T>) vectors.template operator()<flag_rows>();
    else vectors.template operator()<detail::quantised<Partial>::template rows>();
  }
  /// 0: as T; 1 to 3: int8, e4m3fn, e4m3fnuz.
  static constexpr std::uint64_t travels_as = std::is_same_v<Partial, std::int8_t>    ? 1
                                              : std::is_same_v<Partial, fp8_e4m3fn>   ? 2
                                              : std::is_same_v<Partial, fp8_e4m3fnuz> ? 3
                                                                                      : 0;

  template <class Epilogue>
  void start(hipStream_t stream, all_reduce_plan const& p, row_view<T const> const& in, Epilogue const& e,
             std::source_location where) {
    launch_header header =
        make_header("allreduc", std::uint64_t(p.two_shot) | p.words << 1 | travels_as << 2 | sizeof(T) << 8,
                    std::uint64_t(p.rows), std::uint64_t(p.cols), std::uint64_t(in.count));
    header.equal_grids = 0;  // a rank with less room takes fewer blocks
    with_kernel<Epilogue>(p, [&](auto kernel) {
      int const fit = resident_blocks(ch_.world(), kernel, p.threads, 0, o_.reserved_cus, where);
      detail::require_resident("all_reduce", ch_.world(), fit, p.threads, 0, o_.reserved_cus, where);
      all_reduce_plan::roles const roles = p.roles_of(fit);
      launch(ch_.world(), stream, {.blocks = roles.blocks, .threads = p.threads, .where = where}, kernel,
             ch_.view(header),
             all_reduce_arguments<T>{p.arguments(roles, words_ ? &words_->view() : nullptr), in, p.rows}, e);
    });
  }
  void start_none(hipStream_t stream, std::source_location where) const {
    detail::launch_no_rows(ch_, stream, make_header("allreduc", 0), where);
  }

  void check(std::source_location where) const {
    auto const& o = o_;
    constexpr int max_extent = 1 << 30;
    require(o.max_rows >= 1 && o.max_rows <= max_extent, where, "all_reduce: max_rows = ", o.max_rows,
            "; expected 1 to ", max_extent);
    require(o.max_cols >= 1 && o.max_cols <= max_extent, where, "all_reduce: max_cols = ", o.max_cols,
            "; expected 1 to ", max_extent);
    require(o.shots == reduce_algorithm::automatic || o.shots == reduce_algorithm::one_shot ||
                o.shots == reduce_algorithm::two_shot,
            where, "all_reduce: shots = ", int(o.shots), "; expected a value of fusewire::reduce_algorithm");
    require(o.transport == row_transport::automatic || o.transport == row_transport::ll_words ||
                o.transport == row_transport::flags,
            where, "all_reduce: transport = ", int(o.transport), "; expected a value of fusewire::row_transport");
    detail::require_reserved("all_reduce", ch_.world(), o.reserved_cus, where);
    int const ranks = ch_.world().size();
    std::size_t const bytes = max_bytes(ranks, o);
    require<out_of_space>(bytes <= ch_.options().max_bytes, where, "all_reduce: what ", ranks,
                          " ranks send for max_rows = ", o.max_rows, " and max_cols = ", o.max_cols, " takes ", bytes,
                          " bytes; the channel's max_bytes is ", ch_.options().max_bytes);
    int const flags = flags_per_source(ranks, o);
    require<out_of_space>(flags <= ch_.options().flags_per_source, where, "all_reduce: needs ", flags,
                          " flags per source; the channel has ", ch_.options().flags_per_source);
  }
  static void address(char const* name, T const* p, std::source_location where) {
    require(p != nullptr, where, "all_reduce: ", name, " is null");
    require(reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0, where, "all_reduce: ", name, " = ", p,
            "; expected an address that is a multiple of ", sizeof(T));
  }

  channel& ch_;
  all_reduce_options o_;
  std::optional<ll_buffer> words_;  // if some calls travel as LL words
};

}  // namespace fusewire
