// The three things that a fused GEMM is put together from, beside its grid of tiles and its mainloop:
//
//   tile source --> where a tile's rows of A are, when they are there --> mainloop --> epilogue
//               --> where C's tile goes <-- tile sink
//
// A mainloop goes through its tiles. It multiplies steps of 64 along k as the source hands them out, and the sink
// learns that a tile is stored. Neither knows how the mainloop moves or multiplies what they name, so one text of each
// serves every architecture.
#pragma once
#include <concepts>

#include <fusewire/core/divisor.hpp>
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>
#include <fusewire/tile/grid.hpp>

namespace fusewire {

inline constexpr int k_step = 64;  // columns of A

/// Steps along k that are there, `count` of them side by side: from this row and column of one of the launch's buffers
/// of A.
struct k_run {
  int buffer, row, column, count;
};

/// A tile source. `place` is where a step along k begins. The steps of a tile, steps() of them and at least one, are
/// the same for every tile: the first is at first(); advance(p, n) goes on by n, at most left(p), which is how many
/// follow each other from p on; k(p) is the row of B where a step begins, and column(p) its column in a buffer of A,
/// all of which have as many. For A, begin(m) announces tile row m and returns how many rows of A it has; wait(p)
/// returns when its rows are there for the step at p, and for as many after it as the run says. What is asked for in
/// vain counts as there: see "When a rank does not come" in docs/protocol.md. begin and wait are called by a group of
/// threads, all of them: which group is the mainloop's affair, and a source's type may depend on it.
template <class S>
concept tile_source = requires(S s, S const steps, typename S::place p, int n) {
  { steps.steps() } -> std::same_as<int>;
  { steps.first() } -> std::same_as<typename S::place>;
  steps.advance(p, n);
  { steps.left(p) } -> std::same_as<int>;
  { steps.k(p) } -> std::same_as<int>;
  { steps.column(p) } -> std::same_as<int>;
  { s.begin(n) } -> std::same_as<int>;
  { s.wait(p) } -> std::same_as<k_run>;
};

/// A tile sink. at(t) is the matrix that takes tile t, of any rank's memory; rows and columns are numbered as the grid
/// of tiles does it, and those from its rows and cols on are not stored. stored(g, t): called by every thread of the
/// group when it has stored its part, and before they meet; of a tile that blocks share, by such a group of each of
/// them, which has stored its part_rows().
template <class S>
concept tile_sink = requires(S const s, block g, tile_at t) {
  s.at(t).rows;
  s.stored(g, t);
};

/// The steps along k of block `part` of those that share a tile: the first blocks have one more where they do not come
/// out even.
struct k_share {
  int first, count;

  __device__ k_share(int steps, int part, divisor const& parts) {
    int const each = steps / parts, more = steps % parts;
    first = platform::uniform(part * each + (part < more ? part : more));
    count = platform::uniform(each + (part < more));
  }
};

/// The rows of a tile, of which there are `rows`, that block `part` of the `parts` that share it stores.
struct part_rows {
  int first, count;  // count: or less than 1

  __device__ part_rows(int rows, int part, int parts) {
    int const each = ceil_div(rows, parts);
    first = part * each;
    count = rows - first < each ? rows - first : each;
  }
};

/// A tile source: a matrix [M, K] of this rank's, the launch's buffer 0. Block `part` of the `parts` that share a tile.
class local_rows {
 public:
  using place = int;  // column

  __device__ local_rows(int m, int k, int tile_m, int part = 0, divisor const& parts = 1)
      : m_(m), tile_m_(tile_m), share_(ceil_div(k, k_step), part, parts) {}

  __device__ int steps() const { return share_.count; }
  __device__ place first() const { return share_.first * k_step; }
  __device__ void advance(place& p, int steps) const { p += steps * k_step; }
  __device__ int left(place p) const { return share_.first + share_.count - p / k_step; }
  __device__ int k(place p) const { return p; }
  __device__ int column(place p) const { return p; }
  __device__ int begin(int tile_row) { return begin_at(tile_row * tile_m_, m_ - tile_row * tile_m_); }
  __device__ k_run wait(place p) const { return {0, row_, p, left(p)}; }

 protected:
  /// A tile of at most tile_m rows, of which `left` are left from `row` on.
  __device__ int begin_at(int row, int left) {
    row_ = row;
    return left < tile_m_ ? left : tile_m_;
  }

 private:
  int m_, tile_m_, row_ = 0;
  k_share share_;
};
static_assert(tile_source<local_rows>);

/// A tile sink: a matrix of this rank's, and nobody is told.
template <class T>
struct into {
  matrix<T> c;
  __device__ matrix<T> at(tile_at) const { return c; }
  template <group Group>
  __device__ void stored(Group, tile_at) const {}
};

}  // namespace fusewire
