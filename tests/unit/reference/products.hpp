// What tests of GEMMs multiply, and the sums that they expect. Small integers: fp32 sums are exact, so == needs no
// tolerance. The loops stand in their own file, which is compiled with optimisation whatever the tests are.
#pragma once

namespace support {

/// Elements of a rank's A [M, K] and B [K, N]
inline float a_of(unsigned seed, int rank, int i, int j) {
  return float((unsigned(i) * 7 + unsigned(j) * 3 + unsigned(rank) * 2 + seed) % 5) - 2;
}
inline float b_of(unsigned seed, int rank, int j, int column) {
  return float((unsigned(j) * 5 + unsigned(column) * 3 + unsigned(rank) + seed / 5) % 3) - 1;
}

/// An element of a rank's A x B.
float product_of(unsigned seed, int rank, int k, int i, int column);

}  // namespace support
