// Channels whose ranks are on several nodes: layouts, rings that are full, delays, failures, and engines that break
// their promises.
#include "nodes_kernels.hpp"

using namespace support;

namespace {

std::string name_of(network_reach r) { return r == network_reach::host ? "memory of the host" : "memory of the GPU"; }

auto with(loopback_options const& o) {
  return [=](int) { return o; };
}
/// `o` for this rank, and an engine without faults for the others.
auto only_rank(int rank, loopback_options const& o) {
  return [=](int r) { return r == rank ? o : loopback_options{}; };
}

/// Launches that must be right.
void expect_right(rank_of_node& r, nodes_channel& ch, exchange_args const& a, int launches, int blocks,
                  std::string const& when = "") {
  unsigned const wrong = wrong_words(r, ch, a, launches, blocks);
  r.found.expect(wrong == 0, wrong, " wrong words ", when);
}

/// One launch of exchange() that may fail, and what is said of it, by the launch itself or by check().
std::string verdict_of_launch(rank_of_node& r, nodes_channel const& ch, exchange_args a, unsigned* wrong) {
  a.wrong = wrong;
  try {
    launch(r.near, r.stream, {.blocks = 2, .threads = 128}, exchange<>,
           ch.view(make_header("exchange", 0, std::uint64_t(a.pieces), std::uint64_t(a.words))), a);
  } catch (error const& e) {
    return text("at the launch: ", e.what());
  }
  return r.verdict();
}

/// Expects so many puts of this rank, soon: the end of a kernel is not the end of its puts.
void expect_puts(rank_of_node& r, std::uint64_t wanted) {
  for (int i = 0; i < 5000 && r.network.puts() < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  r.found.expect(r.network.puts() == wanted, r.network.puts(), " puts, wanted ", wanted);
}

/// Sends by copies of memory of its own, and looks at flags in other ways than wait().
__global__ void send_and_look(nodes_view ch, int const* from, int words, unsigned* wrong) {
  block const b;
  __shared__ int word;
  auto const e = ch.begin(b);
  int const peer = (e.rank() + e.size() / 2) % e.size();
  e.send(b, peer, 0, from, e.rank() * words, words);
  e.signal(b, peer, 1);  // behind it, without bytes
  bool const came = e.try_wait(b, peer, 0, &word);
  if (!came || !e.arrived(peer, 0)) atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
  e.wait(b, peer, 1);
  int const* const got = e.inbox_from<int>(peer) + peer * words;
  for (int k = b.rank(); k < words; k += b.size())
    if (got[k] != word_between(peer, 0, k, 0)) atomic_ref<unsigned, scope::device>(wrong).fetch_add(1u, order::relaxed);
  e.end(b);
}

__global__ void names_of_ranks(nodes_view ch, int* out) {
  block const b;
  auto const e = ch.begin(b);
  if (b.leader()) {
    int const all[] = {
        e.rank(),     e.size(),     e.node(),     e.nodes(),    e.near_ranks(),  e.first_near(),
        e.node_of(3), e.rail(1),    e.rail(0),    e.near_of(3), e.is_near(0),    e.is_near(3),
        e.reaches(0), e.reaches(1), e.reaches(2), e.reaches(3), int(e.number()), e.near().from(0, 0) != nullptr};
    for (int i = 0; i < 18; ++i) out[i] = all[i];
  }
  e.end(b);
}

}  // namespace

TEST_CASE("nodes: every rank sends to all that it reaches") {
  auto const l = GENERATE(spread{1, 4}, spread{2, 1}, spread{2, 2}, spread{4, 2}, spread{2, 4}, spread{3, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  auto const peers = GENERATE(far_peers::rails, far_peers::all);
  CAPTURE(l.nodes, l.near, name_of(reach), int(peers));
  exchange_args const a{.pieces = 3, .words = 500};
  on_nodes(l, {.reach = reach, .peers = peers}, with({.delay = 20}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, channel_for(l, a));
    expect_right(r, ch, a, 5, 3);
    int const far = (l.nodes - 1) * (peers == far_peers::all ? l.near : 1);
    expect_puts(r, std::uint64_t(5 * far * (1 + a.pieces)));
  });
}

TEST_CASE("nodes: an all-gather in two levels") {
  auto const l = GENERATE(spread{1, 4}, spread{2, 2}, spread{2, 1}, spread{4, 2}, spread{4, 4});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, name_of(reach));
  int const words = 3000;
  on_nodes(l, {.reach = reach}, with({.delay = 10}), [&](rank_of_node& r) {
    nodes_channel ch(r.network,
                     {.max_bytes = std::size_t(l.nodes * l.near * words) * 4, .flags_per_source = 1 + l.nodes});
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.heap.upload(wrong, std::vector<unsigned>(1));
    for (int i = 0; i < 6; ++i)
      launch(r.near, r.stream, {.blocks = 1 + l.nodes, .threads = 256}, gather_in_two_levels<>,
             ch.view(make_header("gather", 0, std::uint64_t(words))), words, r.heap.here(wrong));
    r.near.check(r.stream);
    unsigned const n = r.heap.download(wrong)[0];
    r.found.expect(n == 0, n, " wrong words");
  });
}

TEST_CASE("nodes: puts wait for room in the ring") {
  int const ring = GENERATE(1, 2, 5);
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  exchange_args const a{.pieces = 12, .words = 40};
  on_nodes({2, 2}, {.reach = reach, .peers = far_peers::all, .ring = ring}, with({.delay = 30}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, channel_for({2, 2}, a));
    expect_right(r, ch, a, 12, 4);
  });
}

