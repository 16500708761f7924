// What the programs of projections share: a clock, and matrices whose products are exact. They are run by
// scripts/perf/project.py under fusewire-sim --time.
#pragma once
#include <fusewire/fusewire.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace fusewire::projected {

/// A small number that depends on the index: sums of products of such numbers are exact in fp32.
inline int small_number(std::size_t i) { return int((i * 2654435761u >> 20) % 5) - 2; }

/// All ranks go on together, once the host has enqueued what follows.
static __global__ void begin_together(world_view w, sym<barrier_state> s, std::uint64_t head_start) {
  block const b;
  std::uint64_t const t0 = platform::clock_ns();
  while (platform::clock_ns() - t0 < head_start) platform::backoff();
  barrier(b, w, s);
}

/// How calls are enqueued: all of them as one graph, or one after the other by the host, which has a head start.
enum class enqueued { as_graph, one_by_one };

/// Times in the ranks' events.
class stopwatch {
 public:
  stopwatch(world& w, heap& h) : w_(w), view_(h.view()), meet_(h.allocate<barrier_state>(1)) {
    check_hip(hipEventCreate(&start_), "hipEventCreate");
    check_hip(hipEventCreate(&stop_), "hipEventCreate");
  }
  ~stopwatch() {
    (void)hipEventDestroy(start_);
    (void)hipEventDestroy(stop_);
  }
  /// How many calls time() makes.
  static int calls(bool few) { return few ? 1 : 3; }

  /// The slowest rank's time of a call, in us. `few`: of the first one; else of one among several.
  double time(bool few, std::function<void(int)> const& call, enqueued how = enqueued::as_graph) {
    double const one = slowest(of_ranks([&] { call(0); }, how));
    return few ? one : slowest(of_ranks([&] { call(1), call(2); }, how)) - one;
  }
  /// Every rank's time of what is enqueued, in us. meet(): enqueues what comes before it, once ranks have met.
  std::vector<double> of_ranks(std::function<void()> const& enqueue, enqueued how = enqueued::as_graph,
                               std::function<void()> const& meet = {}) {
    hipGraph_t graph = nullptr;
    hipGraphExec_t exec = nullptr;
    if (how == enqueued::as_graph) {
      w_.barrier();  // nobody copies while another rank captures
      check_hip(hipStreamBeginCapture(w_.stream(), hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
      enqueue();
      check_hip(hipStreamEndCapture(w_.stream(), &graph), "hipStreamEndCapture");
      check_hip(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
      w_.barrier();
    }
    launch(w_, w_.stream(), {.blocks = 1, .threads = 64}, begin_together, view_, meet_, std::uint64_t(40'000));
    if (meet) meet();
    check_hip(hipEventRecord(start_, w_.stream()), "hipEventRecord");
    if (exec) check_hip(hipGraphLaunch(exec, w_.stream()), "hipGraphLaunch");
    else enqueue();
    check_hip(hipEventRecord(stop_, w_.stream()), "hipEventRecord");
    w_.check(w_.stream());
    float ms = 0;
    check_hip(hipEventElapsedTime(&ms, start_, stop_), "hipEventElapsedTime");
    if (exec) check_hip(hipGraphExecDestroy(exec), "hipGraphExecDestroy");
    if (graph) check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
    return w_.exchange().all_gather(double(ms) * 1e3);
  }
  static double slowest(std::vector<double> const& all) { return *std::max_element(all.begin(), all.end()); }

 private:
  world& w_;
  world_view view_;
  sym<barrier_state> meet_;
  hipEvent_t start_, stop_;
};

template <class T>
T* upload(T* to, std::vector<T> const& from) {
  check_hip(hipMemcpy(to, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice), "hipMemcpy");
  return to;
}

/// Device memory of one rank, gone with the program.
template <class T>
T* allocate(std::size_t count) {
  void* p = nullptr;
  check_hip(hipMalloc(&p, count * sizeof(T)), "hipMalloc");
  return static_cast<T*>(p);
}

/// The same on all ranks, made once.
inline std::vector<bf16> const& weights_of(std::size_t count) {
  static std::vector<bf16> const b = [count] {
    std::vector<bf16> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = bf16(float(small_number(i * 3)));
    return all;
  }();
  return b;
}

/// The gathered A, of which a row has of_k elements.
inline float a_at(int m, int k, int of_k) {
  return float(small_number(std::size_t(m) * std::size_t(of_k) + std::size_t(k)));
}

/// Checks some elements of C, whose row 0 is row `first` of A B, or of the sum of `sources` products: source r has B
/// [k, n] and the r-th k columns of A. Their partial sums are rounded to bf16, and C is; all else is exact. C may have
/// several times n columns. Fails: runtime_failure.
inline void check_product(world const& w, matrix<bf16> const& c, std::vector<bf16> const& b, int n, int k,
                          int sources = 1, int first = 0) {
  std::size_t const size = std::size_t(c.rows) * std::size_t(c.cols);
  std::vector<bf16> out(size);
  check_hip(hipMemcpy(out.data(), c.data, size * sizeof(bf16), hipMemcpyDeviceToHost), "hipMemcpy");
  for (std::size_t i = 0; i < size; i += size / 97 + 1) {
    int const row = int(i / std::size_t(c.cols)), col = int(i % std::size_t(c.cols));
    float want = 0, error = 0;
    for (int r = 0; r < sources; ++r) {
      float part = 0;
      for (int at = 0; at < k; ++at)
        part += a_at(first + row, r * k + at, sources * k) *
                float(b[std::size_t(col % n) * std::size_t(k) + std::size_t(at)]);
      want += part;
      if (sources > 1) error += std::abs(part) / 256;
    }
    require<runtime_failure>(std::abs(float(out[i]) - want) <= error + (std::abs(want) + error) / 256,
                             std::source_location::current(), "rank ", w.rank(), ": C[", row, ", ", col, "] is ",
                             float(out[i]), ", not ", want);
  }
}

}  // namespace fusewire::projected
