#include "products.hpp"

float support::sum_of_products(unsigned seed, int ranks, int k, int i, int column) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r)
    for (int j = 0; j < k; ++j) sum += a_of(seed, r, i, j) * b_of(seed, r, j, column);
  return sum;
}
