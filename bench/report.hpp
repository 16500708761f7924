// The provenance of a run, and the names and progress that it prints.
#pragma once
#include <benchmark/benchmark.h>
#include <fusewire/fusewire.hpp>

#include "commit.hpp"
#include "progress.hpp"

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace fusewire::bench {

inline int gpus() { return device_count(); }

/// Adds the provenance of the run to the JSON.
inline void add_context(int ranks) {
  if (gpus() == 0) return;
  hipDeviceProp_t p;
  check_hip(hipGetDeviceProperties(&p, 0), "hipGetDeviceProperties");
  std::string name = p.name;
  for (std::string const maker : {"NVIDIA ", "AMD ", "Instinct "})
    if (name.rfind(maker, 0) == 0) name.erase(0, maker.size());
  int runtime = 0, driver_api = 0;
  check_hip(hipRuntimeGetVersion(&runtime), "hipRuntimeGetVersion");
  check_hip(hipDriverGetVersion(&driver_api), "hipDriverGetVersion");
  std::string driver = text("for runtime ", driver_api);
  for (char const* path : {"/proc/driver/nvidia/version", "/sys/module/amdgpu/version"}) {
    std::ifstream file(path);
    std::string const text_of((std::istreambuf_iterator<char>(file)), {});
    std::smatch found;
    if (std::regex_search(text_of, found, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+"))) driver = found.str();
  }
  benchmark::AddCustomContext("machine", text(ranks, "x ", name));
  benchmark::AddCustomContext("driver", driver);
  benchmark::AddCustomContext("runtime", text(runtime));
  benchmark::AddCustomContext("commit", FUSEWIRE_COMMIT);
}

/// Reports benchmarks by their registered names, without the suffixes that Google Benchmark appends. Leaves out those
/// that did not run because the budget was spent.
template <class Reporter>
struct plain_names : Reporter {
  using Reporter::Reporter;
  void ReportRuns(std::vector<benchmark::BenchmarkReporter::Run> const& runs) override {
    if (progress::get().left_out()) return;
    auto plain = runs;
    for (auto& r : plain) r.run_name.iterations = r.run_name.time_type = "";
    Reporter::ReportRuns(plain);
  }
};

/// Prints the progress of the run after each benchmark.
struct console_with_progress : plain_names<benchmark::ConsoleReporter> {
  using plain_names::plain_names;
  void ReportRuns(std::vector<benchmark::BenchmarkReporter::Run> const& runs) override {
    plain_names::ReportRuns(runs);
    progress::get().step();
  }
};

/// Runs all registered benchmarks, which are those that were selected(). to_file: --benchmark_out was given.
inline void run_benchmarks(bool to_file) {
  console_with_progress console(benchmark::ConsoleReporter::OO_None);
  plain_names<benchmark::JSONReporter> file;
  benchmark::RunSpecifiedBenchmarks(&console, to_file ? &file : nullptr, "all");
  progress::get().end();
}
inline bool writes_file(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](char const* a) { return std::string(a).rfind("--benchmark_out=", 0) == 0; });
}

}  // namespace fusewire::bench
