// Measures R iterations per replay of a graph; variants take turns.
//
//   per replay:  poison outputs | ranks sync on the device | start event | R iterations | stop event | clock
//                | check outputs
//
// A figure is the median over the repeats of the slowest rank's time, divided by R.
#pragma once
#include "command_line.hpp"
#include "device_side.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fusewire::bench {

/// One way to do the job of a shape, on one rank.
struct variant {
  std::string name;
  std::function<void(int)> iteration;  // enqueues the i-th iteration
  bool graph = true;
  std::function<void()> poison, check;  // both enqueue; check adds to the sums of errors
  std::optional<int> late = {};         // us by which one rank, round robin, begins an iteration later
};

/// The times of --late=US,...; with `taxes` there is a default. If there are any times, 0 is among them, and the others
/// are compared with it.
inline std::vector<int> late_times(command_line& c, bool taxes) {
  auto late = c.numbers("late", taxes ? std::vector{0, 10, 40} : std::vector<int>{}, "0|[1-9][0-9]{0,5}");
  if (!late.empty() && std::find(late.begin(), late.end(), 0) == late.end()) late.insert(late.begin(), 0);
  return late;
}

/// The names under which a variant is measured with late ranks, NAME/late:US. None if its ranks do not communicate, or
/// if it is not in a graph.
inline std::vector<std::string> late_names(std::string const& name, std::vector<int> const& late) {
  std::vector<std::string> all;
  if (name == "bsp_graph" || name == "pull" || name == "push" || name == "chosen" || name == "fused")
    for (int const us : late) all.push_back(text(name, "/late:", us));
  return all;
}

/// The names and all their late_names().
inline std::vector<std::string> with_late(std::vector<std::string> names, std::vector<int> const& late) {
  for (auto const& name : std::vector(names))
    for (auto const& of_late : late_names(name, late)) names.push_back(of_late);
  return names;
}

/// Appends the variants again, with late ranks, under their late_names().
inline void add_late(std::vector<variant>& variants, std::vector<int> const& late) {
  for (auto const& v : std::vector(variants)) {
    auto const names = late_names(v.name, late);
    for (std::size_t i = 0; i < names.size(); ++i)
      variants.push_back({names[i], v.iteration, v.graph, v.poison, v.check, late[i]});
  }
}

struct figure {
  std::string name, failure;
  double us = 0, least = 0, most = 0, error = 0, mhz = 0;  // us: the median
  // Of an iteration: kernels in the graph; without a graph, the time that the slowest rank's host needs to enqueue it
  double kernels = 0, host_us = 0;
};

