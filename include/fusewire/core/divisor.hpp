// Division by a number that the host knows, as a multiplication and a shift. A division would cost a kernel a hundred
// cycles.
#pragma once
#include <cstdint>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// A positive divisor of numbers from 0 to 2^31 - 1. Made on the host and passed to kernels.
/// Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", figure 4.1.
class divisor {
 public:
  /// Divides by d. Requires: d >= 1.
  __host__ __device__ constexpr divisor(int d = 1) : value_(unsigned(d)) {
    while ((std::uint64_t(1) << shift_) < value_) ++shift_;
    magic_ = unsigned((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift_) - value_) / value_ + 1);
  }

  /// The divisor itself.
  __host__ __device__ constexpr int value() const { return int(value_); }

  __host__ __device__ friend constexpr int operator/(int n, divisor const& d) {
    unsigned const high = unsigned(std::uint64_t(unsigned(n)) * d.magic_ >> 32);
    return int((high + unsigned(n)) >> d.shift_);
  }
  __host__ __device__ friend constexpr int operator%(int n, divisor const& d) { return n - n / d * int(d.value_); }

 private:
  unsigned value_, magic_ = 0, shift_ = 0;
};

}  // namespace fusewire
