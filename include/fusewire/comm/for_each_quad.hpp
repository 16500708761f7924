// Divides a tile's elements, four by four, among the threads of a group.
#pragma once
#include <fusewire/core/group.hpp>

namespace fusewire::detail {

/// Calls visit(r, col) for the first of each 4 neighbouring elements of a tile that begins at (m0, n0). The tile has at
/// most tile_m x tile_n elements, and only those inside rows x cols.
template <group Group, class Visit>
__device__ void for_each_quad(Group g, int m0, int n0, int tile_m, int tile_n, int rows, int cols, Visit const& visit) {
  int const quads = tile_n / 4;
  for (int i = g.rank(); i < tile_m * quads; i += g.size()) {
    int const r = m0 + i / quads, col = n0 + i % quads * 4;
    if (r < rows && col < cols) visit(r, col);
  }
}

}  // namespace fusewire::detail
