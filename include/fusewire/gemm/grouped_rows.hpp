// Where the tiles of a grouped GEMM come from and go: rows of a group in this rank's memory.
#pragma once
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/grouped_scheduler.hpp>
#include <fusewire/gemm/tile_sink.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// A tile source: rows of groups in a matrix [max_rows, K] in this rank's memory, the launch's buffer 0.
class grouped_rows : public local_rows {
 public:
  /// k: columns of the matrix; slice: of the tiles' k.
  __device__ grouped_rows(row_groups const& g, int k, int tile_m, k_slice const& slice = {})
      : local_rows(g.max_rows, k, tile_m, slice), g_(g), tile_m_(tile_m) {}

  __device__ int begin(tile_coord t) {
    index_range const rows = g_.rows(t.group);
    int const first = platform::uniform(rows.begin), left = platform::uniform(rows.size()) - t.m * tile_m_;
    return begin_at(first + t.m * tile_m_, left);
  }

 private:
  row_groups const& g_;
  int tile_m_;
};
/// All of the matrix is there from the start.
template <>
inline constexpr bool whole_segments<grouped_rows> = true;
/// For the same reason.
template <>
inline constexpr bool always_ready<grouped_rows> = true;

namespace detail {
/// See takes_an_element.
template <class E>
inline constexpr bool has_of_group = requires(E const e) { e.of_group(0); };
}  // namespace detail

/// E has of_group(g), which returns the epilogue of group g: with its bias, say.
template <class E>
concept epilogue_by_group = std::is_trivially_copyable_v<E> && detail::has_of_group<E>;

/// What a grouped GEMM takes as its epilogue. It sees rows of the whole C.
template <class E>
concept grouped_epilogue = local_epilogue<E> || epilogue_by_group<E>;

/// The type of the epilogue of each group.
template <grouped_epilogue E>
struct epilogue_of_groups {
  using type = E;  // the same for all
};
/// That of an epilogue by group.
template <epilogue_by_group E>
struct epilogue_of_groups<E> {
  using type = decltype(std::declval<E const&>().of_group(0));  // what it returns
};

/// An epilogue, or a pair epilogue as E is one: E, for a C that begins at row `first` of E's.
template <local_epilogue E>
struct epilogue_from_row {
  E e;        // of the whole C
  int first;  // its row that is row 0 here

  __device__ float operator()(float acc, int row, int column) const
    requires epilogue<E>
  {
    return e(acc, first + row, column);
  }
  __device__ float operator()(float even, float odd, int row, int column) const
    requires pair_epilogue<E>
  {
    return e(even, odd, first + row, column);
  }
};

/// A tile sink: rows of groups in a matrix in this rank's memory; no rank is told.
template <class T>
struct grouped_sink {
  matrix<T> c;  // [max_rows, N], of a pair epilogue [max_rows, N / 2]
  row_groups const& g;

  __device__ matrix<T> at(tile_coord t) const {
    index_range const rows = g.rows(t.group);
    return c.submatrix(platform::uniform(rows.begin), 0, platform::uniform(rows.size()), c.cols);
  }
  /// See epilogue_of_tile().
  template <grouped_epilogue E>
  __device__ auto of_tile(tile_coord t, E const& e) const {
    using of_group = typename epilogue_of_groups<E>::type;
    int const first = platform::uniform(g.rows(t.group).begin);
    if constexpr (epilogue_by_group<E>) return epilogue_from_row<of_group>{e.of_group(t.group), first};
    else return epilogue_from_row<of_group>{e, first};
  }
  template <group Group>
  __device__ void stored(Group, tile_coord, stored_slice) const {}
};

}  // namespace fusewire
