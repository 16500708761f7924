// A sum over the ranks of several nodes in two ways, and whether they find the same:
//
//   fused    nodes_all_reduce: one launch
//   hybrid   reduce_scatter in each node | a sum between nodes, by ranks with one place | all_gather in each node
//
// The hybrid takes three launches, which wait for each other. Between nodes it may as well have any other collective.
//
//   example_nodes_all_reduce [ranks]                              one node; default: 4 ranks
//   FUSEWIRE_RANKS_PER_NODE=2 example_nodes_all_reduce 4          threads that act as two nodes, over the loopback
//   torchrun --nnodes 2 ... --no-python example_nodes_all_reduce  two nodes, over UCX, where this was built with it
#include <fusewire/nodes/loopback_engine.hpp>
#include <fusewire/nodes/ucx_engine.hpp>
#include <fusewire/operators.hpp>
#include <fusewire/ops/nodes_all_reduce.hpp>

#include <array>
#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

constexpr int part = 5000, launches = 4;  // elements of a rank's part of the hybrid

/// What connects this rank to other nodes; null where there are none. `wires`: of the ranks of this process.
std::unique_ptr<engine> engine_of(world& all, std::shared_ptr<loopback_network> const& wires) {
  if (all.nodes() == 1) return nullptr;
#ifdef EXAMPLE_WITH_UCX
  if (started_as_processes()) return make_ucx_engine();
#endif
  return std::make_unique<loopback_engine>(wires, all.rank());
}

int main(int argc, char** argv) try {
  std::array<std::shared_ptr<loopback_network>, 1 + max_ranks> wires;  // of all ranks, and of those with each place
  for (auto& w : wires) w = std::make_shared<loopback_network>();
  run(ranks_of(argc, argv).value_or(4), [&](world& all) {
    world near = all.split(all.node_of(all.rank()));
    int const nodes = all.nodes(), count = part * near.size();
    nodes_all_reduce_options const o{.max_count = count}, of_part{.max_count = part};
    // [begin: fused]
    heap memory(near, {.bulk = 8_MiB, .signal = 4_MiB});
    network net(all, memory, engine_of(all, wires[0]));
    nodes_channel ch(net, nodes_all_reduce<float>::channel_for(nodes, near.size(), o));
    nodes_all_reduce<float> fused(ch, o);
    // [end: fused]

    world rails = all.split(near.rank()), alone = rails.split(rails.rank());  // one rank of each node; this one
    heap memory_alone(alone, {.bulk = 4_MiB, .signal = 2_MiB});
    network between(rails, memory_alone, engine_of(rails, wires[std::size_t(1 + near.rank())]));
    nodes_channel ch_between(between, nodes_all_reduce<float>::channel_for(nodes, 1, of_part));
    nodes_all_reduce<float> sum(ch_between, of_part);
    reduce_scatter_options const scatters{.max_count = part};
    all_gather_options const gathers{.max_count = part};
    channel ch_near(memory, reduce_scatter<float>::requirements(near.size(), scatters) +
                                all_gather<float>::requirements(near.size(), gathers));
    reduce_scatter<float> scatter(ch_near, scatters);
    all_gather<float> gather(ch_near, gathers);

    auto const x = memory.allocate<float>(std::size_t(count)), y = memory.allocate<float>(std::size_t(count)),
               z = memory.allocate<float>(std::size_t(count));
    hipStream_t const stream = near.stream();
    for (int n = 0; n < launches; ++n) {
      std::vector<float> ours(static_cast<std::size_t>(count)), wanted = ours;
      for (int r = 0; r < all.size(); ++r)
        for (int i = 0; i < count; ++i) {
          float const value = float((r * 7 + i * 3 + n) % 11);
          wanted[std::size_t(i)] += value;
          if (r == all.rank()) ours[std::size_t(i)] = value;
        }
      memory.upload(x, ours);
      fused(stream, {.in = memory.here(x), .out = memory.here(y), .count = count});
      // [begin: hybrid]
      float* const mine = memory.here(z) + near.rank() * part;
      scatter(stream, {.in = memory.here(x), .out = mine, .count = part});
      sum(stream, {.in = mine, .out = mine, .count = part});
      gather(stream, {.in = mine, .out = memory.here(z), .count = part});
      // [end: hybrid]
      near.check(stream);
      alone.check(stream);
      if (memory.download(y) != wanted) throw error(text("rank ", all.rank(), ": a wrong sum in launch ", n));
      if (memory.download(z) != wanted) throw error(text("rank ", all.rank(), ": a wrong hybrid sum in launch ", n));
    }
    std::printf("rank %d on node %d of %d: %d sums are right; %llu puts to other nodes, and %llu of the hybrid\n",
                all.rank(), all.node_of(all.rank()), nodes, launches, static_cast<unsigned long long>(net.puts()),
                static_cast<unsigned long long>(between.puts()));
  });
  std::puts("passed");
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
