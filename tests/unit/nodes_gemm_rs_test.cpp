// GEMM + reduce-scatter over nodes against a reference on the host, with puts that are late and overtake each other.
// Small integers, as in ag_gemm_test.cpp, so == needs no tolerance.
#include <fusewire/ops/nodes_gemm_rs.hpp>

#include "nodes_kernels.hpp"
#include "reference/products.hpp"

using namespace support;

namespace {

struct problem {
  int m, n;
  layout b_layout = layout::column_major;
  unsigned seed = 1;
};

template <class T, class Partial>
void products(spread l, network_reach reach, gemm_rs_options const& o, std::vector<problem> const& all) {
  heap_options memory = small_heap();
  memory.bulk = 24_MiB, memory.signal = 4_MiB;
  auto const late = [&](int) { return loopback_options{.seed = unsigned(l.nodes + l.near), .delay = 20}; };
  on_nodes(
      l, {.reach = reach}, late,
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, nodes_gemm_rs<T, Partial>::channel_for(l.nodes, l.near, o));
        nodes_gemm_rs<T, Partial> op(ch, o);
        int const k = o.k, me = r.all.rank();
        auto const a = r.heap.allocate<T>(std::size_t(o.max_m * k)), b = r.heap.allocate<T>(std::size_t(o.max_n * k)),
                   c = r.heap.allocate<T>(std::size_t(o.max_m * o.max_n));
        for (problem const& p : all) {
          std::vector<T> x(a.count, T(0.0f)), y(b.count, T(0.0f));
          for (int i = 0; i < p.m; ++i)
            for (int j = 0; j < k; ++j) x[std::size_t(i * k + j)] = T(a_of(p.seed, me, i, j));
          for (int j = 0; j < k; ++j)
            for (int col = 0; col < p.n; ++col)
              y[std::size_t(p.b_layout == layout::row_major ? j * p.n + col : col * k + j)] =
                  T(b_of(p.seed, me, j, col));
          r.heap.upload(a, x), r.heap.upload(b, y);
          r.near.fill(r.heap.here(c), 0xff, c.count * sizeof(T), "c", std::source_location::current());
          int const rows = op.rows(p.m), first = ceil_div(p.m, r.all.size()) * me;
          op(r.stream, {.a = {r.heap.here(a), p.m, k, k},
                        .b = {r.heap.here(b), k, p.n, p.b_layout == layout::row_major ? p.n : k},
                        .c = {r.heap.here(c), rows, p.n, p.n},
                        .m = p.m,
                        .b_layout = p.b_layout});
          r.near.check(r.stream);
          auto const found = r.heap.download(c);
          for (int i = 0; i < rows; ++i)
            for (int j = 0; j < p.n; ++j) {
              float sum = 0;
              for (int s = 0; s < r.all.size(); ++s) sum += product_of(p.seed, s, k, first + i, j);
              float const f = float(found[std::size_t(i * p.n + j)]);
              if (!r.found.expect(f == float(T(sum)), "m ", p.m, " n ", p.n, ": c(", i, ", ", j, ") = ", f, ", wanted ",
                                  sum))
                return;
            }
        }
      },
      memory);
}

}  // namespace

TEST_CASE("nodes_gemm_rs: products with a generic tile") {
  auto const l = GENERATE(spread{1, 4}, spread{2, 2}, spread{4, 2}, spread{2, 3}, spread{3, 1}, spread{1, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(reach));
  products<bf16, float>(
      l, reach, {.max_m = 300, .max_n = 80, .k = 40, .tile = gemm_tile::small},
      {{300, 80}, {1, 8}, {67, 40, layout::row_major, 2}, {0, 8}, {128, 80, layout::column_major, 3}, {300, 77}});
}

TEST_CASE("nodes_gemm_rs: products with tuned mainloops") {
  auto const l = GENERATE(spread{2, 2}, spread{3, 1});
  auto const reach = GENERATE(network_reach::host, network_reach::device);
  CAPTURE(l.nodes, l.near, int(reach));
  products<f16, f16>(l, reach, {.max_m = 260, .max_n = 256, .k = 128}, {{16, 256}, {260, 256}, {64, 128}, {33, 64}});
}
