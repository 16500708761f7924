// What the calibration programs share: a node of GPUs that reach each other's memory, and the time of a kernel that
// runs on all of them.
//
//   per GPU:  warm-up launches | start event | timed launches | stop event       time = slowest GPU / launches
//
// A program prints one line, "us: TIME", and ends with 1 when a result is wrong: a kernel that moves nothing is fast.
#pragma once
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace calibration {

using words = unsigned __attribute__((ext_vector_type(4)));  // 16 bytes, what a lane loads at once
using halves = _Float16 __attribute__((ext_vector_type(8)));

inline void check(hipError_t e, char const* what) {
  if (e == hipSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(e));
  std::exit(1);
}

[[noreturn]] inline void usage(char const* text) {
  std::fprintf(stderr, "usage: %s\n", text);
  std::exit(2);
}

/// Argument i as a positive number.
inline long number(int argc, char** argv, int i, char const* text) {
  long const n = i < argc ? std::atol(argv[i]) : 0;
  if (n <= 0) usage(text);
  return n;
}

class node {
 public:
  static constexpr int most = 8;

  explicit node(int gpus)
      : gpus_(gpus), streams_(std::size_t(gpus)), starts_(std::size_t(gpus)), stops_(std::size_t(gpus)) {
    int there = 0;
    check(hipGetDeviceCount(&there), "hipGetDeviceCount");
    if (there < gpus) {
      std::fprintf(stderr, "%d GPUs are needed, %d are there\n", gpus, there);
      std::exit(77);
    }
    on_each([&](int g) {
      for (int peer = 0; peer < gpus_; ++peer)
        if (peer != g) check(hipDeviceEnablePeerAccess(peer, 0), "hipDeviceEnablePeerAccess");
      check(hipStreamCreate(&streams_[std::size_t(g)]), "hipStreamCreate");
      check(hipEventCreate(&starts_[std::size_t(g)]), "hipEventCreate");
      check(hipEventCreate(&stops_[std::size_t(g)]), "hipEventCreate");
    });
  }

  int gpus() const { return gpus_; }

  /// Memory of one GPU, zeroed; the next call may be for another.
  template <class T>
  T* allocate(int gpu, std::size_t count, bool uncached = false) const {
    void* p = nullptr;
    check(hipSetDevice(gpu), "hipSetDevice");
    std::size_t const bytes = std::max<std::size_t>(count * sizeof(T), 16);
    check(uncached ? hipExtMallocWithFlags(&p, bytes, hipDeviceMallocUncached) : hipMalloc(&p, bytes), "allocating");
    check(hipMemset(p, 0, bytes), "hipMemset");
    check(hipDeviceSynchronize(), "hipDeviceSynchronize");
    return static_cast<T*>(p);
  }

  template <class T>
  static T* upload(T* to, std::vector<T> const& from) {
    check(hipMemcpy(to, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice), "hipMemcpy");
    return to;
  }
  template <class T>
  static std::vector<T> download(T const* from, std::size_t count) {
    std::vector<T> to(count);
    check(hipMemcpy(to.data(), from, count * sizeof(T), hipMemcpyDeviceToHost), "hipMemcpy");
    return to;
  }

  /// Microseconds of one launch on the slowest GPU. launch(gpu, stream, i) enqueues the i-th. A host thread for each
  /// GPU, as a process each in what was published.
  template <class Launch>
  double time(int warm_ups, int launches, Launch launch) {
    std::vector<float> ms(static_cast<std::size_t>(gpus_));
    std::vector<std::thread> threads;
    for (int g = 0; g < gpus_; ++g)
      threads.emplace_back([&, g] {
        hipStream_t const stream = streams_[std::size_t(g)];
        hipEvent_t const start = starts_[std::size_t(g)], stop = stops_[std::size_t(g)];
        check(hipSetDevice(g), "hipSetDevice");
        for (int i = 0; i < warm_ups; ++i) launch(g, stream, i);
        check(hipEventRecord(start, stream), "hipEventRecord");
        for (int i = 0; i < launches; ++i) launch(g, stream, warm_ups + i);
        check(hipEventRecord(stop, stream), "hipEventRecord");
        check(hipGetLastError(), "a launch");
        check(hipStreamSynchronize(stream), "hipStreamSynchronize");
        check(hipEventElapsedTime(&ms[std::size_t(g)], start, stop), "hipEventElapsedTime");
      });
    for (auto& t : threads) t.join();
    return double(*std::max_element(ms.begin(), ms.end())) * 1e3 / launches;
  }

 private:
  template <class F>
  void on_each(F f) {
    for (int g = 0; g < gpus_; ++g) {
      check(hipSetDevice(g), "hipSetDevice");
      f(g);
    }
  }

  int gpus_;
  std::vector<hipStream_t> streams_;
  std::vector<hipEvent_t> starts_, stops_;
};

/// Small whole numbers in no simple order: their products and sums are exact in bf16 and fp16 as far as the checks
/// look.
inline int small_number(std::size_t i) { return int((i * 2654435761u >> 20) % 5) - 2; }

/// The program's last words.
inline int report(double us, bool right) {
  if (right) std::printf("us: %.3f\n", us);
  else std::printf("WRONG\n");
  return right ? 0 : 1;
}

}  // namespace calibration
