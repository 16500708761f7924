// All-gather + GEMM over nodes against a reference on the host, with puts that are late and overtake each other. Small
// integers, as in ag_gemm_test.cpp, so == needs no tolerance.
#include <fusewire/ops/nodes_ag_gemm.hpp>

#include "nodes_kernels.hpp"
#include "reference/products.hpp"

using namespace support;

namespace {

struct problem {
  int m, n;
  layout b_layout = layout::column_major;
  unsigned seed = 1;
};

auto late(unsigned seed) {
  return [=](int) { return loopback_options{.seed = seed, .delay = 20}; };
}

/// One rank's memory, and calls on it.
template <class T>
struct gathering_rank {
  rank_of_node& r;
  gather by;
  int k;
  sym<T> a, b, c;

  gathering_rank(rank_of_node& rank, gather gathers, int max_m, int max_n, int columns)
      : r(rank), by(gathers), k(columns), a(r.heap.allocate<T>(std::size_t(max_m * k))),
        b(r.heap.allocate<T>(std::size_t(max_n * k))), c(r.heap.allocate<T>(std::size_t(max_m * max_n))) {}

  gather_map shard(problem const& p) const { return {by, std::max(1, p.m), k, r.all.size(), 128, 512}; }
  ag_gemm_call<T> call(problem const& p) const {
    gather_map const map = shard(p);
    return {.a = {r.heap.here(a), p.m == 0 ? 0 : map.rows(r.all.rank()), map.cols(), map.cols()},
            .b = {r.heap.here(b), k, p.n, p.b_layout == layout::row_major ? p.n : k},
            .c = {r.heap.here(c), p.m, p.n, p.n},
            .m = p.m,
            .b_layout = p.b_layout};
  }
  /// Launches, overwrites A immediately, and compares.
  void run(nodes_ag_gemm<T>& op, problem const& p) {
    gather_map const map = shard(p);
    int const me = r.all.rank(), rows = p.m == 0 ? 0 : map.rows(me), cols = map.cols();
    std::vector<T> x(a.count, T(0.0f)), y(b.count, T(0.0f));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        x[std::size_t(i * cols + j)] = T(a_of(p.seed, 0, map.first_row(me) + i, map.first_col(me) + j));
    for (int j = 0; j < k; ++j)
      for (int col = 0; col < p.n; ++col)
        y[std::size_t(p.b_layout == layout::row_major ? j * p.n + col : col * k + j)] = T(b_of(p.seed, 0, j, col));
    r.heap.upload(a, x), r.heap.upload(b, y);
    r.near.fill(r.heap.here(c), 0xff, c.count * sizeof(T), "c", std::source_location::current());
    op(r.stream, call(p));
    check_hip(hipMemsetAsync(r.heap.here(a), 0xff, a.count * sizeof(T), r.stream), "hipMemsetAsync");
    r.near.check(r.stream);
    auto const found = r.heap.download(c);
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.n; ++j) {
        float const f = float(found[std::size_t(i * p.n + j)]), w = float(T(product_of(p.seed, 0, k, i, j)));
        if (!r.found.expect(f == w, "m ", p.m, " n ", p.n, " k ", k, ": c(", i, ", ", j, ") = ", f, ", wanted ", w))
          return;
      }
  }
};

template <class T>
void products(spread l, network_reach reach, gather by, ag_gemm_options o, int max_n, std::vector<problem> const& all,
              bool tuned) {
  o.gather = by;
  o.k = o.k / (8 * l.nodes * l.near) * (8 * l.nodes * l.near);
  heap_options memory = small_heap();
  memory.signal = 4_MiB;
  on_nodes(
      l, {.reach = reach}, late(unsigned(l.nodes + l.near)),
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, nodes_ag_gemm<T>::channel_for(l.nodes, l.near, o));
        nodes_ag_gemm<T> op(ch, o);
        gathering_rank<T> g(r, by, o.max_m, max_n, o.k);
        for (problem const& p : all) {
          std::string const said = op.describe(g.call(p));
          r.found.expect(p.m == 0 || contains(said, "not a tuned") != tuned, said);
          g.run(op, p);
        }
      },
      memory);
}

}  // namespace

