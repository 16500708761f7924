// The epilogue of the tests of GEMMs. One for all: each is a set of kernels to compile, and tests/kernels/once.hpp
// compiles those of the GEMM without communication, which operators launch on one rank, for all tests.
#pragma once
#include <fusewire/device/atomic.hpp>

namespace support {

/// Its result depends on where an element is, and it counts its calls for each element of C.
struct counted {
  unsigned* calls;  // [rows, N]
  int n;
  __device__ float operator()(float x, int row, int column) const {
    (void)fusewire::atomic_ref<unsigned>(calls + row * n + column).fetch_add(1, fusewire::order::relaxed);
    return x + float(row % 4) - 2 * float(column % 3);
  }
  /// What it makes of a sum.
  static float of(float x, int row, int column) { return x + float(row % 4) - 2 * float(column % 3); }
};

}  // namespace support
