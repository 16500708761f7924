// What the fuzz targets share: bytes as arguments, and the rule. A call with any arguments returns, or throws a
// fusewire::error; what else is thrown, a sanitizer's report, and a report of the simulator are findings.
#pragma once
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/thread_bootstrap.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace fuzz {

using namespace fusewire;

/// Reads arguments from the bytes; zeros when they are used up.
class input {
 public:
  input(std::uint8_t const* data, std::size_t size) : at_(data), end_(data + size) {}

  bool done() const { return at_ == end_; }
  unsigned byte() { return at_ == end_ ? 0u : *at_++; }
  bool coin() { return byte() & 1; }
  bool rarely() { return byte() % 8 == 7; }  // not when the bytes are used up
  int below(int n) { return int(byte()) % n; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[byte() % choices.size()];
  }
  std::uint64_t raw(int bytes) {
    std::uint64_t x = 0;
    for (int i = 0; i < bytes; ++i) x = x << 8 | byte();
    return x;
  }
  /// Small ones, powers of two and their neighbours, the ends of the range, anything.
  template <class T = int>
  T integer() {
    using limits = std::numeric_limits<T>;
    using wide = std::make_unsigned_t<T>;
    switch (below(6)) {
      case 0:
      case 1: return T(byte());
      case 2: return T(8 * byte());
      case 3: return T((wide(1) << below(8 * int(sizeof(T)))) + wide(below(5)) - 2);
      case 4: return T(wide(coin() ? limits::max() : limits::min()) + wide(below(33)) - 16);
      default: return T(raw(sizeof(T)));
    }
  }

 private:
  std::uint8_t const *at_, *end_;
};

inline void must(bool ok, char const* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// f() returns, or throws what it may. True when it returned.
template <class F>
bool accepted(F f) {
  try {
    f();
    return true;
  } catch (fusewire::error const&) {
    return false;
  }
}

/// Runs f() while the world's stream captures: what it launches is checked as for a launch, but does not run.
/// Collective: nobody copies meanwhile.
template <class F>
void without_running(world& w, F f) {
  hipStream_t const stream = w.stream();
  w.barrier();
  check_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
  accepted(f);
  hipGraph_t graph = nullptr;
  check_hip(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
  check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
  w.barrier();
}

/// f(world&) on one or two ranks. Mostly on one, without its own thread: that is much faster.
template <class F>
void on_ranks(bool two, F f) {
  accepted([&] {
    if (two) return run_local(2, f);
    world w(std::make_unique<thread_bootstrap>(std::make_shared<thread_bootstrap::hub>(1), 0), 0);
    f(w);
  });
}

inline heap_options small_heap() {
  return {.bulk = 1_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(20)};
}

}  // namespace fuzz