TEST_CASE("nodes_ag_gemm: products with a generic tile") {
  auto const l = GENERATE(spread{1, 4}, spread{2, 2}, spread{4, 2}, spread{2, 3}, spread{3, 1}, spread{1, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  auto const by = GENERATE(gather::k, gather::m);
  CAPTURE(l.nodes, l.near, int(reach), int(by));
  products<bf16>(l, reach, by, {.max_m = 300, .k = 384, .tile = gemm_tile::small, .chunk_k = 64}, 80,
                 {{300, 80}, {1, 8}, {67, 40, layout::row_major, 2}, {128, 80, layout::column_major, 3}, {300, 80}},
                 false);
}

TEST_CASE("nodes_ag_gemm: products with tuned mainloops") {
  auto const by = GENERATE(gather::k, gather::m);
  auto const l = GENERATE(spread{2, 2}, spread{3, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(by), int(reach));
  products<f16>(l, reach, by, {.max_m = 260, .k = 768}, 256, {{16, 256}, {260, 256}, {64, 128}, {0, 8}, {33, 64}},
                true);
}

TEST_CASE("nodes_ag_gemm: what it refuses") {
  ag_gemm_options const o{.max_m = 64, .k = 64, .tile = gemm_tile::small};
  on_nodes({2, 2}, {}, late(1), [&](rank_of_node& r) {
    auto const enough = nodes_ag_gemm<bf16>::channel_for(2, 2, o);
    nodes_channel ch(r.network, enough);
    nodes_channel few_bytes(r.network, {.max_bytes = 1000, .flags_per_source = enough.flags_per_source});
    nodes_channel few_flags(r.network, {.max_bytes = enough.max_bytes, .flags_per_source = 1});
    auto const made = [&](nodes_channel& c, ag_gemm_options const& with) {
      return [&c, with] { nodes_ag_gemm<bf16> op(c, with); };
    };
    ag_gemm_options wrong = o;
    wrong.k = 40;
    r.found.throws<bad_argument>(
        "k", {"nodes_ag_gemm: k = 40; expected a multiple of 32", "for gather::k with 4 ranks"}, made(ch, wrong));
    wrong = o;
    wrong.method = method::pull;
    r.found.throws<bad_argument>("method", {"nodes_ag_gemm: method = 1; expected method::push"}, made(ch, wrong));
    r.found.throws<out_of_space>("bytes", {"nodes_ag_gemm: the gathered A, 64 x 64, takes 8192 bytes"},
                                 made(few_bytes, o));
    r.found.throws<out_of_space>("flags", {"nodes_ag_gemm: needs ", "the channel has 1"}, made(few_flags, o));
    wrong = o;
    wrong.max_m = 64 - r.all.rank() / 2;
    r.found.throws<rank_mismatch>("options", {"nodes_ag_gemm: ranks disagree in max_m: rank 0 has 64, rank 2 has 63"},
                                  made(ch, wrong));
    nodes_ag_gemm<bf16> op(ch, o);
    gathering_rank<bf16> g(r, gather::k, 64, 8, 64);
    auto call = g.call({65, 8});
    r.found.throws<bad_argument>("m", {"nodes_ag_gemm: m = 65; expected 0 to max_m = 64", "nodes_ag_gemm_test.cpp"},
                                 [&] { op(r.stream, call); });
    call = g.call({64, 8});
    call.a.cols = 64;
    r.found.throws<bad_argument>("a", {"nodes_ag_gemm: a is [64, 64]; expected [64, 16] on rank ", "gather::k"},
                                 [&] { op(r.stream, call); });
    r.found.expect(op.rows(64) == 64, "rows");
  });
}

TEST_CASE("nodes_ag_gemm: 32 ranks, 8 nodes of 4") {
  products<bf16>({8, 4}, network_reach::host, gather::k,
                 {.max_m = 40, .k = 256, .tile = gemm_tile::small, .chunk_k = 64}, 16, {{40, 16}, {7, 8}, {40, 16}},
                 false);
}
