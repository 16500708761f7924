#include "attention.hpp"

#include <algorithm>
#include <cmath>

support::attended support::attend(decode_problem const& p, int ranks, int s, int head, int group, int d, double scale) {
  attended a{-INFINITY, 0, 0, 0, 0, std::vector<double>(std::size_t(d))};
  std::vector<double> scores;
  for (int r = 0; r < ranks; ++r)
    for (int t = 0; t < p.length(r, s); ++t) {
      double dot = 0;
      for (int j = 0; j < d; ++j) dot += double(p.q(s, head, j)) * double(p.k(r, s, t, head / group, j));
      scores.push_back(dot * scale);
      a.m = std::max(a.m, dot * scale);
      a.most = std::max(a.most, std::abs(dot * scale));
    }
  a.tokens = double(scores.size());
  std::size_t i = 0;
  for (int r = 0; r < ranks; ++r)
    for (int t = 0; t < p.length(r, s); ++t) {
      double const weight = std::exp(scores[i++] - a.m);
      a.l += weight;
      if (weight < 1e-12) continue;
      for (int j = 0; j < d; ++j) {
        double const value = p.v(r, s, t, head / group, j);
        a.vmax = std::max(a.vmax, std::abs(value));
        a.o[std::size_t(j)] += weight * value;
      }
    }
  return a;
}
