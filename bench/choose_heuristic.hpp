// The vendor's GEMM at its best.
#pragma once
#include "harness.hpp"
#include "libraries.hpp"

namespace fusewire::bench {

/// Measures every choice, then the best four again, and keeps the best one. run(i) enqueues the i-th product and
/// returns whether the heuristic accepts it.
/// Collective: all ranks keep the same heuristic.
template <class T, class Run>
void choose_heuristic(rank_base& st, blas_gemm<T>& g, double flops, Run const& run) {
  auto const microseconds = [&](int choice, int iterations) {
    g.choose(choice);
    double us = 1e30;
    std::string const failure = st.attempt([&] {
      bool ok = true;
      auto const go = [&](int count) {
        for (int i = 0; i < count; ++i) ok = run(i) && ok;
      };
      go(1);
      if (ok) us = timed(st, [&] { go(iterations); }) / iterations;
      if (!ok) us = 1e30;
    });
    require<runtime_failure>(failure.empty(), std::source_location::current(), "choosing a GEMM: ", failure);
    return slowest(st, us);
  };
  bool const large = flops > 1e11;
  std::vector<std::pair<double, int>> order;
  for (int i = 0; i < g.choices(); ++i) order.push_back({microseconds(i, large ? 2 : 6), i});
  std::sort(order.begin(), order.end());
  order.resize(std::min<std::size_t>(order.size(), 4));
  for (auto& o : order)
    o.first = median({microseconds(o.second, large ? 6 : 24), microseconds(o.second, large ? 6 : 24),
                      microseconds(o.second, large ? 6 : 24)});
  g.choose(std::min_element(order.begin(), order.end())->second);
}

}  // namespace fusewire::bench
