#include "attention.hpp"

#include <algorithm>
#include <cmath>

support::attended support::attend(decode_problem const& p, int ranks, int s, int head, int group, int d, double scale,
                                  double cap) {
  attended a{-INFINITY, 0, 0, 0, 0, std::vector<double>(std::size_t(d))};
  std::vector<double> scores;
  for (int r = 0; r < ranks; ++r)
    for (int t = p.first(r, s); t < p.length(r, s); ++t) {
      double dot = 0;
      for (int j = 0; j < d; ++j) dot += double(p.q(s, head, j)) * double(p.k(r, s, t, head / group, j));
      double const score = cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale;
      scores.push_back(score);
      a.m = std::max(a.m, score);
      a.most = std::max(a.most, std::abs(score));
    }
  a.tokens = double(scores.size());
  std::size_t i = 0;
  for (int r = 0; r < ranks; ++r)
    for (int t = p.first(r, s); t < p.length(r, s); ++t) {
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