TEST_CASE("nodes: two channels share a ring") {
  exchange_args const a{.pieces = 4, .words = 100}, b{.pieces = 1, .words = 7};
  on_nodes({2, 2}, {.ring = 3}, with({.delay = 10}), [&](rank_of_node& r) {
    nodes_channel first(r.network, channel_for({2, 2}, a));
    for (int i = 0; i < 3; ++i) {
      nodes_channel second(r.network, channel_for({2, 2}, b));
      expect_right(r, first, a, 2, 2, "of the first channel");
      expect_right(r, second, b, 3, 1, "of the second channel");
    }
  });
}

TEST_CASE("nodes: send, try_wait, arrived, and a flag without bytes") {
  auto const l = GENERATE(spread{2, 1}, spread{2, 2}, spread{1, 2});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  int const words = 333;
  on_nodes(l, {.reach = reach}, with({.delay = 10}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, {.max_bytes = std::size_t(l.nodes * l.near * words) * 4, .flags_per_source = 2});
    auto const from = r.heap.allocate<int>(std::size_t(words));
    std::vector<int> mine(std::size_t{words});
    for (int k = 0; k < words; ++k) mine[std::size_t(k)] = word_between(r.all.rank(), 0, k, 0);
    r.heap.upload(from, mine);
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.heap.upload(wrong, std::vector<unsigned>(1));
    for (int i = 0; i < 3; ++i)
      launch(r.near, r.stream, {.blocks = 1, .threads = 128}, send_and_look, ch.view(make_header("send", 0)),
             static_cast<int const*>(r.heap.here(from)), words, r.heap.here(wrong));
    r.near.check(r.stream);
    r.found.expect(r.heap.download(wrong)[0] == 0, "wrong words or flags");
  });
}

TEST_CASE("nodes: ranks have names") {
  auto const peers = GENERATE(far_peers::rails, far_peers::all);
  on_nodes({2, 2}, {.peers = peers}, with({}), [&](rank_of_node& r) {
    r.found.expect(r.all.nodes() == 2 && r.near.nodes() == 1, "nodes of a world");
    for (int p = 0; p < 4; ++p) r.found.expect(r.all.node_of(p) == p / 2, "node of rank ", p);
    nodes_channel ch(r.network, {.max_bytes = 4, .flags_per_source = 1});
    auto const out = r.heap.allocate<int>(18);
    launch(r.near, r.stream, {.blocks = 1, .threads = 64}, names_of_ranks, ch.view(make_header("names", 0)),
           r.heap.here(out));
    r.near.check(r.stream);
    int const me = r.all.rank(), node = me / 2, place = me % 2, all = peers == far_peers::all;
    r.found.equal(r.heap.download(out),
                  {me, 4, node, 2, 2, 2 * node, 1, 2 + place, place, 2 * node + 1, node == 0, node == 1,
                   all || node == 0 || place == 0, all || node == 0 || place == 1, all || node == 1 || place == 0,
                   all || node == 1 || place == 1, 1, 1},
                  "names");
  });
}

