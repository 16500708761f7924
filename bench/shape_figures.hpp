// The figures of a shape, which the first benchmark of it measures, and how a benchmark reports one of them.
#pragma once
#include "measure.hpp"
#include "report.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace fusewire::bench {

struct shape_figures {
  std::vector<figure> figures;

  /// Of a variant that was measured, else null.
  figure const* of(std::string const& name) const {
    for (auto const& f : figures)
      if (f.name == name && f.failure.empty()) return &f;
    return nullptr;
  }
  /// The faster one of two variants: of bulk-synchronous twins for large shapes a graph saves little, and is sometimes
  /// slower.
  figure const* faster(std::string const& a, std::string const& b) const {
    auto const *x = of(a), *y = of(b);
    return !x || (y && y->us <= x->us) ? y : x;
  }
};

/// Reports a variant: its time, and the counters that all benchmarks have. Returns its figure; null if there is none,
/// or its outputs are wrong, which the benchmark then says.
inline figure const* report_variant(benchmark::State& state, shape_figures const& of, std::string const& variant,
                                    double tolerance) {
  auto const f = std::find_if(of.figures.begin(), of.figures.end(), [&](figure const& x) { return x.name == variant; });
  std::string const failure = f == of.figures.end() ? "not measured: the shape's first variant failed"
                              : !f->failure.empty() ? f->failure
                              : !(f->error < tolerance)
                                  ? text("wrong: relative error ", f->error, " of the timed outputs")
                                  : "";
  if (!failure.empty()) {
    state.SkipWithError(failure.c_str());
    return nullptr;
  }
  for (auto _ : state) state.SetIterationTime(f->us * 1e-6);
  state.counters["min_us"] = f->least;
  state.counters["max_us"] = f->most;
  state.counters["error"] = f->error;
  state.counters["sm_mhz"] = f->mhz;
  if (f->kernels > 0) state.counters["kernels"] = f->kernels;
  if (f->host_us > 0) state.counters["host_us"] = f->host_us;
  return &*f;
}

/// The results of a shape, which begin as `begin` and are measured if this is its first benchmark: run(state of a rank)
/// returns all figures on every rank. Null if the budget is spent.
template <class Row, class State, class Run>
Row const* results_of(benchmark::State& state, std::map<std::string, Row>& results, std::string const& key,
                      std::string const& variant, Row begin, team<State>& ranks, Run const& run) {
  if (!progress::get().begins(state, results.contains(key))) return nullptr;
  if (auto const known = results.find(key); known != results.end()) return &known->second;
  try {
    ranks.run([&](State& st) {
      auto figures = run(st);
      if (st.w.rank() == 0) begin.figures = std::move(figures);
    });
  } catch (std::exception const& e) {
    begin.figures.push_back({.name = variant, .failure = e.what()});
  }
  return &(results[key] = std::move(begin));
}

}  // namespace fusewire::bench
