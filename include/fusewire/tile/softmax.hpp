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
__device__ inline float softmax_weight(float x, float m) { return platform::exp2(x - (m == minus_infinity ? 0.0f : m)); }

/// The parts 0, 1, ... count - 1, in this order: scale_at(i) is the i-th one's (m, l), o_at(i) its o.
template <class ScaleAt, class OutputAt>
__device__ softmax_part combine_parts(int count, ScaleAt scale_at, OutputAt o_at) {
  softmax_part sum;
#pragma unroll 4
  for (int i = 0; i < count; ++i) sum.s.m = fmaxf(sum.s.m, scale_at(i).m);
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    softmax_scale const s = scale_at(i);
    quad const o = o_at(i);
    float const weight = softmax_weight(s.m, sum.s.m);
    sum.s.l += s.l * weight;
#pragma unroll
    for (int j = 0; j < 4; ++j) sum.o.x[j] += o.x[j] * weight;
  }
  return sum;
}

}  // namespace fusewire
