// The parts of a fused GEMM other than its grid of tiles and its mainloop: a tile source, an epilogue and a tile sink.
//
//   tile source --> where a tile's rows of A are, when they are there --> mainloop --> epilogue
//               --> where C's tile goes <-- tile sink
//
// A mainloop goes through its tiles. It multiplies steps of 64 along k as the source hands them out, and tells the sink
// that a tile is stored. Source and sink do not know how the mainloop moves or multiplies the data, so one text of each
// serves every architecture.
#pragma once
#include <concepts>

#include <fusewire/core/divisor.hpp>
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/core/partition.hpp>
#include <fusewire/gemm/raster_order.hpp>

namespace fusewire {

inline constexpr int k_step = 64;  // columns of A

/// Steps along k that are there: `count` of them, side by side, from this row and column of one of the launch's buffers
/// of A on.
struct k_segment {
  int buffer, row, column, count;  // which buffer; its row and column; steps
};

/// A tile source. A place says where a step along k begins. Every tile has the same steps(), at least one. The first
/// step is at first(). left(p) says how many steps follow each other side by side from p on, and advance(p, n) goes on
/// by n <= left(p) steps. k(p) is the row of B where the step at p begins, and column(p) its column in a buffer of A;
/// all these buffers have the same number of columns. begin(t) announces tile t and returns how many rows of A it
/// has. wait(p) returns when these rows are there for the step at p, and for the steps after it that the k_segment
/// says. Data whose wait timed out counts as there: see "When a rank does not come" in docs/protocol.md. first() and
/// advance() may change the source; with whole_segments one place at a time is followed. begin and wait are called by
/// every thread of a group. The mainloop chooses the group, and the type of a source may depend on it.
template <class S>
concept tile_source = requires(S s, S const steps, typename S::place p, int n, tile_coord t) {
  { steps.steps() } -> std::same_as<int>;
  { s.first() } -> std::same_as<typename S::place>;
  s.advance(p, n);
  { steps.left(p) } -> std::same_as<int>;
  { steps.k(p) } -> std::same_as<int>;
  { steps.column(p) } -> std::same_as<int>;
  { s.begin(t) } -> std::same_as<int>;
  { s.wait(p) } -> std::same_as<k_segment>;
};

/// Whether wait(p) of a source returns only when all left(p) steps are there, so that mainloops need no loop around it.
/// Behind the last step of a tile it must return immediately: a mainloop may ask there, too. Such a source also has
/// where(p), which is what wait(p) returns, immediately: one group of a block may wait for others, which sync with it
/// before they read the rows. Specialised for sources of which that is so; a class that is derived from one of them is
/// another source.
template <class S>
inline constexpr bool whole_segments = false;

/// Whether one wait(p) of a source is for all steps of a tile: all of A lies in this rank's memory from the start.
/// Specialised as whole_segments.
template <class S>
inline constexpr bool always_ready = false;

/// Which of a tile's k slices a group multiplies: number `index` of `count`.
struct k_slice {
  int index = 0;      // from 0 on
  divisor count = 1;  // slices of the tile
};

/// The steps of `steps` along k that belong to a slice. Called by: every thread of a group, with the same arguments.
__device__ inline index_range steps_of_slice(int steps, k_slice const& slice) {
  index_range const x = even_slice(steps, slice.count, slice.index);
  return {platform::uniform(x.begin), platform::uniform(x.end)};
}

/// A tile source: a matrix [M, K] in this rank's memory, the launch's buffer 0.
class local_rows {
 public:
  using place = int;  // column

  /// m, k: of the matrix; slice: of the tiles' k.
  __device__ local_rows(int m, int k, int tile_m, k_slice const& slice = {})
      : m_(m), tile_m_(tile_m), steps_(steps_of_slice(ceil_div(k, k_step), slice)) {}

  __device__ int steps() const { return steps_.size(); }
  __device__ place first() const { return steps_.begin * k_step; }
  __device__ void advance(place& p, int steps) const { p += steps * k_step; }
  __device__ int left(place p) const { return steps_.end - p / k_step; }
  __device__ int k(place p) const { return p; }
  __device__ int column(place p) const { return p; }
  __device__ int begin(tile_coord t) { return begin_at(t.m * tile_m_, m_ - t.m * tile_m_); }
  __device__ k_segment wait(place p) const { return where(p); }
  /// See whole_segments.
  __device__ k_segment where(place p) const { return {0, row_, p, left(p)}; }

 protected:
  /// Begins a tile at row `row`, from which on the matrix has `left` rows. Returns how many the tile has.
  __device__ int begin_at(int row, int left) {
    row_ = row;
    return min(left, tile_m_);
  }

 private:
  int m_, tile_m_, row_ = 0;
  index_range steps_;
};
static_assert(tile_source<local_rows>);
/// All of the matrix is there from the start.
template <>
inline constexpr bool whole_segments<local_rows> = true;
/// For the same reason.
template <>
inline constexpr bool always_ready<local_rows> = true;

}  // namespace fusewire
