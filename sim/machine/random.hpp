#pragma once
#include "machine.hpp"

namespace fusewire::sim {

/// xorshift64*; the only source of chance in a run.
class random_source {
 public:
  explicit random_source(u64 seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {
    if (!state_) state_ = 1;
    for (int i = 0; i < 8; ++i) next();
  }
  u64 next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  /// Uniform in [0, n).
  u32 below(u32 n) { return static_cast<u32>((next() >> 32) * n >> 32); }
  u32 between(u32 low, u32 high) { return low + below(high - low + 1); }
  bool one_in(u32 n) { return below(n) == 0; }

 private:
  u64 state_;
};

}  // namespace fusewire::sim
