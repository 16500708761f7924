// Softmax in parts: each part of the tokens yields (o, m, l), and parts are combined in a fixed order.
//
//   m = max of the scores x, in units of log 2      l = sum of 2^(x - m)      o = sum of 2^(x - m) v
//
// No tokens: m = -infinity, l = 0, o = 0, and nothing becomes NaN on the way.
#pragma once
#include <limits>

#include <fusewire/core/types.hpp>

namespace fusewire {

inline constexpr float log2_of_e = 1.44269504f, ln_of_2 = 0.69314718f;
inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Four neighbouring d of an output.
struct alignas(16) quad {
  float x[4];
};

struct alignas(8) softmax_scale {
  float m = minus_infinity, l = 0;
};

struct softmax_part {
  quad o{};
  softmax_scale s;
};

/// 2^(x - m), and 0 for x = -infinity whatever m is.
__device__ inline float softmax_weight(float x, float m) {
  return platform::exp2(x - (m == minus_infinity ? 0.0f : m));
}

/// The parts 0, 1, ... count - 1, in this order: scale_at(i) is the i-th one's (m, l), o_at(i) its o. `Flight` of them
/// are read at once.
/// Requires: count >= 1.
template <int Flight, class ScaleAt, class OutputAt>
__device__ softmax_part combine_parts(int count, ScaleAt scale_at, OutputAt o_at) {
  softmax_part sum;
  int first = 0;
  do {
    softmax_scale s[Flight];
    quad o[Flight];
#pragma unroll
    for (int i = 0; i < Flight; ++i) {
      int const part = first + i < count ? first + i : count - 1;
      s[i] = scale_at(part);
      o[i] = o_at(part);
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

}  // namespace fusewire
