// Every HIP call of a rank that is a process fails in turn: that rank gets an error that names the call, the others are
// told in bounded time, every process gives back what it took, and the ranks meet again. Started as processes under
// fusewire-sim.
#include <dlfcn.h>
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>
#include <fusewire/ranks/tcp_options.hpp>
#include <fusewire_sim.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>

#include "../said_on_stderr.hpp"

using namespace fusewire;

namespace {

template <class F>
F find(char const* name) {
  return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}
auto const fail_call = find<fusewire_sim_fail_call_function>("fusewireSimFailCall");
auto const failed_call = find<fusewire_sim_failed_call_function>("fusewireSimFailedCall");
auto const held = find<fusewire_sim_held_function>("fusewireSimHeld");

/// Every rank tells every rank its number plus the epoch.
__global__ void exchange_numbers(channel_view ch, int* out) {
  block const b;
  auto const e = ch.begin(b);
  world_view const& w = ch.world;
  for (int p = 0; p < w.size(); ++p) {
    if (b.leader()) store(e.inbox<int>(p) + w.rank(), 10 * w.rank() + int(e.number()));
    e.signal(b, p, 0);
  }
  for (int p = 0; p < w.size(); ++p) {
    e.wait(b, p, 0);
    if (b.leader()) out[p] = load(e.inbox<int>() + p);
  }
  e.end(b);
}

void expect(bool ok, std::string const& what) {
  if (!ok) throw std::logic_error("wrong: " + what);
}

void exchange(world& w) {
  heap h(w, {.bulk = 1_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(100)});
  channel ch(h, {.max_bytes = 64_KiB, .flags_per_source = 4});
  auto const out = h.allocate<int>(std::size_t(w.size()));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    launch(w, w.stream(), {.blocks = 1, .threads = 64}, exchange_numbers, ch.view(make_header("numbers", 0)),
           h.view().here(out));
    w.check(w.stream());
    std::vector<int> found(out.count);
    check_hip(hipMemcpy(found.data(), h.view().here(out), found.size() * sizeof(int), hipMemcpyDefault), "hipMemcpy");
    for (int p = 0; p < w.size(); ++p) expect(found[std::size_t(p)] == 10 * p + epoch, "the numbers");
  }
}

std::string held_now() {
  std::string text(4096, '\0');
  return held(text.data(), text.size()) ? text.c_str() : "";
}

/// Calls whose failure a program may survive in silence: destructors cannot throw, and by then the results have been
/// checked.
bool may_pass(std::string const& call) {
  return call == "hipFree" || call == "hipHostFree" || call == "hipStreamDestroy" || call == "hipDeviceSynchronize" ||
         call == "hipIpcCloseMemHandle";
}
std::string name_in_message(std::string const& call) {
  return call == "hipLaunchKernel"         ? "kernel launch"
         : call == "hipExtMallocWithFlags" ? "malloc(signal segment)"
                                           : call;
}

/// The n-th call of the victim fails. False when it makes fewer.
bool run_once(int victim, unsigned n) {
  auto const here = tcp_options::from_environment();
  auto session = std::make_shared<tcp_session>(here);
  std::string error, said;
  fail_call(here.rank == victim ? n : 0, nullptr);
  try {
    int devices = 0;
    check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
    std::optional<world> w(std::in_place, std::make_unique<tcp_bootstrap>(session), here.local_rank % devices);
    said_on_stderr const listen;
    exchange(*w);
    w.reset();
    said = listen.text();
  } catch (fusewire::error const& e) {
    error = e.what();
    session->fail(0, text("rank ", here.rank, ": ", error));
  }
  char const* const failed = here.rank == victim ? failed_call() : nullptr;
  std::string const name = failed ? failed : "";
  session.reset();  // what peers may have mapped is kept until all have left
  fail_call(0, nullptr);
  expect(held_now().empty(),
         text("rank ", here.rank, " keeps after a failure of ", name, " on rank ", victim, ":\n", held_now()));
  if (!name.empty())
    expect(error.empty() ? may_pass(name) || said.find(name_in_message(name)) != said.npos
                         : error.find(name_in_message(name)) != error.npos,
           text(name, " failed, and the error is '", error, "'"));
  return here.rank == victim ? failed != nullptr : !error.empty();
}

}  // namespace

int main() {
  if (!fail_call) {
    std::printf("skipped: calls can be made to fail under fusewire-sim only\n");
    return 77;
  }
  alarm(100);
  try {
    for (int victim : {0, 1}) {
      unsigned n = 1;
      for (bool failed = true; failed; ++n) {
        bool const mine = run_once(victim, n);
        auto const seen =
            tcp_bootstrap(std::make_shared<tcp_session>(tcp_options::from_environment())).all_gather(int(mine));
        failed = seen[std::size_t(victim)];
        if (!failed)
          for (int s : seen) expect(s == 0, "an error without a failing call");
      }
      expect(n > 30, text("only ", n, " calls"));
      if (tcp_options::from_environment().rank == 0)
        std::printf("rank %d: each of %u calls has failed\n", victim, n - 2);
    }
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
