// Flash Decode over nodes against a reference in fp64 on the host, with puts that are late and overtake each other.
#include <fusewire/ops/nodes_flash_decode.hpp>

#include <chrono>

#include "decode_rank.hpp"
#include "nodes_kernels.hpp"

using namespace support;

namespace {

/// A rank of a node, as decode_rank calls it: ranks are those of all nodes.
struct decoding_rank {
  rank_of_node& n;
  fusewire::heap& heap = n.heap;
  fusewire::world& world = n.near;
  hipStream_t stream = n.stream;
  findings& found = n.found;

  int rank() const { return n.all.rank(); }
  int size() const { return n.all.size(); }
  template <class T>
  T* here(sym<T> x) const {
    return heap.here(x);
  }
  template <class T>
  void upload(std::vector<T> const& from, sym<T> to) const {
    heap.upload(to, from);
  }
  template <class T>
  std::vector<T> download(sym<T> from) const {
    return heap.download(from);
  }
  template <class T>
  void fill(sym<T> to, int byte) const {
    world.fill(here(to), byte, to.count * sizeof(T), "fill", std::source_location::current());
  }
};

template <class T>
using decoding = decode_rank<T, decoding_rank>;

auto late(unsigned seed) {
  return [=](int) { return loopback_options{.seed = seed, .delay = 20}; };
}

int any_length(int most, unsigned seed, int rank, int s) {
  lcg random{seed * 977 + unsigned(rank * 31 + s)};
  return random.below(4) == 0 ? 0 : random.below(most + 1);
}

/// f(rank, channel, x) on every rank, with x for such sequences, and a channel for an operator with x's options.
template <class T, class F>
void on_decoding_nodes(spread l, network_options const& n, unsigned seed, heads_of h, int batch, int max_tokens, F f) {
  heap_options const memory{.bulk = 24_MiB, .signal = 8_MiB, .wait_limit = std::chrono::seconds(20)};
  on_nodes(
      l, n, late(seed),
      [&](rank_of_node& r) {
        decoding_rank of{r};
        decoding<T> x(of, h, batch, 16, ceil_div(max_tokens, 16));
        nodes_channel ch(r.network, nodes_flash_decode<T>::channel_for(l.nodes, l.near, x.options()));
        f(r, ch, x);
      },
      memory);
}

template <class T>
void results(spread l, network_reach reach, heads_of h, int batch, int max_tokens, std::vector<problem> const& all) {
  on_decoding_nodes<T>(l, {.reach = reach}, unsigned(l.nodes + l.near), h, batch, max_tokens,
                       [&](rank_of_node&, nodes_channel& ch, decoding<T>& x) {
                         nodes_flash_decode<T> op(ch, x.options());
                         for (problem const& p : all) x.run(op, p);
                       });
}

std::vector<problem> problems(int batch) {
  auto const any = [](int r, int s) { return any_length(300, 1, r, s); };
  return {{batch, any},
          {batch, [](int, int) { return 0; }},
          {1, [](int r, int) { return 260 - 20 * r; }, problem::random, 2},
          {batch, [](int r, int s) { return r == s ? 140 : 0; }, problem::equal_keys},
          {batch, [](int r, int s) { return r == 1 ? 0 : 33 + s; }, problem::large, 3},
          {batch, any, problem::equal_keys, 4}};
}

}  // namespace

