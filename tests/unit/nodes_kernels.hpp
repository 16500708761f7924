// Kernels whose ranks are on several nodes, and what their tests need: nodes of one process, over the loopback engine.
#pragma once
#include <fusewire/nodes/loopback_engine.hpp>
#include <fusewire/nodes/nodes_channel.hpp>

#include <array>

#include "faults.hpp"
#include "simulator.hpp"
#include "support.hpp"

namespace support {

/// How ranks are spread.
struct spread {
  int nodes, near;  // nodes, and ranks of each
};

__host__ __device__ inline int word_between(int from, int to, int i, epoch_t e) {
  return int(unsigned(from) * 7919u + unsigned(to) * 104729u + unsigned(i) * 31u + unsigned(e) * 65537u);
}

/// Every rank sends `pieces` pieces to every rank that it reaches, near or far, and looks at what it gets.
///   Deadlock: sending waits for nothing but room in the ring; every block sends before it waits.
///   Reuse: every piece is waited for, but for those that `skip` leaves out, whose places have one sender.
struct exchange_args {
  int pieces = 1, words = 64;
  unsigned* wrong = nullptr;
  bool skip = false;  // nobody waits for the last piece in every third launch
};
template <class = void>
__global__ void exchange(nodes_view ch, exchange_args a) {
  block const b;
  auto const e = ch.begin(b);
  int const size = e.size(), me = e.rank();
  for (int p = b.index(); p < (size - 1) * a.pieces; p += b.count()) {
    int const peer = (me + 1 + p % (size - 1)) % size, i = p / (size - 1);
    if (!e.reaches(peer)) continue;
    int* const to = e.inbox<int>(peer) + (me * a.pieces + i) * a.words;
    for (int k = b.rank(); k < a.words; k += b.size()) to[k] = word_between(me, peer, i * a.words + k, e.number());
    e.signal(b, peer, i, to, a.words);
  }
  for (int p = b.index(); p < (size - 1) * a.pieces; p += b.count()) {
    int const source = (me + size - 1 - p % (size - 1)) % size, i = p / (size - 1);
    if (!e.reaches(source) || (a.skip && i == a.pieces - 1 && e.number() % 3 == 0)) continue;
    e.wait(b, source, i);
    int const* const got = e.inbox_from<int>(source) + (source * a.pieces + i) * a.words;
    for (int k = b.rank(); k < a.words; k += b.size())
      if (got[k] != word_between(source, me, i * a.words + k, e.number()))
        atomic_ref<unsigned, scope::device>(a.wrong).fetch_add(1u, order::relaxed);
  }
  e.end(b);
}

/// Copies a shard to the same place of every other rank of this node, and raises flag i there.
__device__ inline void pass_on(nodes_epoch const& e, block b, int const* from, int at, int words, int i) {
  for (int k = 0; k < e.near_ranks(); ++k)
    if (int const peer = e.first_near() + k; peer != e.rank()) e.send(b, peer, i, from, at, words);
}
/// An all-gather in two levels: a shard crosses the network once to each node, to the rank with its owner's place,
/// which passes it on.
///
///   block 0      own shard --> rails, and ranks of this node
///   block 1 + n  the shards of node n: that of the rail comes over the network and is passed on; the others come from
///                ranks of this node
///
///   Deadlock: block 0 waits for room in the ring only. Block 1 + n waits for block 0 of a rail and for blocks 1 + n of
///   ranks of this node, which wait for their rails only before they pass on.
///   Reuse: every piece is waited for.
template <class = void>
__global__ void gather_in_two_levels(nodes_view ch, int words, unsigned* wrong) {
  block const b;
  auto const e = ch.begin(b);
  int const me = e.rank(), node = b.index() - 1;
  auto const look = [&](int source) {
    int const* const shard =
        (e.is_near(source) || source != e.rail(e.node_of(source)) ? e.inbox_from<int>(me) : e.inbox_from<int>(source)) +
        source * words;
    for (int k = b.rank(); k < words; k += b.size())
      if (shard[k] != word_between(source, 0, k, e.number()))
        atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
  };
  if (b.index() == 0) {
    auto const push = [&](int peer) {
      int* const to = e.inbox<int>(peer) + me * words;
      for (int k = b.rank(); k < words; k += b.size()) to[k] = word_between(me, 0, k, e.number());
      e.signal(b, peer, 0, to, words);
    };
    for (int n = 0; n < e.nodes(); ++n)
      if (n != e.node()) push(e.rail(n));
    for (int k = 0; k < e.near_ranks(); ++k)
      if (int const peer = e.first_near() + k; peer != me) push(peer);
  } else if (node < e.nodes()) {
    int const rail = e.rail(node);
    if (node != e.node()) {
      e.wait(b, rail, 0);
      pass_on(e, b, e.inbox_from<int>(rail) + rail * words, rail * words, words, 1 + node);
    }
    for (int k = 0; k < e.near_ranks(); ++k) {
      int const source = node * e.near_ranks() + k;
      if (source == me) continue;
      if (node == e.node()) e.wait(b, source, 0);
      else if (source != rail) e.wait(b, e.near_of(source), 1 + node);
      look(source);
    }
  }
  e.end(b);
}

/// One rank of a node, with a heap of this node's ranks and a network of all.
struct rank_of_node {
  fusewire::world& all;
  fusewire::world near;
  fusewire::heap heap;
  fusewire::network network;
  hipStream_t stream;
  findings found;

