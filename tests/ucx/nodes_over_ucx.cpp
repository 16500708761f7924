// Two processes are two nodes of one GPU each, with UCX between them.
//
//   nodes_over_ucx exchange|small_ring|dies     started as processes, with FUSEWIRE_RANKS_PER_NODE=1
#include <fusewire/nodes/ucx_engine.hpp>

#include <cstdio>
#include <string>

#include "../unit/nodes_kernels.hpp"

using namespace support;

int main(int argc, char** argv) try {
  std::string const what = argc > 1 ? argv[1] : "exchange";
  exchange_args const a{.pieces = what == "small_ring" ? 12 : 4, .words = what == "small_ring" ? 64 : 2048};
  run(1, [&](world& w) {
    heap_options memory = small_heap();
    memory.bulk = 64_MiB;
    memory.wait_limit = std::chrono::minutes(2);
    for (auto const reach : {network_reach::host, network_reach::device}) {
      if (reach == network_reach::device && !simulator_stats()) continue;
      rank_of_node r(w, make_ucx_engine(), {.reach = reach, .ring = what == "small_ring" ? 2 : 64}, memory);
      nodes_channel ch(r.network, channel_for({w.nodes(), r.near.size()}, a));
      unsigned const wrong = wrong_words(r, ch, a, 12, 4);
      if (wrong) throw error(text("rank ", w.rank(), ": ", wrong, " wrong words"));
      std::printf("rank %d: 12 launches, %llu puts\n", w.rank(), static_cast<unsigned long long>(r.network.puts()));
      if (what == "dies") {
        w.barrier();
        if (w.rank() == 1) std::_Exit(9);
        exchange_args more = a;
        auto const words = r.heap.allocate<unsigned>(1);
        more.wrong = r.heap.here(words);
        auto const start = std::chrono::steady_clock::now();
        launch(r.near, r.stream, {.blocks = 4, .threads = 128}, exchange<>, ch.view(make_header("exchange", 0)), more);
        std::string const said = r.verdict();
        double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("told after %.1f s: %s\n", seconds, said.c_str());
        std::fflush(stdout);
        std::_Exit(contains(said, "peer failed") && seconds < 20 ? 0 : 1);
      }
    }
  });
  std::puts("passed");
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