class graph_exec {
 public:
  graph_exec() = default;
  graph_exec(graph_exec&& g) noexcept : exec_(std::exchange(g.exec_, nullptr)) {}
  ~graph_exec() {
    if (exec_) (void)hipGraphExecDestroy(exec_);
  }
  /// Returns the number of kernels. Ranks that are threads call it inside of attempt(), behind another one: so nobody
  /// copies meanwhile.
  template <class F>
  int capture(hipStream_t stream, F enqueue) {
    hipGraph_t graph = nullptr;
    check_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture");
    try {
      enqueue();
    } catch (...) {
      (void)hipStreamEndCapture(stream, &graph);
      throw;
    }
    check_hip(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
    check_hip(hipGraphInstantiate(&exec_, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
    std::size_t count = 0;
    check_hip(hipGraphGetNodes(graph, nullptr, &count), "hipGraphGetNodes");
    std::vector<hipGraphNode_t> nodes(count);
    check_hip(hipGraphGetNodes(graph, nodes.data(), &count), "hipGraphGetNodes");
    int const kernels = int(std::count_if(nodes.begin(), nodes.end(), [](hipGraphNode_t node) {
      hipGraphNodeType type;
      check_hip(hipGraphNodeGetType(node, &type), "hipGraphNodeGetType");
      return type == hipGraphNodeTypeKernel;
    }));
    check_hip(hipGraphDestroy(graph), "hipGraphDestroy");
    return kernels;
  }
  void launch(hipStream_t stream) const { check_hip(hipGraphLaunch(exec_, stream), "hipGraphLaunch"); }

 private:
  hipGraphExec_t exec_ = nullptr;
};

/// Microseconds that `enqueue` took on this rank's device, from the moment at which all ranks began.
template <class F>
double timed(rank_base& s, F enqueue, std::function<void()> const& before = {},
             std::function<void()> const& after = {}) {
  if (before) before();
  launch(s.w, s.stream(), {.blocks = 1, .threads = 64}, start_together, s.h.view(), s.meet, std::uint64_t(150'000));
  check_hip(hipEventRecord(s.start, s.stream()), "hipEventRecord");
  enqueue();
  check_hip(hipEventRecord(s.stop, s.stream()), "hipEventRecord");
  if (after) after();
  s.w.check(s.stream());
  float ms = 0;
  check_hip(hipEventElapsedTime(&ms, s.start, s.stop), "hipEventElapsedTime");
  return double(ms) * 1e3;
}

inline double slowest(rank_base& s, double mine) {
  auto const all = s.w.exchange().all_gather(mine);
  return *std::max_element(all.begin(), all.end());
}
inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// The n variants in the order of a round. In every round a variant follows a different one, until it has followed all
/// (if n or n + 1 is prime), because the variant that ran just before decides how hot a device is.
inline std::vector<std::size_t> order_of_round(std::size_t n, std::size_t round) {
  std::size_t prime = std::max<std::size_t>(n, 2);
  for (std::size_t d = 2; d * d <= prime; ++d)
    if (prime % d == 0) ++prime, d = 1;
  std::vector<std::size_t> order;
  for (std::size_t i = 0, step = 1 + round % (prime - 1); i < prime; ++i)
    if (std::size_t const v = (i * step + round) % prime; v < n) order.push_back(v);
  return order;
}

/// Measures the variants interleaved, R iterations at a time, in rounds. The first round is a warm-up. Calls recover()
/// on all ranks after a failure. Collective; returns the same figures on every rank.
inline std::vector<figure> measure(rank_base& s, std::vector<variant> const& variants, int R, int repeats,
                                   std::function<void()> const& recover) {
  std::size_t const n = variants.size();
  std::vector<figure> figures(n);
  std::vector<graph_exec> graphs(n);
  std::vector<std::vector<double>> times(n), host_times(n);
  std::vector<sums> totals(n, sums{0, 0});
  auto const all_iterations = [&](std::size_t v) {
    for (int i = 0; i < R; ++i) {
      if (variants[v].late && i % s.w.size() == s.w.rank())
        stand_still<<<dim3(1), dim3(1), 0, s.stream()>>>(std::uint64_t(*variants[v].late) * 1000);
      variants[v].iteration(i);
    }
  };
  auto const fail = [&](std::size_t v, std::string const& why) {
    if (why.empty()) return;
    figures[v].failure = why;
    recover();
  };
  for (std::size_t v = 0; v < n; ++v) {
    figures[v].name = variants[v].name;
    fail(v, s.attempt([&] {
      for (int i = 0; i < std::min(R, 2); ++i) variants[v].iteration(i);  // to load code and make connections
      s.w.check(s.stream());
    }));
    if (figures[v].failure.empty() && variants[v].graph)
      fail(v, s.attempt(
                  [&] { figures[v].kernels = double(graphs[v].capture(s.stream(), [&] { all_iterations(v); })) / R; }));
  }
  for (int round = 0; round <= repeats; ++round)
    for (std::size_t const v : order_of_round(n, std::size_t(round))) {
      if (!figures[v].failure.empty()) continue;
      double us = 0, host_us = 0;
      float mhz = 0;
      sums sum{};
      auto const enqueue = [&] {
        if (variants[v].graph) return graphs[v].launch(s.stream());
        auto const start = std::chrono::steady_clock::now();
        all_iterations(v);
        host_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / R;
      };
      fail(v, s.attempt([&] {
        check_hip(hipMemsetAsync(s.scratch.as<sums>(), 0, sizeof(sums), s.stream()), "hipMemsetAsync");
        auto const after = [&] {
          probe_clock<<<dim3(1), dim3(1), 0, s.stream()>>>(s.scratch.as<float>() + 32);
          if (variants[v].check) variants[v].check();
        };
        us = timed(s, enqueue, variants[v].poison, after) / R;
        check_hip(hipMemcpy(&sum, s.scratch.as<sums>(), sizeof sum, hipMemcpyDeviceToHost), "hipMemcpy");
        check_hip(hipMemcpy(&mhz, s.scratch.as<float>() + 32, sizeof mhz, hipMemcpyDeviceToHost), "hipMemcpy");
      }));
      if (!figures[v].failure.empty()) continue;
      double const slowest_us = slowest(s, us), slowest_host_us = slowest(s, host_us);
      if (round > 0) {
        times[v].push_back(slowest_us);
        host_times[v].push_back(slowest_host_us);
      }
      totals[v].error2 += sum.error2;
      totals[v].reference2 += sum.reference2;
      figures[v].mhz = double(mhz);
    }
  for (std::size_t v = 0; v < n; ++v) {
    if (!figures[v].failure.empty()) continue;
    figures[v].us = median(times[v]);
    figures[v].host_us = median(host_times[v]);
    figures[v].least = *std::min_element(times[v].begin(), times[v].end());
    figures[v].most = *std::max_element(times[v].begin(), times[v].end());
    double const mine = totals[v].reference2 > 0 ? std::sqrt(totals[v].error2 / totals[v].reference2) : 0;
    for (double const e : s.w.exchange().all_gather(mine))
      if (std::isnan(e) || e > figures[v].error) figures[v].error = e;  // a NaN stays
  }
  return figures;
}

}  // namespace fusewire::bench
