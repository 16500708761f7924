// all_to_all_v: rows of each rank's array go to other ranks, as many as counts in device memory say, one kernel launch
// per call. The kernel is in slice_kernel.hpp.
#pragma once
#include <fusewire/ops/detail/slice_collective.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct all_to_all_v_options {
  std::int64_t max_count = 0;                          // capacity: elements that a rank sends to another one
  row_transport transport = row_transport::automatic;  // automatic chooses by max_count and ranks
  int reserved_cus = 0;                                // compute units left to other work
};

/// A call. All ranks pass the same cols. What is in device memory is read and written by the launch, so a graph's
/// replays may have other counts. Index: std::int32_t or std::int64_t.
template <class T, class Index = std::int64_t>
struct all_to_all_v_call {
  T const* in = nullptr;              // [in_rows, cols]; any alignment
  int in_rows = 0;                    // of this rank
  T* out = nullptr;                   // [out_rows, cols]: what came, in the order of ranks without gaps
  int out_rows = 0;                   // rows that have room; those behind them are left out
  int cols = 0;                       // elements of a row
  Index const* in_counts = nullptr;   // [W], on the device: rows to each rank, up to max_count elements
  Index const* in_offsets = nullptr;  // [W], likewise: the first of them in `in`; null: one behind the other
  Index* out_counts = nullptr;        // [W], likewise: rows from each rank; may be null
  Index* out_offsets = nullptr;       // [W], likewise: the first of them in `out`; may be null
};

/// Rows exchanged between all ranks, as torch.ops.symm_mem.all_to_all_vdev: no count is known on the host. T: any
/// trivially copyable type. A count that `in` or max_count does not allow is cut to what they do.
template <class T>
  requires std::is_trivially_copyable_v<T>
class all_to_all_v {
 public:
  /// Collective. Takes memory for LL words from the signal segment. Fails: bad_argument; rank_mismatch; out_of_space.
  all_to_all_v(channel& ch, all_to_all_v_options const& o, std::source_location where = std::source_location::current())
      : max_count_(o.max_count), slices_(ch, "all_to_all_v", "alltoalv", of(o, where), where),
        counts_(ch, counts, where) {
    slices_.template load_slices<counted_slices>(where);
  }
  all_to_all_v(all_to_all_v const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~all_to_all_v() = default;

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Fails: bad_argument.
  static fusewire::requirements requirements(int ranks, all_to_all_v_options const& o,
                                             std::source_location where = std::source_location::current()) {
    return detail::slice_collective::requirements(ranks, of(o, where)) + ll_buffer::requirements(ranks, counts);
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  template <class Index>
    requires std::is_same_v<Index, std::int32_t> || std::is_same_v<Index, std::int64_t>
  void operator()(hipStream_t stream, all_to_all_v_call<T, Index> const& c,
                  std::source_location where = std::source_location::current()) {
    check(c, where);
    std::int64_t const row = c.cols * std::int64_t(sizeof(T));
    int const rows = max_rows(c.cols);
    auto const indices = [](Index const* p) { return device_indices{const_cast<Index*>(p), sizeof(Index) == 8}; };
    slices_.start_slices(stream, slices_.plan(rows * row), rows * row,
                         counted_slices{reinterpret_cast<std::byte const*>(c.in), reinterpret_cast<std::byte*>(c.out),
                                        row, c.in_rows, c.out_rows, rows, indices(c.in_counts), indices(c.in_offsets),
                                        indices(c.out_counts), indices(c.out_offsets), counts_.view()},
                         where, row);
  }

  /// How a call with rows of so many elements travels, in words.
  std::string describe(int cols) const { return slices_.describe(max_rows(cols) * (cols * std::int64_t(sizeof(T)))); }

 private:
  static constexpr int max_extent = 1 << 30;
  static inline ll_buffer_options const counts{.records = 1, .words = 1, .name = "count"};

  static detail::slice_options of(all_to_all_v_options const& o, std::source_location where) {
    return detail::slice_options_of<T>("all_to_all_v", o, where);
  }
  /// Rows of so many elements that a rank sends to another one, at most: kernels add up those of all ranks in an int.
  int max_rows(int cols) const {
    return int(std::min<std::int64_t>(max_count_ / cols, max_extent / slices_.world().size()));
  }
  template <class Index>
  void check(all_to_all_v_call<T, Index> const& c, std::source_location where) const {
    require(c.cols >= 1 && c.cols <= max_count_, where, "all_to_all_v: cols = ", c.cols,
            "; expected 1 to max_count = ", max_count_);
    auto const extent = [&](char const* name, int rows) {
      require(rows >= 0 && rows <= max_extent, where, "all_to_all_v: ", name, " = ", rows, "; expected 0 to ",
              max_extent);
    };
    extent("in_rows", c.in_rows);
    extent("out_rows", c.out_rows);
    if (c.in_rows > 0) slices_.address("in", c.in, where);
    if (c.out_rows > 0) slices_.address("out", static_cast<T const*>(c.out), where);
    slices_.address("in_counts", c.in_counts, where);
    auto const rows = [&](char const* name, T const* p, int n) {
      std::uint64_t const row = std::uint64_t(c.cols) * sizeof(T);
      return detail::operand{name, p, std::uint64_t(n), row, row};
    };
    auto const indices = [&](char const* name, Index const* p) {
      return detail::operand{name, p, std::uint64_t(slices_.world().size()), sizeof(Index), sizeof(Index)};
    };
    detail::check_operands(
        "all_to_all_v",
        std::array{rows("out", c.out, c.out_rows), indices("out_counts", c.out_counts),
                   indices("out_offsets", c.out_offsets)},
        std::array{rows("in", c.in, c.in_rows), indices("in_counts", c.in_counts), indices("in_offsets", c.in_offsets)},
        where);
  }

  std::int64_t max_count_;
  detail::slice_collective slices_;
  ll_buffer counts_;
};

}  // namespace fusewire