TEST_CASE("nodes: launches are captured and replayed") {
  exchange_args a{.pieces = 2, .words = 100};
  on_nodes({2, 2}, {}, with({.delay = 5}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, channel_for({2, 2}, a));
    auto const wrong = r.heap.allocate<unsigned>(1);
    r.heap.upload(wrong, std::vector<unsigned>(1));
    exchange_args mine = a;
    mine.wrong = r.heap.here(wrong);
    load_kernel(r.near, exchange<>, 128);
    r.all.barrier();
    graph const g(r.stream, [&] {
      for (int i = 0; i < 2; ++i)
        launch(r.near, r.stream, {.blocks = 2, .threads = 128}, exchange<>, ch.view(make_header("exchange", 0)), mine);
    });
    r.all.barrier();
    for (int i = 0; i < 5; ++i) g.launch(r.stream);
    r.near.check(r.stream);
    r.found.expect(r.heap.download(wrong)[0] == 0, "wrong words");
    expect_puts(r, 10 * 3);
  });
}

TEST_CASE("nodes: a put for which nobody waits comes launches later") {
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  exchange_args const a{.pieces = 2, .words = 64, .skip = true};
  on_nodes({2, 2}, {.reach = reach}, with({.delay = 4, .hold = 4000}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, channel_for({2, 2}, a));
    expect_right(r, ch, a, 14, 1);
  });
}

TEST_CASE("nodes: an engine that lets a later put overtake one that has left is noticed") {
  heap_options memory = short_waits();
  exchange_args const a{.pieces = 2, .words = 64, .skip = true};
  std::atomic<int> noticed = 0;
  on_nodes(
      {2, 1}, {}, with({.hold = 20000, .overtakes_done = true}),
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, channel_for({2, 1}, a));
        auto const wrong = r.heap.allocate<unsigned>(1);
        r.heap.upload(wrong, std::vector<unsigned>(1));
        std::string said;
        try {
          for (int i = 0; i < 200 && said.empty(); ++i) said = verdict_of_launch(r, ch, a, r.heap.here(wrong));
        } catch (error const& e) {
          said = e.what();
        }
        if (!said.empty() || r.heap.download(wrong)[0]) ++noticed;
      },
      memory);
  CHECK(noticed > 0);
}

TEST_CASE("nodes: an engine that raises a flag before its bytes is noticed") {
  std::atomic<unsigned> noticed = 0;
  exchange_args const a{.pieces = 1, .words = 64};
  on_nodes({2, 1}, {}, with({.delay = 2000, .flag_first = true}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, channel_for({2, 1}, a));
    try {
      noticed += wrong_words(r, ch, a, 20, 1);
    } catch (rank_mismatch const&) {  // a header's flag came before the header
      ++noticed;
      r.all.barrier();
    }
  });
  CHECK(noticed > 0);
}

TEST_CASE("nodes: a lost put ends the launches of all nodes, and the report names its flag") {
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  exchange_args const a{.pieces = 3, .words = 100};
  on_nodes(
      {2, 2}, {.reach = reach}, only_rank(1, {.lose = 2}),  // a header comes first, or one of three pieces
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, channel_for({2, 2}, a));
        auto const wrong = r.heap.allocate<unsigned>(1);
        std::string const said = verdict_of_launch(r, ch, a, r.heap.here(wrong));
        if (r.all.rank() == 3)
          r.found.expect(contains(said, "timeout: rank 3, block ") && contains(said, "of exchange") &&
                             contains(said, " for a flag from rank 1 (") &&
                             contains(said, " of rank 1 on another node, slot 1") &&
                             contains(said, "epoch 0 found, 1 wanted"),
                         "said: ", said);
        r.all.barrier();
        ch.reset();
        expect_right(r, ch, a, 6, 2, "after reset()");
      },
      short_waits());
}

