#include "hip/interrupt.hpp"

#include <atomic>
#include <csignal>
#include <ctime>

namespace fusewire::sim {
namespace {

/// When the process first got SIGINT, or 0.
std::atomic<std::time_t> interrupted_at{0};
std::atomic<bool> runs{false};

/// While no thread runs the machine, or seconds after the first SIGINT, it does what it does without the simulator. One
/// Ctrl-C can arrive twice: from the terminal, and from a launcher that passes it on, as timeout(1) does.
void on_interrupt(int) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::time_t first = 0;
  if (!runs || (!interrupted_at.compare_exchange_strong(first, now.tv_sec + 1) && now.tv_sec + 1 > first + 1))
    end_by_interrupt();
}

}  // namespace

void end_by_interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

bool interrupted() { return interrupted_at != 0; }
void machine_runs(bool on) { runs = on; }

void watch_interrupt() {
  struct sigaction before{};
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_DFL && !(before.sa_flags & SA_SIGINFO))
    std::signal(SIGINT, on_interrupt);
}

}  // namespace fusewire::sim