TEST_CASE("nodes_flash_decode: results on any nodes") {
  auto const l = GENERATE(spread{2, 1}, spread{1, 2}, spread{2, 2}, spread{3, 1}, spread{2, 3}, spread{1, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(reach));
  results<bf16>(l, reach, {8, 2, 128}, 3, 300, problems(3));
}

TEST_CASE("nodes_flash_decode: heads that places have in parts, in unequal numbers, or not at all") {
  auto const h =
      GENERATE(heads_of{6, 6, 64}, heads_of{2, 1, 64}, heads_of{10, 2, 96}, heads_of{13, 1, 192}, heads_of{3, 3, 256});
  CAPTURE(h.q, h.kv, h.d);
  results<f16>({2, 3}, network_reach::host, h, 2, 300, problems(2));
  results<f16>({3, 4}, network_reach::device, h, 2, 300, problems(2));
}

TEST_CASE("nodes_flash_decode: many puts, many launches, and a ring with room for one put") {
  heads_of const h{16, 4, 64};
  on_decoding_nodes<bf16>({2, 2}, {.ring = 1}, 7, h, 40, 40, [&](rank_of_node& r, nodes_channel& ch, auto& x) {
    nodes_flash_decode<bf16> op(ch, x.options());
    r.found.expect(op.describe(40) == "nodes_flash_decode: 320 rows of 264 bytes to each other node, in 20 puts",
                   op.describe(40));
    for (unsigned i = 0; i < 6; ++i)
      x.run(op, {i % 2 ? 40 : 1 + int(i), [i](int rank, int s) { return any_length(40, i, rank, s); },
                 i % 3 ? problem::random : problem::equal_keys, i});
  });
}

TEST_CASE("nodes_flash_decode: more rows than a call has puts") {
  results<f16>({2, 1}, network_reach::host, {16, 16, 64}, 70, 4,
               {{70, [](int r, int s) { return (r + s) % 4; }}, {66, [](int r, int s) { return (3 * r + s) % 5; }}});
}

TEST_CASE("nodes_flash_decode: splits, and the same bits on every rank whatever the network does") {
  int const d = GENERATE(64, 128);
  CAPTURE(d);
  std::vector<std::uint16_t> first;
  std::vector<float> first_lse;
  for (unsigned const seed : {1u, 2u, 3u}) {
    std::vector<std::vector<std::uint16_t>> bits(6);
    std::vector<std::vector<float>> lse(6);
    on_decoding_nodes<bf16>({3, 2}, {}, seed, {8, 2, d}, 2, 900, [&](rank_of_node& r, nodes_channel& ch, auto& x) {
      nodes_flash_decode<bf16> op(ch, x.options());
      x.run(op, {2, [](int rank, int s) { return 900 - 110 * rank - 200 * s; }});
      for (bf16 const e : r.heap.download(x.out)) bits[std::size_t(r.all.rank())].push_back(e.bits);
      lse[std::size_t(r.all.rank())] = r.heap.download(x.lse);
    });
    if (first.empty()) first = bits[0], first_lse = lse[0];
    for (std::size_t rank = 0; rank < 6; ++rank) {
      CAPTURE(seed, rank);
      CHECK(bits[rank] == first);
      CHECK(lse[rank] == first_lse);
    }
  }
}

TEST_CASE("nodes_flash_decode: windows, soft caps and batch-invariant pieces") {
  auto const l = GENERATE(spread{2, 2}, spread{3, 1});
  CAPTURE(l.nodes, l.near);
  on_decoding_nodes<f16>(l, {}, 5, {6, 2, 64}, 5, 1440, [&](rank_of_node& r, nodes_channel& ch, auto& x) {
    x.lse_base = lse_base::two;
    nodes_flash_decode<f16, decode_features{.soft_cap = true, .sliding_window = true, .batch_invariant = true}> op(
        ch, x.options());
    for (unsigned i = 0; i < 4; ++i) {
      problem p{int(2 + i), [i](int rank, int s) { return any_length(1440, i, rank, s); }, problem::random, i};
      x.windowed = i > 1;
      x.soft_cap = i % 2 ? 5.0f : 0.0f;
      if (x.windowed) p.window_begin = [](int rank, int s) { return 300 * s - 100 * rank; };
      x.run(op, p);
    }
    // A sequence of the batch alone
    auto const of_batch = r.heap.download(x.out);
    auto c = x.call(1);
    c.q += 3 * x.h.q * x.h.d, c.block_table += 3 * x.max_pages, c.lengths += 3, c.window_begins += 3;
    x.poison();
    op(r.stream, c);
    r.near.check(r.stream);
    auto const alone = r.heap.download(x.out);
    for (int i = 0; i < x.h.q * x.h.d; ++i)
      if (!r.found.expect(alone[std::size_t(i)].bits == of_batch[std::size_t(3 * x.h.q * x.h.d + i)].bits, "element ",
                          i, " of sequence 3 depends on others"))
        return;
  });
}

TEST_CASE("nodes_flash_decode: a call is captured and replayed with other lengths") {
  on_decoding_nodes<f16>({2, 2}, {}, 3, {4, 2, 64}, 3, 300, [&](rank_of_node& r, nodes_channel& ch, auto& x) {
    nodes_flash_decode<f16> op(ch, x.options());
    x.fill({3, [](int, int) { return 0; }});
    r.all.barrier();
    graph const g(r.stream, [&] { op(r.stream, x.call(3)); });
    r.all.barrier();
    for (unsigned i = 0; i < 4; ++i) {
      problem const p{3, [i](int rank, int s) { return any_length(300, i, rank, s); }, problem::random, i};
      x.fill(p);
      r.all.barrier();
      g.launch(r.stream);
      r.near.check(r.stream);
      x.compare(p);
    }
  });
}

TEST_CASE("nodes_flash_decode: a lost put is named, and makes NaN of the results that need it") {
  heads_of const h{4, 2, 64};
  on_nodes(
      {2, 2}, {}, [](int r) { return r == 1 ? loopback_options{.lose = 1} : loopback_options{}; },
      [&](rank_of_node& r) {
        decoding_rank of{r};
        decoding<bf16> x(of, h, 1, 16, 4);
        nodes_channel ch(r.network, nodes_flash_decode<bf16>::channel_for(2, 2, x.options()));
        nodes_flash_decode<bf16> op(ch, x.options());
        problem const p{1, [](int rank, int) { return 20 + rank; }};
        x.fill(p);
        std::string said;
        try {
          op(r.stream, x.call(1));
          said = r.verdict();
        } catch (error const& e) {
          said = e.what();
        }
        if (r.all.rank() >= 2) {
          r.found.expect(!said.empty(), "nothing was said");
          auto const out = r.heap.download(x.out);
          for (int i = 2 * h.d; i < 4 * h.d; ++i)  // heads of place 1
            r.found.expect(std::isnan(float(out[std::size_t(i)])), "element ", i, " is ", float(out[std::size_t(i)]));
        }
        if (r.all.rank() == 3)
          r.found.expect(contains(said, "of nodes_flash_decode bf16, head_dim = 64, batch = 1, q_heads = 4") &&
                             contains(said, " for a flag from rank 1 ("),
                         "said: ", said);
        r.all.barrier();
        ch.reset();
        x.run(op, p);
      },
      short_waits());
}

TEST_CASE("nodes_flash_decode: what it refuses") {
  on_decoding_nodes<bf16>({2, 2}, {}, 1, {4, 2, 64}, 3, 64, [&](rank_of_node& r, nodes_channel& ch, auto& x) {
    auto const o = x.options();
    auto const enough = nodes_flash_decode<bf16>::channel_for(2, 2, o);
    nodes_channel few_bytes(r.network, {.max_bytes = 1000, .flags_per_source = enough.flags_per_source});
    nodes_channel few_flags(r.network, {.max_bytes = enough.max_bytes, .flags_per_source = 3});
    auto const made = [&](nodes_channel& c, flash_decode_options const& with) {
      return [&c, with] { nodes_flash_decode<bf16> op(c, with); };
    };
    auto const with = [&](auto change) {
      auto changed = o;
      change(changed);
      return made(ch, changed);
    };
    r.found.throws<bad_argument>("batch", {"nodes_flash_decode: max_batch = 0; expected at least 1"},
                                 with([](auto& c) { c.max_batch = 0; }));
    r.found.throws<bad_argument>("d", {"nodes_flash_decode: head_dim = 80; expected 64, 96, 128, 192 or 256"},
                                 with([](auto& c) { c.head_dim = 80; }));
    r.found.throws<bad_argument>("heads", {"nodes_flash_decode: output::heads; expected output::replicated"},
                                 with([](auto& c) { c.output = output::heads; }));
    r.found.throws<bad_argument>("shots", {"nodes_flash_decode: shots = ", "; expected automatic"},
                                 with([](auto& c) { c.shots = reduce_algorithm::two_shot; }));
    r.found.throws<out_of_space>(
        "bytes",
        {"nodes_flash_decode: 2 nodes of 2 ranks, max_batch = 3 and q_heads = 4 of 64 take ", "max_bytes is 1000"},
        made(few_bytes, o));
    r.found.throws<out_of_space>("flags", {"nodes_flash_decode: needs 64 flags per source; the channel has 3"},
                                 made(few_flags, o));
    r.found.throws<rank_mismatch>("options",
                                  {"nodes_flash_decode: ranks disagree in max_batch: rank 0 has 3, rank 2 has 2"},
                                  with([&](auto& c) { c.max_batch = 3 - r.all.rank() / 2; }));
    nodes_flash_decode<bf16> op(ch, o);
    auto const call = [&](auto change) {
      auto c = x.call(3);
      change(c);
      return [&op, &r, c] { op(r.stream, c); };
    };
    r.found.throws<bad_argument>("batch", {"batch = 4; expected 1 to max_batch = 3", "nodes_flash_decode_test.cpp"},
                                 call([](auto& c) { c.batch = 4; }));
    r.found.throws<bad_argument>("out", {"nodes_flash_decode: out is null"}, call([](auto& c) { c.out = nullptr; }));
    r.found.throws<bad_argument>("soft cap", {"soft_cap = 1 without its kernel", "or a nodes_flash_decode<T, "},
                                 call([](auto& c) { c.soft_cap = 1; }));
    r.found.throws<bad_argument>("overlap", {"nodes_flash_decode: out = ", "overlaps q"},
                                 call([](auto& c) { c.out = const_cast<bf16*>(c.q); }));
  });
}

TEST_CASE("nodes_flash_decode: 32 ranks, 4 nodes of 8") {
  results<bf16>({4, 8}, network_reach::host, {16, 2, 64}, 2, 200,
                {{2, [](int r, int s) { return any_length(200, 1, r, s); }}, {1, [](int r, int) { return 40 + r; }}});
}
