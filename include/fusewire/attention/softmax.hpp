// Softmax over slices of the tokens: each yields a partial (o, m, l), and partials are combined in a fixed order.
//
//   m = max of the scores x, in units of log 2      l = sum of 2^(x - m)      o = sum of 2^(x - m) v
//
// No tokens: m = -infinity, l = 0, o = 0; no step yields NaN.
#pragma once
#include <limits>

#include <fusewire/core/types.hpp>

namespace fusewire {

inline constexpr float log2_of_e = 1.44269504f, ln_of_2 = 0.69314718f;            // scores are in units of log 2
inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();  // the m of no tokens

/// How scores are made from products of Q and K, in units of log 2.
struct score_map {
  float scale;  // of products
  /// Scores become cap * tanh(score / cap); 0: they stay. Only attention with a soft cap looks at it
  float cap;

  /// The score of a product.
  template <bool SoftCap>
  __device__ float score(float product) const {
    float const x = product * scale;
    if constexpr (!SoftCap) return x;
    if (cap == 0) return x;
    // tanh(y) = 1 - 2 / (1 + e^2y)
    float const power = platform::exp2(x * (2 * log2_of_e / cap));
    return cap - 2 * cap * platform::quick_reciprocal(1 + power);
  }
};

/// Four neighbouring d of an output.
struct alignas(16) vec4 {
  float x[4];  // neighbours
};

/// A partial without o.
struct alignas(8) softmax_scale {
  float m = minus_infinity, l = 0;  // the largest score, in units of log 2; the sum of the weights
};

/// A partial of four elements of a head.
struct softmax_partial {
  vec4 o{};         // the sum of weighted v
  softmax_scale s;  // of the same tokens
};

/// 2^(x - m), and 0 for x = -infinity whatever m is.
__device__ inline float softmax_weight(float x, float m) {
  return platform::exp2(x - (m == minus_infinity ? 0.0f : m));
}

/// Combines the partials 0, 1, ... count - 1, in this order: scale_at(i, j) is the i-th one's (m, l), o_at(i, j) its o.
/// `Flight` of them are in flight together, j = 0, 1, ...; before, ahead(i) is called with the first of them.
/// Requires: count >= 1.
template <int Flight, class ScaleAt, class OutputAt, class Ahead>
__device__ softmax_partial combine_partials(int count, ScaleAt scale_at, OutputAt o_at, Ahead ahead) {
  softmax_partial sum;
  int first = 0;
  do {
    softmax_scale s[Flight];
    vec4 o[Flight];
    ahead(first);
#pragma unroll
    for (int i = 0; i < Flight; ++i) {
      int const partial = first + i < count ? first + i : count - 1;
      s[i] = scale_at(partial, i);
      o[i] = o_at(partial, i);
    }
    float m = sum.s.m;
#pragma unroll
    for (int i = 0; i < Flight; ++i) m = fmaxf(m, s[i].m);
    float const shrink = softmax_weight(sum.s.m, m);
    sum.s.m = m;
    sum.s.l *= shrink;
#pragma unroll
    for (int j = 0; j < 4; ++j) sum.o.x[j] *= shrink;
#pragma unroll
    for (int i = 0; i < Flight; ++i) {
      float const weight = first + i < count ? softmax_weight(s[i].m, m) : 0.0f;
      sum.s.l += s[i].l * weight;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.o.x[j] += o[i].x[j] * weight;
    }
    first += Flight;
  } while (first < count);
  return sum;
}

/// The same for partials that are read where they are used.
template <int Flight, class ScaleAt, class OutputAt>
__device__ softmax_partial combine_partials(int count, ScaleAt scale_at, OutputAt o_at) {
  return combine_partials<Flight>(
      count, [&](int i, int) { return scale_at(i); }, [&](int i, int) { return o_at(i); }, [](int) {});
}

}  // namespace fusewire
