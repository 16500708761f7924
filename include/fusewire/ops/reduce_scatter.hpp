// reduce_scatter: part p of the sum over ranks of arrays, on rank p, one kernel launch per call. The kernel is in
// reduce_scatter_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/reduce_scatter_kernel.hpp>
#include <fusewire/ops/detail/slice_collective.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct reduce_scatter_options {
  std::int64_t max_count = 0;                          // capacity: elements of a part
  row_transport transport = row_transport::automatic;  // automatic chooses by bytes and ranks
  int reserved_cus = 0;                                // compute units left to other work
};

/// A call. All ranks pass the same count.
template <class T>
struct reduce_scatter_call {
  T const* in = nullptr;   // [W * count]: this rank's summands; part p is for rank p; any alignment
  T* out = nullptr;        // [count]: the sums; may be this rank's part of `in`, else it does not overlap it
  std::int64_t count = 0;  // elements of a part, 0 to max_count
  std::int64_t pitch = 0;  // elements from one slice of `in` to the next; 0: count
};

/// This rank's part of the sum over ranks of T: float, f16 or bf16, as torch's reduce_scatter_tensor. Sums are added in
/// fp32 in the order of ranks, and rounded to T once: the bits that all_reduce has, in every run.
template <class T>
  requires is_16_bit_float<T> || std::is_same_v<T, float>
class reduce_scatter {
 public:
  /// What it is made with.
  using options = reduce_scatter_options;

  /// Collective. Takes memory for LL words from the signal segment. Fails: bad_argument; rank_mismatch; out_of_space.
  reduce_scatter(channel& ch, reduce_scatter_options const& o,
                 std::source_location where = std::source_location::current())
      : max_count_(o.max_count), slices_(ch, "reduce_scatter", "redscatr", of(o, where), where) {
    slices_.load(true, by_words, where);
    slices_.load(false, by_flags, where);
  }
  reduce_scatter(reduce_scatter const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~reduce_scatter() = default;

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Fails: bad_argument.
  static fusewire::requirements requirements(int ranks, reduce_scatter_options const& o,
                                             std::source_location where = std::source_location::current()) {
    return detail::slice_collective::requirements(ranks, of(o, where));
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, reduce_scatter_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    slices_.check_count(c.count, max_count_, where);
    if (c.count == 0) return slices_.start_none(stream, where);
    int const ranks = slices_.world().size(), rank = slices_.world().rank();
    std::int64_t const pitch = c.pitch == 0 ? c.count : c.pitch, bytes = c.count * std::int64_t(sizeof(T));
    slices_.check_arrays(c.in, ranks, c.out, 1, c.in + rank * pitch, c.count, pitch, where);
    row_plan const p = slices_.plan(bytes);
    int const cols = p.row_bytes() / int(sizeof(T));
    auto const arguments = [&](row_arguments const& g) {
      return reduce_scatter_arguments<T>{g, {c.in, c.count, cols, cols}, pitch, p.rows};
    };
    // Adding up moves about three times the bytes of sending
    slices_.start(stream, p, slices_.header(p.words, bytes), p.words ? by_words : by_flags, 4, arguments, where,
                  store_rows<T>{{c.out, c.count, cols, cols}});
  }

  /// How a call with parts of so many elements travels, in words.
  std::string describe(std::int64_t count) const { return slices_.describe(count * std::int64_t(sizeof(T))); }

 private:
  static constexpr auto by_words = &reduce_scatter_kernel<T, ll_rows, 1, store_rows<T>>;
  static constexpr auto by_flags = &reduce_scatter_kernel<T, flag_rows, row_plan::max_vectors, store_rows<T>>;

  static detail::slice_options of(reduce_scatter_options const& o, std::source_location where) {
    return detail::slice_options_of<T>("reduce_scatter", o, where);
  }

  std::int64_t max_count_;
  detail::slice_collective slices_;
};

}  // namespace fusewire
