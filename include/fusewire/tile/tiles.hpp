// The parts of a fused GEMM beside its grid of tiles and its mainloop: a tile source, an epilogue and a tile sink.
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
#include <fusewire/tile/grid.hpp>

namespace fusewire {

inline constexpr int k_step = 64;  // columns of A

/// Steps along k that are there: `count` of them, side by side, from this row and column of one of the launch's buffers
/// of A on.
struct k_run {
  int buffer, row, column, count;  // which buffer; its row and column; steps
};

/// A tile source. A place says where a step along k begins. Every tile has the same steps(), at least one. The first
/// step is at first(). left(p) says how many steps follow each other side by side from p on, and advance(p, n) goes on
/// by n <= left(p) steps. k(p) is the row of B where the step at p begins, and column(p) its column in a buffer of A;
/// all these buffers have the same number of columns. begin(m) announces tile row m and returns how many rows of A it
/// has. wait(p) returns when these rows are there for the step at p, and for the steps after it that the k_run says.
/// Data whose wait was given up counts as there: see "When a rank does not come" in docs/protocol.md.
/// first() and advance() may change the source; with waits_for_all_left one place at a time is followed.
/// begin and wait are called by every thread of a group. The mainloop chooses the group, and the type of a source may
/// depend on it.
template <class S>
concept tile_source = requires(S s, S const steps, typename S::place p, int n) {
  { steps.steps() } -> std::same_as<int>;
  { s.first() } -> std::same_as<typename S::place>;
  s.advance(p, n);
  { steps.left(p) } -> std::same_as<int>;
  { steps.k(p) } -> std::same_as<int>;
  { steps.column(p) } -> std::same_as<int>;
  { s.begin(n) } -> std::same_as<int>;
  { s.wait(p) } -> std::same_as<k_run>;
};

/// Whether wait(p) of a source returns only when all left(p) steps are there, so that mainloops need no loop around it.
/// Behind the last step of a tile it must return at once: a mainloop may ask there, too. Such a source also has
/// where(p), which is what wait(p) returns, at once: one group of a block may wait for others, which meet it before
/// they read the rows.
/// Specialised for sources of which that is so; a class that is derived from one of them is another source.
template <class S>
inline constexpr bool waits_for_all_left = false;

/// Whether one wait(p) of a source is for all steps of a tile: all of A lies in this rank's memory from the start.
/// Specialised as waits_for_all_left.
template <class S>
inline constexpr bool waits_once = false;

/// A tile sink. at(t) is the matrix that takes tile t, in the memory of any rank. Its rows and columns are numbered as
/// in the grid of tiles; rows from at(t).rows on and columns from at(t).cols on are not stored. stored(g, t) is called
/// by every thread of a group when the thread has stored its part, before the group meets. If blocks share a tile, such
/// a group of each of them calls it, after storing the block's part_rows. A mainloop may make the call as late as after
/// the multiplication of the group's next tile.
template <class S>
concept tile_sink = requires(S const s, block g, tile_at t) {
  s.at(t).rows;
  s.stored(g, t);
};

/// The steps along k of block `part` of the `parts` that share a tile. If they cannot be divided evenly, the first
/// blocks have one more.
struct k_share {
  int first, count;  // the first step, and how many

  /// Of a tile with `steps` steps. Called by: every thread of the block, with the same arguments.
  __device__ k_share(int steps, int part, divisor const& parts) {
    int const each = steps / parts, more = steps % parts;
    first = platform::uniform(part * each + (part < more ? part : more));
    count = platform::uniform(each + (part < more));
  }
};

/// The rows of a tile that block `part` of the `parts` that share it stores.
struct part_rows {
  int first, count;  // the first row; how many, less than 1 if there are none

  /// Of a tile with `rows` rows, of which one block stores every `together` neighbouring ones.
  __device__ part_rows(int rows, int part, int parts, int together) {
    int const each = ceil_div(ceil_div(rows, together), parts) * together;
    first = part * each;
    count = rows - first < each ? rows - first : each;
  }
};

/// A tile source: a matrix [M, K] in this rank's memory, the launch's buffer 0.
class local_rows {
 public:
  using place = int;  // column

  /// m, k: of the matrix; part: which of the `parts` blocks that share a tile this is.
  __device__ local_rows(int m, int k, int tile_m, int part = 0, divisor const& parts = 1)
      : m_(m), tile_m_(tile_m), share_(ceil_div(k, k_step), part, parts) {}

  __device__ int steps() const { return share_.count; }
  __device__ place first() const { return share_.first * k_step; }
  __device__ void advance(place& p, int steps) const { p += steps * k_step; }
  __device__ int left(place p) const { return share_.first + share_.count - p / k_step; }
  __device__ int k(place p) const { return p; }
  __device__ int column(place p) const { return p; }
  __device__ int begin(int tile_row) { return begin_at(tile_row * tile_m_, m_ - tile_row * tile_m_); }
  __device__ k_run wait(place p) const { return where(p); }
  /// See waits_for_all_left.
  __device__ k_run where(place p) const { return {0, row_, p, left(p)}; }

 protected:
  /// Begins a tile at row `row`, from which on the matrix has `left` rows. Returns how many the tile has.
  __device__ int begin_at(int row, int left) {
    row_ = row;
    return left < tile_m_ ? left : tile_m_;
  }

 private:
  int m_, tile_m_, row_ = 0;
  k_share share_;
};
static_assert(tile_source<local_rows>);
/// All of the matrix is there from the start.
template <>
inline constexpr bool waits_for_all_left<local_rows> = true;
/// For the same reason.
template <>
inline constexpr bool waits_once<local_rows> = true;

/// A tile sink: a matrix in this rank's memory; no rank is told.
template <class T>
struct into {
  matrix<T> c;  // [M, N]
  __device__ matrix<T> at(tile_at) const { return c; }
  template <group Group>
  __device__ void stored(Group, tile_at) const {}
};

}  // namespace fusewire
