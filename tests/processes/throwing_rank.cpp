// A rank that is a process throws before its launch: every other rank's check() throws immediately, although a wait may
// last 5 minutes, and says why. Started as processes; ends with 0 when every other rank was told right.
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_options.hpp>

#include <chrono>
#include <cstdio>

using namespace fusewire;

namespace {

constexpr auto at_once = std::chrono::seconds(15);  // the machine may be busy
constexpr int culprit = 1;

__global__ void wait_for_all(channel_view ch) {
  block const b;
  ch.begin(b).end(b);
}

/// It returns on no rank.
void run_rank(world& w) {
  heap h(w, {.bulk = 1_MiB, .signal = 1_MiB});
  channel ch(h, {.max_bytes = 64, .flags_per_source = 1});
  load_kernel(w, wait_for_all, 64);
  w.barrier();
  if (w.rank() == culprit) throw std::runtime_error("there is no such layer");
  auto const start = std::chrono::steady_clock::now();
  launch(w, w.stream(), {1, 64}, wait_for_all, ch.view(make_header("all", 0)));
  try {
    w.check(w.stream());
  } catch (peer_failed const&) {
    auto const took = std::chrono::steady_clock::now() - start;
    std::printf("rank %d was told after %.2f s\n", w.rank(), std::chrono::duration<double>(took).count());
    if (took > at_once) throw error("wrong: it took too long");
    throw;
  }
  throw error("wrong: check() says nothing");
}

}  // namespace

int main() {
  int const rank = tcp_options::from_environment().rank;
  std::string const wanted = rank == culprit
                                 ? "there is no such layer"
                                 : text("rank ", rank, ": the launch was ended because a rank has failed: rank ",
                                        culprit, ": there is no such layer");
  try {
    run_processes(run_rank);
  } catch (std::exception const& e) {
    std::printf("rank %d: %s\n", rank, e.what());
    std::fflush(stdout);
    return std::string(e.what()).starts_with(wanted) ? 0 : 1;
  }
  return 1;
}
