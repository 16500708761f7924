// What a run says about itself, and how its names are printed.
#pragma once
#include <benchmark/benchmark.h>
#include <fusewire/fusewire.hpp>

#include "commit.hpp"

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace fusewire::bench {

inline int gpus() { return device_count(); }

/// Provenance for the JSON: what ran where.
inline void add_context(int ranks) {
  if (gpus() == 0) return;
  hipDeviceProp_t p;
  check_hip(hipGetDeviceProperties(&p, 0), "hipGetDeviceProperties");
  std::string name = p.name;
  if (name.rfind("NVIDIA ", 0) == 0) name.erase(0, 7);
  int runtime = 0, driver_api = 0;
  check_hip(hipRuntimeGetVersion(&runtime), "hipRuntimeGetVersion");
  check_hip(hipDriverGetVersion(&driver_api), "hipDriverGetVersion");
  std::ifstream file("/proc/driver/nvidia/version");
  std::string const text_of((std::istreambuf_iterator<char>(file)), {});
  std::smatch found;
  std::string const driver = std::regex_search(text_of, found, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+"))
                                 ? found.str()
                                 : text("for runtime ", driver_api);
  benchmark::AddCustomContext("machine", text(ranks, "x ", name));
  benchmark::AddCustomContext("driver", driver);
  benchmark::AddCustomContext("runtime", text(runtime));
  benchmark::AddCustomContext("commit", FUSEWIRE_COMMIT);
}

/// Reports the names that were registered, without what Google Benchmark appends to them.
template <class Reporter>
struct plain_names : Reporter {
  using Reporter::Reporter;
  void ReportRuns(std::vector<benchmark::BenchmarkReporter::Run> const& runs) override {
    auto plain = runs;
    for (auto& r : plain) r.run_name.iterations = r.run_name.time_type = "";
    Reporter::ReportRuns(plain);
  }
};

/// Runs what is registered; `to_file`: --benchmark_out was given.
inline void run_benchmarks(bool to_file) {
  plain_names<benchmark::ConsoleReporter> console(benchmark::ConsoleReporter::OO_None);
  plain_names<benchmark::JSONReporter> file;
  benchmark::RunSpecifiedBenchmarks(&console, to_file ? &file : nullptr);
}
inline bool writes_file(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](char const* a) { return std::string(a).rfind("--benchmark_out=", 0) == 0; });
}

}  // namespace fusewire::bench
