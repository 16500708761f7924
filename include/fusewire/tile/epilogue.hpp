// What happens to an accumulated element before it is stored: float operator()(float acc, int row, int column) on the device.
#pragma once
#include <fusewire/core/types.hpp>

namespace fusewire {

struct identity {
  __device__ float operator()(float x, int, int) const { return x; }
};

/// Adds bias[column].
template <class T>
struct bias {
  T const* values;  // [N]
  __device__ float operator()(float x, int, int column) const { return x + float(values[column]); }
};

/// silu(x + bias[column]), silu(y) = y / (1 + exp(-y)).
template <class T>
struct bias_silu {
  T const* values;  // [N]
  __device__ float operator()(float x, int, int column) const {
    float const y = x + float(values[column]);
    return y / (1.0f + platform::exp2(-1.44269504f * y));
  }
};

}  // namespace fusewire