  rank_of_node(fusewire::world& w, std::unique_ptr<engine> e, network_options const& o, heap_options const& memory)
      : all(w), near(w.split(w.node_of(w.rank()))), heap(near, memory), network(w, heap, std::move(e), o),
        stream(near.stream()) {
    found.rank = w.rank();
  }
  /// As world::check(), in words: "" if all is well.
  std::string verdict() {
    try {
      near.check(stream);
    } catch (peer_failed const& e) {
      return text("peer failed: ", e.what());
    } catch (launch_abandoned const& e) {
      return text("abandoned: ", e.what());
    } catch (wait_timeout const& e) {
      return text("timeout: ", e.what());
    } catch (rank_mismatch const& e) {
      return text("mismatch: ", e.what());
    }
    return "";
  }
};

/// Sets FUSEWIRE_RANKS_PER_NODE while it exists.
class ranks_per_node {
 public:
  explicit ranks_per_node(int n) { setenv("FUSEWIRE_RANKS_PER_NODE", std::to_string(n).c_str(), 1); }
  ~ranks_per_node() { unsetenv("FUSEWIRE_RANKS_PER_NODE"); }
};

/// Runs f(rank_of_node&) on every rank of these nodes, which are threads of this process; none finds anything wrong.
/// `of`: what the engine of a rank does.
template <class F>
void on_nodes(spread l, network_options const& o, std::function<loopback_options(int rank)> const& of, F f,
              heap_options const& memory = small_heap()) {
  needs_threads("about nodes of one process");
  if (o.reach == network_reach::device && !simulator_stats()) SKIP("the host cannot write memory of this GPU");
  ranks_per_node const nodes(l.near);
  auto const wires = std::make_shared<loopback_network>();
  none_found_anything(on_worlds(l.nodes * l.near, [&](world& w) {
    rank_of_node r(w, std::make_unique<loopback_engine>(wires, w.rank(), of(w.rank())), o, memory);
    f(r);
    check_hip(hipStreamSynchronize(r.stream), "hipStreamSynchronize");
    w.barrier();
    return r.found.summary();
  }));
}

/// Launches of exchange() and whether all words were right.
inline unsigned wrong_words(rank_of_node& r, nodes_channel const& ch, exchange_args a, int launches, int blocks) {
  auto const wrong = r.heap.allocate<unsigned>(1);
  r.heap.upload(wrong, std::vector<unsigned>(1));
  a.wrong = r.heap.here(wrong);
  for (int i = 0; i < launches; ++i)
    launch(r.near, r.stream, {.blocks = blocks, .threads = 128}, exchange<>,
           ch.view(make_header("exchange", 0, std::uint64_t(a.pieces), std::uint64_t(a.words))), a);
  r.near.check(r.stream);
  unsigned const n = r.heap.download(wrong)[0];
  r.all.barrier();
  r.heap.free(wrong);
  return n;
}

inline channel_options channel_for(spread l, exchange_args const& a) {
  return {.max_bytes = std::size_t(l.nodes * l.near * a.pieces * a.words) * 4, .flags_per_source = a.pieces};
}

}  // namespace support
