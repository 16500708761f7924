// A sum over the ranks of several nodes, in one kernel, which knows nodes only by its loops. Each rank adds one
// segment:
//
//   1  ranks of a node      x[k-th segment] --> rank with place k        which adds them, in the order of ranks
//   2  rails                the node's sum  --> the same place, on every other node; adds them, in the order of nodes
//   3  ranks of a node      the sum         --> all of them
//
// Only step 2 crosses the network, with 1/ranks-per-node of the vector for each rank and other node. On one node it
// does nothing.
//
//   example_two_nodes [ranks]                              one node; default: 4 ranks
//   FUSEWIRE_RANKS_PER_NODE=2 example_two_nodes 4          threads that act as two nodes, over the loopback engine
//   torchrun --nnodes 2 ... --no-python example_two_nodes  two nodes, over UCX, where this was built with it
#include <fusewire/fusewire.hpp>
#include <fusewire/nodes/loopback_engine.hpp>
#include <fusewire/nodes/nodes_channel.hpp>
#include <fusewire/nodes/ucx_engine.hpp>

#include <cstdio>
#include <vector>

#include "command_line.hpp"

using namespace fusewire;

constexpr int count = 20'000, blocks = 4, launches = 5;

/// y = the sum of all ranks' x. Block b has the b-th part of every segment, and three flags.
///   Deadlock: in each step a block sends before it waits, and it waits for blocks with its index, which are resident.
///   Reuse: every piece is waited for.
__global__ void sum_over_nodes(nodes_view ch, float const* x, float* y) {
  block const b;
  nodes_epoch const e = ch.begin(b);
  int const near = e.near_ranks(), place = e.rank() - e.first_near();
  int const segment = ceil_div(count, near), part = ceil_div(segment, blocks), from = b.index() * part;
  auto const length = [&](int k) {  // of this block's part of segment k
    return max(0, min(min(segment, count - k * segment), from + part) - from);
  };
  std::int64_t const of_nodes = std::int64_t(near) * segment, results = of_nodes + std::int64_t(e.nodes()) * segment;
  float* const mine = y + place * segment + from;

  for (int k = 0; k < near; ++k)
    e.send(b, e.first_near() + k, 3 * b.index(), x + k * segment + from, place * segment + from, length(k));
  for (int k = 0; k < near; ++k) {
    e.wait(b, e.first_near() + k, 3 * b.index());
    float const* const theirs = e.inbox_from<float>(e.first_near() + k) + k * segment + from;
    for (int i = b.rank(); i < length(place); i += b.size()) mine[i] = k == 0 ? theirs[i] : mine[i] + theirs[i];
  }
  b.sync();
  // [begin: rails]
  for (int n = 0; n < e.nodes(); ++n)
    if (n != e.node())
      e.send(b, e.rail(n), 3 * b.index() + 1, mine, of_nodes + e.node() * segment + from, length(place));
  for (int n = 0; n < e.nodes(); ++n)
    if (n != e.node()) e.wait(b, e.rail(n), 3 * b.index() + 1);
  // [end: rails]
  for (int i = b.rank(); i < length(place); i += b.size()) {
    float sum = 0;
    for (int n = 0; n < e.nodes(); ++n)
      sum += n == e.node() ? mine[i] : e.inbox_from<float>(e.rail(n))[of_nodes + n * segment + from + i];
    mine[i] = sum;
  }
  b.sync();
  for (int k = 0; k < near; ++k)
    if (k != place)
      e.send(b, e.first_near() + k, 3 * b.index() + 2, mine, results + place * segment + from, length(place));
  for (int k = 0; k < near; ++k) {
    if (k == place) continue;
    e.wait(b, e.first_near() + k, 3 * b.index() + 2);
    copy(b, e.inbox_from<float>(e.first_near() + k) + results + k * segment + from, y + k * segment + from, length(k));
  }
  e.end(b);
}

/// What connects this rank to other nodes; null where there are none. `wires`: of the ranks of this process.
std::unique_ptr<engine> engine_of(world& all, std::shared_ptr<loopback_network> const& wires) {
  if (all.nodes() == 1) return nullptr;
#ifdef EXAMPLE_WITH_UCX
  if (started_as_processes()) return make_ucx_engine();
#endif
  return std::make_unique<loopback_engine>(wires, all.rank());
}

int main(int argc, char** argv) try {
  auto const wires = std::make_shared<loopback_network>();
  run(ranks_of(argc, argv).value_or(4), [&](world& all) {
    // [begin: host]
    world w = all.split(all.node_of(all.rank()));  // the ranks of this node
    heap heap(w, {.bulk = 4_MiB, .signal = 1_MiB});
    network net(all, heap, engine_of(all, wires));
    std::size_t const segment = std::size_t(ceil_div(count, w.size()));
    nodes_channel ch(net,
                     {.max_bytes = (2 * std::size_t(w.size()) + std::size_t(all.nodes())) * segment * sizeof(float),
                      .flags_per_source = 3 * blocks});
    // [end: host]
    auto const x = heap.allocate<float>(count), y = heap.allocate<float>(count);

    for (int n = 0; n < launches; ++n) {
      std::vector<float> ours(count), wanted(count);
      for (int r = 0; r < all.size(); ++r)
        for (int i = 0; i < count; ++i) {
          float const value = float((r * 7 + i * 3 + n) % 11);
          wanted[std::size_t(i)] += value;
          if (r == all.rank()) ours[std::size_t(i)] = value;
        }
      heap.upload(x, ours);
      launch(w, w.stream(), {.blocks = blocks, .threads = 256}, sum_over_nodes, ch.view(make_header("sum", 0, count)),
             static_cast<float const*>(heap.here(x)), heap.here(y));
      w.check(w.stream());
      if (heap.download(y) != wanted) throw error(text("rank ", all.rank(), ": a wrong sum in launch ", n));
    }
    std::printf("rank %d on node %d of %d: %d sums are right; %llu puts to other nodes\n", all.rank(),
                all.node_of(all.rank()), all.nodes(), launches, static_cast<unsigned long long>(net.puts()));
  });
  std::puts("passed");
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
