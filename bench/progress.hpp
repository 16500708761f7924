// The progress of a run, and the time budget after which no more benchmarks begin.
#pragma once
#include "command_line.hpp"

#include <chrono>
#include <cstdio>
#include <string>

namespace fusewire::bench {

/// 75 -> "1 min 15 s"
inline std::string in_minutes(double seconds) {
  int const all = int(seconds + 0.5);
  return all < 60     ? text(all, " s")
         : all < 3600 ? text(all / 60, " min ", all % 60, " s")
                      : text(all / 3600, " h ", all % 3600 / 60, " min");
}

/// The progress of the program. The time left is estimated as if the remaining benchmarks took as long as those so far.
class progress {
 public:
  static progress& get() {
    static progress p;
    return p;
  }
  /// Takes --budget=SECONDS out of the arguments.
  void take_budget(command_line& c) { budget_ = c.number("budget", 0); }
  /// Counts a benchmark that will run. Called before the first one runs.
  void plan() { ++planned_; }

  /// Whether a benchmark may run: always if it needs no measurement of its own (`known`), else until the budget is
  /// spent. A benchmark that may not run is neither printed nor written to the file.
  bool begins(benchmark::State& state, bool known = false) {
    left_out_ = !known && budget_ > 0 && seconds() > budget_;
    if (left_out_) {
      ++not_run_;
      state.SkipWithError("not run: the budget is spent");
    }
    return !left_out_;
  }
  bool left_out() const { return left_out_; }

  /// Counts a benchmark that has ended. Prints the progress on standard error, at most once a second.
  void step() {
    ++done_;
    double const now = seconds();
    if (left_out_ || (now < told_ + 1 && done_ < planned_)) return;
    told_ = now;
    double left = now / done_ * (planned_ - done_);
    if (budget_ > 0 && now + left > budget_) left = budget_ > now ? budget_ - now : 0;
    std::fprintf(stderr, "[%d of %d, %s; about %s left]\n", done_, planned_, in_minutes(now).c_str(),
                 in_minutes(left).c_str());
  }
  /// Prints how many benchmarks did not run because the budget was spent.
  void end() const {
    if (not_run_ > 0) std::fprintf(stderr, "not run, because --budget=%d was spent: %d\n", budget_, not_run_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int budget_ = 0, planned_ = 0, done_ = 0, not_run_ = 0;
  bool left_out_ = false;
  double told_ = 0;
};

}  // namespace fusewire::bench
