// Processes that end with objects in static storage, by a return from main, by std::exit or by world::abandon(), in
// another order on each rank: no crash, no report of memory that is freed too early, and no wait for ranks that are
// gone. Started as processes, with the name of a way to end. Ends with 0, and under fusewire-sim nothing is reported.
#include <fusewire/fusewire.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>
#include <fusewire/ranks/tcp_options.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace fusewire;

namespace {

constexpr std::string_view ways[] = {"returns", "exits", "world_first", "fails", "abandons", "abandons_in_a_launch"};

// They end in the reverse order of these lines
std::unique_ptr<world> late_world;
std::unique_ptr<channel> late_channel;
std::unique_ptr<heap> memory;
std::unique_ptr<ll_buffer> inbox;
std::unique_ptr<channel> ch;
std::unique_ptr<world> early_world;

__global__ void meet(channel_view ch) {
  block const b;
  auto const e = ch.begin(b);
  e.end(b);
}

/// All of it in use, and left as it is.
void run_rank(std::string_view how) {
  platform::prepare_runtime(false);
  auto const session = std::make_shared<tcp_session>(tcp_options::from_environment());
  auto& w = how == "world_first" ? early_world : late_world;
  w = std::make_unique<world>(std::make_shared<tcp_bootstrap>(session), session->local_rank());
  memory = std::make_unique<heap>(
      *w, heap_options{.bulk = 1_MiB, .signal = 256_KiB, .wait_limit = std::chrono::milliseconds(2000)});
  channel_options const small{.max_bytes = 64_KiB, .flags_per_source = 4};
  ch = std::make_unique<channel>(*memory, small);
  late_channel = std::make_unique<channel>(*memory, small);
  inbox = std::make_unique<ll_buffer>(*ch, ll_buffer_options{});
  launch(*w, w->stream(), {1, 64}, meet, ch->view(make_header("meet", 0)));
  w->check(w->stream());
  if (w->rank() == 1) ch.reset();
  if (w->rank() == 2) memory.reset();
  w->barrier();
  if (how == "fails" && w->rank() == 1) {
    w->exchange().fail("rank 1 fails on purpose");
    return;
  }
  // The last rank does not come, and the others do not wait for it
  if (how == "abandons_in_a_launch" && w->rank() + 1 < w->size())
    launch(*w, w->stream(), {1, 64}, meet, late_channel->view(make_header("meet", 0)));
  if (how == "abandons" || how == "abandons_in_a_launch") w->abandon();
  if (how == "exits") std::exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  std::string_view const how = argc > 1 ? argv[1] : "returns";
  if (std::ranges::find(ways, how) == std::end(ways)) return std::fprintf(stderr, "no such way\n"), 2;
  try {
    run_rank(how);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
