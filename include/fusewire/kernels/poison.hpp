// What is stored in place of results that nobody can have computed.
#pragma once
#include <fusewire/core/group.hpp>
#include <fusewire/core/matrix.hpp>

namespace fusewire::detail {

/// Makes a tile of c NaN, from c(m0, n0) on. Called by: every thread of the group.
template <class T, group Group>
__device__ void poison_tile(Group g, matrix<T> c, int m0, int n0, int rows, int columns) {
  for (int r = m0; r < c.rows && r < m0 + rows; ++r)
    for (int j = n0 + g.rank(); j < c.cols && j < n0 + columns; j += g.size()) c(r, j) = T(__builtin_nanf(""));
}

}  // namespace fusewire::detail
