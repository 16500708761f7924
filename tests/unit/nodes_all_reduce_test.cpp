// An all-reduce over nodes against sums on the host, with puts that are late and overtake each other.
#include <fusewire/ops/nodes_all_reduce.hpp>

#include <catch2/catch_template_test_macros.hpp>

#include <cstring>

#include "nodes_kernels.hpp"

using namespace support;

namespace {

/// Summand i of a rank: small integers, whose sums are exact in every type.
float summand(int rank, std::int64_t i, unsigned seed) {
  return float((unsigned(i) * 2654435761u + unsigned(rank) * 40503u + seed * 97u) >> 29) - 4;
}

auto late(unsigned seed) {
  return [=](int) { return loopback_options{.seed = seed, .delay = 20}; };
}

/// Calls of one rank, which begin `shift` elements behind a multiple of 16 bytes.
template <class T>
struct reducing_rank {
  rank_of_node& r;
  std::int64_t max_count;
  sym<T> in, out;
  reducing_rank(rank_of_node& rank, std::int64_t most)
      : r(rank), max_count(most), in(r.heap.allocate<T>(std::size_t(most) + 16)),
        out(r.heap.allocate<T>(std::size_t(most) + 16)) {}

  void run(nodes_all_reduce<T>& op, std::int64_t count, int shift, bool in_place, unsigned seed) {
    std::size_t const all = std::size_t(max_count) + 16;
    std::vector<T> x(all, T(0.0f)), poison(all, T(99.0f));
    for (std::int64_t i = 0; i < count; ++i) x[std::size_t(i + shift)] = T(summand(r.all.rank(), i, seed));
    r.heap.upload(in, x), r.heap.upload(out, poison);
    sym<T> const to = in_place ? in : out;
    op(r.stream, {.in = r.heap.here(in) + shift, .out = r.heap.here(to) + shift, .count = count});
    r.near.check(r.stream);
    std::vector<T> wanted = in_place ? x : poison;
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < r.all.size(); ++rank) sum += summand(rank, i, seed);
      wanted[std::size_t(i + shift)] = T(sum);
    }
    auto const found = r.heap.download(to);
    for (std::size_t i = 0; i < all; ++i)
      r.found.expect(float(found[i]) == float(wanted[i]), "count ", count, ", shift ", shift, ": element ", i, " is ",
                     float(found[i]), ", wanted ", float(wanted[i]));
  }
};

template <class T>
void sums(spread l, network_reach reach, std::int64_t most, std::vector<std::int64_t> const& counts) {
  nodes_all_reduce_options const o{.max_count = most};
  on_nodes(l, {.reach = reach}, late(unsigned(l.nodes + l.near)), [&](rank_of_node& r) {
    nodes_channel ch(r.network, nodes_all_reduce<T>::channel_for(l.nodes, l.near, o));
    nodes_all_reduce<T> op(ch, o);
    reducing_rank<T> calls(r, most);
    unsigned seed = 0;
    for (std::int64_t const count : counts) {
      ++seed;
      calls.run(op, count, int(seed % 3 ? 0 : seed), seed % 2 == 0, seed);
    }
    op(r.stream, {});
    r.near.check(r.stream);
  });
}

}  // namespace

