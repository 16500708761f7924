#include "products.hpp"

float support::product_of(unsigned seed, int rank, int k, int i, int column) {
  float sum = 0;
  for (int j = 0; j < k; ++j) sum += a_of(seed, rank, i, j) * b_of(seed, rank, j, column);
  return sum;
}
