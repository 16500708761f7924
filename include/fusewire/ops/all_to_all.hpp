// all_to_all: part p of each rank's array goes to rank p, one kernel launch per call. The kernel is in
// slice_kernel.hpp. all_to_all_v.hpp has the one whose parts have numbers of rows that exist only on the device.
#pragma once
#include <fusewire/ops/detail/slice_collective.hpp>

namespace fusewire {

/// What an operator is made with; the same on every rank.
struct all_to_all_options {
  std::int64_t max_count = 0;                          // capacity: elements of a part
  row_transport transport = row_transport::automatic;  // automatic chooses by bytes and ranks
  int reserved_cus = 0;                                // compute units left to other work
};

/// A call. All ranks pass the same count.
template <class T>
struct all_to_all_call {
  T const* in = nullptr;   // [W * count]: part p is for rank p; any alignment
  T* out = nullptr;        // [W * count]: part p is from rank p; may be `in`, else it does not overlap it
  std::int64_t count = 0;  // elements of a part, 0 to max_count
  std::int64_t pitch = 0;  // elements from one slice of both to the next; 0: count
};

/// Parts of equal size, exchanged between all ranks, as torch's all_to_all_single without splits. T: any trivially
/// copyable type.
template <class T>
  requires std::is_trivially_copyable_v<T>
class all_to_all {
 public:
  /// What it is made with.
  using options = all_to_all_options;

  /// Collective. Takes memory for LL words from the signal segment. Fails: bad_argument; rank_mismatch; out_of_space.
  all_to_all(channel& ch, all_to_all_options const& o, std::source_location where = std::source_location::current())
      : max_count_(o.max_count), slices_(ch, "all_to_all", "alltoall", of(o, where), where) {
    slices_.template load_slices<equal_slices>(where);
  }
  all_to_all(all_to_all const&) = delete;
  /// Not collective, and waits for nothing: what was launched may still run; see heap::free().
  ~all_to_all() = default;

  /// What the operator takes of a heap of `ranks` ranks, and what it needs of a channel. Fails: bad_argument.
  static fusewire::requirements requirements(int ranks, all_to_all_options const& o,
                                             std::source_location where = std::source_location::current()) {
    return detail::slice_collective::requirements(ranks, of(o, where));
  }

  /// Launches one kernel. Call it on every rank, in the same order, on any stream: see launch(). Can be captured in a
  /// graph.
  /// Fails: bad_argument, before anything is launched; as world::poll_errors().
  void operator()(hipStream_t stream, all_to_all_call<T> const& c,
                  std::source_location where = std::source_location::current()) {
    slices_.check_count(c.count, max_count_, where);
    if (c.count == 0) return slices_.start_none(stream, where);
    int const ranks = slices_.world().size();
    std::int64_t const pitch = c.pitch == 0 ? c.count : c.pitch, bytes = c.count * std::int64_t(sizeof(T)),
                       step = pitch * std::int64_t(sizeof(T));
    slices_.check_arrays(c.in, ranks, c.out, ranks, c.in, c.count, pitch, where);
    slices_.start_slices(
        stream, slices_.plan(bytes), bytes,
        equal_slices{reinterpret_cast<std::byte const*>(c.in), reinterpret_cast<std::byte*>(c.out), bytes, step, step},
        where);
  }

  /// How a call with parts of so many elements travels, in words.
  std::string describe(std::int64_t count) const { return slices_.describe(count * std::int64_t(sizeof(T))); }

 private:
  static detail::slice_options of(all_to_all_options const& o, std::source_location where) {
    return detail::slice_options_of<T>("all_to_all", o, where);
  }

  std::int64_t max_count_;
  detail::slice_collective slices_;
};

}  // namespace fusewire
