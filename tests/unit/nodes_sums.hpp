// GEMMs whose products are summed over nodes, against a reference on the host, with puts that are late and overtake
// each other. Small integers, as in ag_gemm_test.cpp, so == needs no tolerance.
#pragma once
#include "nodes_kernels.hpp"
#include "reference/products.hpp"

namespace support {

/// A call's shape.
struct nodes_problem {
  int m, n;
  layout b_layout = layout::column_major;
  unsigned seed = 1;
};

/// An epilogue that needs the row.
struct plus_row {
  __host__ __device__ float operator()(float x, int row, int column) const { return x + float((row + column) % 4); }
};

/// Calls Op on all ranks and compares. Each rank gets its rows of the sum, or all of it.
template <class Op, class T, class Epilogue, class Options>
void products_over_nodes(spread l, network_reach reach, Options const& o, std::vector<nodes_problem> const& all) {
  heap_options memory = small_heap();
  memory.bulk = 24_MiB, memory.signal = 4_MiB;
  auto const late = [&](int) { return loopback_options{.seed = unsigned(l.nodes + l.near), .delay = 20}; };
  on_nodes(
      l, {.reach = reach}, late,
      [&](rank_of_node& r) {
        nodes_channel ch(r.network, Op::channel_for(l.nodes, l.near, o));
        Op op(ch, o);
        int const k = o.k, me = r.all.rank();
        auto const a = r.heap.allocate<T>(std::size_t(o.max_m * k)), b = r.heap.allocate<T>(std::size_t(o.max_n * k)),
                   c = r.heap.allocate<T>(std::size_t(o.max_m * o.max_n));
        for (nodes_problem const& p : all) {
          std::vector<T> x(a.count, T(0.0f)), y(b.count, T(0.0f));
          for (int i = 0; i < p.m; ++i)
            for (int j = 0; j < k; ++j) x[std::size_t(i * k + j)] = T(a_of(p.seed, me, i, j));
          for (int j = 0; j < k; ++j)
            for (int col = 0; col < p.n; ++col)
              y[std::size_t(p.b_layout == layout::row_major ? j * p.n + col : col * k + j)] =
                  T(b_of(p.seed, me, j, col));
          r.heap.upload(a, x), r.heap.upload(b, y);
          r.near.fill(r.heap.here(c), 0xff, c.count * sizeof(T), "c", std::source_location::current());
          int rows = p.m, first = 0;
          if constexpr (requires { op.rows(p.m); }) rows = op.rows(p.m), first = ceil_div(p.m, r.all.size()) * me;
          op(r.stream,
             {.a = {r.heap.here(a), p.m, k, k},
              .b = {r.heap.here(b), k, p.n, p.b_layout == layout::row_major ? p.n : k},
              .c = {r.heap.here(c), rows, p.n, p.n},
              .m = p.m,
              .b_layout = p.b_layout},
             Epilogue{});
          r.near.check(r.stream);
          auto const found = r.heap.download(c);
          for (int i = 0; i < rows; ++i)
            for (int j = 0; j < p.n; ++j) {
              float sum = 0;
              for (int s = 0; s < r.all.size(); ++s) sum += product_of(p.seed, s, k, first + i, j);
              if constexpr (!std::is_same_v<Epilogue, identity>) sum = Epilogue{}(sum, i, j);
              float const wanted = float(T(sum)), f = float(found[std::size_t(i * p.n + j)]);
              if (!r.found.expect(f == wanted, "m ", p.m, " n ", p.n, ": c(", i, ", ", j, ") = ", f, ", wanted ",
                                  wanted))
                return;
            }
        }
      },
      memory);
}

}  // namespace support
