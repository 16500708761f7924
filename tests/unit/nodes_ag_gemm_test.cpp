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