TEMPLATE_TEST_CASE("nodes_all_reduce: sums of arrays", "", float, f16, bf16) {
  auto const l = GENERATE(spread{1, 4}, spread{2, 2}, spread{4, 2}, spread{2, 3}, spread{3, 1}, spread{1, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(reach));
  sums<TestType>(l, reach, 30000, {30000, 1, 7, 2049, 9001, 30000});
}

TEST_CASE("nodes_all_reduce: a ring with room for one put, and many launches") {
  nodes_all_reduce_options const o{.max_count = 40000};
  on_nodes({2, 2}, {.ring = 1}, late(7), [&](rank_of_node& r) {
    nodes_channel ch(r.network, nodes_all_reduce<float>::channel_for(2, 2, o));
    nodes_all_reduce<float> op(ch, o);
    reducing_rank<float> calls(r, o.max_count);
    for (unsigned i = 0; i < 8; ++i) calls.run(op, i % 2 ? 40000 : 3000, 0, i % 3 == 0, i);
  });
}

TEST_CASE("nodes_all_reduce: the bits do not depend on the network") {
  nodes_all_reduce_options const o{.max_count = 3000};
  std::vector<std::vector<float>> first;
  for (unsigned const seed : {1u, 2u, 3u}) {
    std::vector<std::vector<float>> sums(4);
    on_nodes({2, 2}, {}, late(seed), [&](rank_of_node& r) {
      nodes_channel ch(r.network, nodes_all_reduce<float>::channel_for(2, 2, o));
      nodes_all_reduce<float> op(ch, o);
      auto const x = r.heap.allocate<float>(3000);
      std::vector<float> mine(3000);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = 1.0f / float(1 + i * 7 + std::size_t(r.all.rank()) * 13);
      r.heap.upload(x, mine);
      op(r.stream, {.in = r.heap.here(x), .out = r.heap.here(x), .count = 3000});
      r.near.check(r.stream);
      sums[std::size_t(r.all.rank())] = r.heap.download(x);
    });
    for (auto const& s : sums) CHECK(s == sums[0]);
    if (first.empty()) first = sums;
    CHECK(sums == first);
  }
}

TEST_CASE("nodes_all_reduce: a call is captured and replayed") {
  nodes_all_reduce_options const o{.max_count = 1000};
  on_nodes({2, 2}, {}, late(3), [&](rank_of_node& r) {
    nodes_channel ch(r.network, nodes_all_reduce<float>::channel_for(2, 2, o));
    nodes_all_reduce<float> op(ch, o);
    auto const x = r.heap.allocate<float>(1000);
    r.heap.upload(x, std::vector<float>(1000, 1.0f));
    r.all.barrier();
    graph const g(r.stream, [&] { op(r.stream, {.in = r.heap.here(x), .out = r.heap.here(x), .count = 1000}); });
    r.all.barrier();
    for (int i = 0; i < 4; ++i) g.launch(r.stream);
    r.near.check(r.stream);
    r.found.equal(r.heap.download(x), std::vector<float>(1000, 256.0f), "sums of sums");
  });
}

TEST_CASE("nodes_all_reduce: a lost put ends the launches that wait for it, and is named") {
  nodes_all_reduce_options const o{.max_count = 1000};
  on_nodes(
      {2, 2}, {}, [](int r) { return r == 1 ? loopback_options{.lose = 1} : loopback_options{}; },
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, nodes_all_reduce<float>::channel_for(2, 2, o));
        nodes_all_reduce<float> op(ch, o);
        reducing_rank<float> calls(r, o.max_count);
        std::string said;
        try {
          op(r.stream, {.in = r.heap.here(calls.in), .out = r.heap.here(calls.out), .count = 1000});
          said = r.verdict();
        } catch (error const& e) {
          said = e.what();
        }
        if (r.all.rank() >= 2) r.found.expect(!said.empty(), "nothing was said");
        if (r.all.rank() == 3)
          r.found.expect(contains(said, "of nodes_all_reduce, 1000 elements of 4 bytes") &&
                             contains(said, " for a flag from rank 1 ("),
                         "said: ", said);
        r.all.barrier();
        ch.reset();
        calls.run(op, 1000, 0, false, 5);
      },
      short_waits());
}

TEST_CASE("nodes_all_reduce: what it refuses") {
  nodes_all_reduce_options const o{.max_count = 1000};
  on_nodes({2, 2}, {}, late(1), [&](rank_of_node& r) {
    auto const enough = nodes_all_reduce<float>::channel_for(2, 2, o);
    nodes_channel ch(r.network, enough);
    nodes_channel few_bytes(r.network, {.max_bytes = 1000, .flags_per_source = enough.flags_per_source});
    nodes_channel few_flags(r.network, {.max_bytes = enough.max_bytes, .flags_per_source = 3});
    auto const x = r.heap.allocate<float>(1000);
    float* const at = r.heap.here(x);
    auto const made = [&](nodes_channel& c, nodes_all_reduce_options const& with) {
      return [&c, with] { nodes_all_reduce<float> op(c, with); };
    };
    r.found.throws<bad_argument>("max_count", {"nodes_all_reduce: max_count = 0; expected 1 to "}, made(ch, {}));
    r.found.throws<out_of_space>(
        "bytes", {"nodes_all_reduce: 2 nodes of 2 ranks and max_count = 1000 take ", "max_bytes is 1000"},
        made(few_bytes, o));
    r.found.throws<out_of_space>("flags", {"nodes_all_reduce: needs 128 flags per source; the channel has 3"},
                                 made(few_flags, o));
    r.found.throws<rank_mismatch>("options", {"nodes_all_reduce: ranks disagree in max_count: rank 0 has 1000, rank 2"},
                                  made(ch, {.max_count = 1000 - r.all.rank() / 2}));
    nodes_all_reduce<float> op(ch, o);
    auto const call = [&](nodes_all_reduce_call<float> const& c) { return [&op, &r, c] { op(r.stream, c); }; };
    r.found.throws<bad_argument>("count", {"count = 1001; expected 0 to max_count = 1000", "nodes_all_reduce_test.cpp"},
                                 call({at, at, 1001}));
    r.found.throws<bad_argument>("in", {"nodes_all_reduce: in is null"}, call({nullptr, at, 1}));
    r.found.throws<bad_argument>("out", {"nodes_all_reduce: out is null"}, call({at, nullptr, 1}));
    r.found.throws<bad_argument>("overlap", {"nodes_all_reduce: out = ", "overlaps in"}, call({at, at + 1, 900}));
    r.found.expect(op.describe(1000) == "nodes_all_reduce: 1 chunks of 2048 bytes of each rank's segment",
                   op.describe(1000));
    r.found.expect(op.describe(0) == "nodes_all_reduce: nothing", op.describe(0));
  });
}

TEST_CASE("nodes_all_reduce: 64 ranks, 8 nodes of 8") {
  sums<float>({8, 8}, network_reach::host, 20000, {20000, 100, 20000});
}
