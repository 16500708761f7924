// Channels whose ranks are on several nodes: layouts, rings that are full, delays, and what is said when puts are lost.
#include "nodes_kernels.hpp"

using namespace support;

namespace {

std::string name_of(network_reach r) { return r == network_reach::host ? "memory of the host" : "memory of the GPU"; }

}  // namespace

TEST_CASE("nodes: every rank sends to all it reaches") {
  auto const l = GENERATE(spread{1, 4}, spread{2, 1}, spread{2, 2}, spread{4, 2}, spread{2, 4});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  auto const peers = GENERATE(far_peers::rails, far_peers::all);
  CAPTURE(l.nodes, l.near, name_of(reach), int(peers));
  exchange_args const a{.pieces = 3, .words = 500};
  on_nodes(
      l, {.reach = reach, .peers = peers}, [](int) { return loopback_options{.delay = 20}; },
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, channel_for(l, a));
        unsigned const wrong = wrong_words(r, ch, a, 5, 3);
        r.found.expect(wrong == 0, wrong, " wrong words");
      });
}