TEST_CASE("nodes: an engine that makes no puts fills the ring, and the report says so") {
  exchange_args const a{.pieces = 8, .words = 16};
  on_nodes(
      {2, 1}, {.ring = 4, .drain_limit = std::chrono::milliseconds(50)}, only_rank(0, {.stall = 0}),
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, channel_for({2, 1}, a));
        auto const wrong = r.heap.allocate<unsigned>(1);
        std::string const said = verdict_of_launch(r, ch, a, r.heap.here(wrong));
        r.found.expect(!said.empty(), "nothing was said");
        if (r.all.rank() == 0)
          r.found.expect(contains(said, "(puts to other nodes that have left this rank, in a ring of 4,") ||
                             contains(said, "another node, has failed"),
                         "said: ", said);
      },
      short_waits());
}

TEST_CASE("nodes: launches that differ between nodes are named") {
  std::atomic<int> named = 0;
  exchange_args const a{.pieces = 1, .words = 16};
  on_nodes({2, 1}, {}, with({}), [&](rank_of_node& r) {
    nodes_channel ch(r.network, channel_for({2, 1}, a));
    auto const wrong = r.heap.allocate<unsigned>(1);
    exchange_args mine = a;
    mine.wrong = r.heap.here(wrong);
    launch(r.near, r.stream, {.blocks = 1, .threads = 128}, exchange<>,
           ch.view(make_header("exchange", 0, std::uint64_t(7 + r.all.rank()))), mine);
    std::string const said = r.verdict();
    int const me = r.all.rank();
    bool const first = contains(said, text("mismatch: ranks launched different things: rank ", me, " launched exch")) &&
                       contains(said, text("rank ", 1 - me, " launched exchange"));
    r.found.expect(first || contains(said, "on another node, has failed, and its error says why"), "said: ", said);
    named += first;
    r.all.barrier();
    ch.reset();
    expect_right(r, ch, a, 3, 1, "after reset()");
  });
  CHECK(named > 0);
}

TEST_CASE("nodes: a rank that fails ends the waits of other nodes") {
  heap_options memory = small_heap();
  memory.wait_limit = std::chrono::minutes(5);
  exchange_args const a{.pieces = 1, .words = 16};
  try {
    on_nodes(
        {2, 2}, {.drain_limit = std::chrono::milliseconds(50)}, with({}),
        [&](rank_of_node& r) {
          nodes_channel ch(r.network, channel_for({2, 2}, a));
          auto const wrong = r.heap.allocate<unsigned>(1);
          if (r.all.rank() == 3) throw error("planted");
          std::string const said = verdict_of_launch(r, ch, a, r.heap.here(wrong));
          if (!said.empty()) throw error(said);  // a rank that exchanges nothing with rank 3 may be done
        },
        memory);
    FAIL_CHECK("nothing was thrown");
  } catch (error const& e) {
    CAPTURE(e.what());
    CHECK(contains(e.what(), "planted"));
  }
}

TEST_CASE("nodes: what a network refuses") {
  needs_threads("about nodes of one process");
  auto const refused = [](int ranks, int per_node, bool has_engine, network_options const& o, std::string const& what) {
    ranks_per_node const nodes(per_node);
    auto const wires = std::make_shared<loopback_network>();
    none_found_anything(on_worlds(ranks, [&](world& w) {
      world near = w.split(w.node_of(w.rank()));
      heap h(near, small_heap());
      findings f;
      f.throws<error>("network", {what, "nodes_test.cpp"}, [&] {
        network n(w, h, has_engine ? std::make_unique<loopback_engine>(wires, w.rank()) : nullptr, o);
      });
      w.barrier();
      return f.summary();
    }));
  };
  refused(2, 1, false, {}, "no engine for 2 nodes; expected one");
  refused(3, 2, true, {}, "expected as many ranks on every node");
  refused(2, 1, true, {.ring = 0}, "a ring of 0 puts; expected 1 to");
}
