// A rank's process is killed in the middle of a launch: every other rank reports it immediately, from the device, whose
// waits have a limit of 5 minutes, and from the host. Started as processes; ends with 0 when every survivor was told
// right.
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_options.hpp>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace fusewire;

namespace {

constexpr auto at_once = std::chrono::seconds(15);  // the machine may be busy
constexpr int victim = 1;

/// All ranks are in the launch; then they wait for a flag that the victim does not raise.
__global__ void meet_and_wait(world_view w, sym<barrier_state> meeting, sym<flag> raised) {
  barrier(block{}, w, meeting);
  wait(block{}, w, w.here(raised), 1, victim);
}

void expect(bool ok, std::string const& what) {
  if (!ok) throw error("wrong: " + what);
}

void run_rank(world& w) {
  heap h(w, {.bulk = 1_MiB, .signal = 1_MiB});
  auto const raised = h.allocate<flag>(1);
  auto const meeting = h.allocate<barrier_state>(1);
  load_kernel(w, meet_and_wait, 64);
  w.barrier();
  launch(w, w.stream(), {1, 64}, meet_and_wait, h.view(), meeting, raised);
  if (w.rank() == victim) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // its kernel is running
    ::raise(SIGKILL);
  }
  auto const start = std::chrono::steady_clock::now();
  auto const report = [&](char const* from, std::string const& what) {
    auto const took = std::chrono::steady_clock::now() - start;
    std::printf("rank %d, %s, after %.2f s: %s\n", w.rank(), from, std::chrono::duration<double>(took).count(),
                what.c_str());
    std::fflush(stdout);
    return took;
  };
  std::string device, host;
  try {
    w.check(w.stream());
  } catch (error const& e) {
    device = e.what();
  }
  auto const took = report("device", device);
  try {
    w.barrier();
  } catch (error const& e) {
    host = e.what();
  }
  report("host", host);
  expect(device.find("the launch was ended because a rank has failed: ") != std::string::npos &&
             device.find(text("rank ", victim, " (process ")) != std::string::npos &&
             device.find("has died") != std::string::npos,
         "the report from the device");
  expect(
      host.find(text("rank ", victim, " (process ")) != std::string::npos && host.find("has died") != std::string::npos,
      "the report from the host");
  expect(took < at_once, "it took too long");
}

}  // namespace

int main() {
  // It dies in a child, so that whoever started the ranks sees none fail
  if (tcp_options::from_environment().rank == victim) {
    pid_t const child = ::fork();
    if (child) {
      int status = 0;
      ::waitpid(child, &status, 0);
      return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1;
    }
  }
  try {
    run_processes(run_rank);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
