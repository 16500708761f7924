// GEMM + all-reduce over nodes in one kernel: C [M, N] = the sum over the ranks of all nodes of A * B, on every rank.
// The operator is in nodes_gemm_ar.hpp.
//
//   tiles            A, B --mainloop--> partial sums --> inbox of the place on this node that owns the rows
//                    --signal--> flag (tile, slice)
//   after them       wait for the ranks of this node --> add up in their order --> window, fp32 --put--> the same place
//                    of every other node, flag (tile)
//   after them       wait for rails --> add up in the order of nodes --> epilogue --> C, and the second inbox of every
//                    rank of this node --signal--> flag
//   after them       wait for the other places' rows of a tile --> C
//
// A place owns rows [p R, (p + 1) R), R = ceil(M / ranks of a node). All nodes add up the same sums of nodes in the
// same order, so only sums of a node cross the network: a place puts R N of them to each of its rails. On one node the
// second step does nothing, and this is gemm_ar's two-shot.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. Blocks take what is left to do
// in one order: a step waits for what the same or an earlier step of any rank has sent; and for room in the ring of
// puts.
// Order: as gemm_ar_kernel.hpp inside a node. A put publishes the rows that its block has stored.
// Reuse: near inboxes by the channel's argument. Every put is waited for in its launch. Only this launch reads A and B.
// Abandonment: as gemm_ar_kernel.hpp.
#pragma once
#include <fusewire/comm/reduced_rows.hpp>
#include <fusewire/ops/detail/nodes_gemm_rs_kernel.hpp>

namespace fusewire {

/// C = epilogue(the sum over the ranks of all nodes of A B), which the places that own its rows add up. Called by:
/// nodes_gemm_ar, on every rank. Partial: the type in which partial sums travel inside a node; they are added in fp32,
/// and travel so between nodes.
template <class T, mainloop Mainloop, class Epilogue, class Partial = T>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    nodes_gemm_ar_kernel(__grid_constant__ nodes_view const ch, __grid_constant__ sum_arguments<T> const g,
                         __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  constexpr int tile_n = Mainloop::traits.tile_n, width = per_16_bytes<Partial>;
  nodes_launch launch(ch);
  nodes_epoch const& e = launch.epoch();
  int const n = g.c.cols, n_tiles = ceil_div(n, tile_n), near = ch.world.size(), place = ch.world.rank();
  reduce_scatter_sink<Partial> const inbox{e.near(), ch.world, g.shards, g.per_rank, n, tile_n, n_tiles, x.stores()};
  reduced_rows<T, Partial> const results{e.near(), ch.world, inbox, g.c};
  local_shards source(g.shards, g.k, x.k_slice());
  auto const from = [&](int source) { return inbox.from(source, place); };
  // Conditions of code with a barrier are marked as equal in all lanes, as in gathered_tiles
  int const of_place = platform::uniform(inbox.m_tiles() * n_tiles), nodes = platform::uniform(ch.nodes),
            node = platform::uniform(ch.node), steps = nodes > 1 ? 2 : 1;

  auto const for_rails = [&](auto const& visit) {
    for (int k = 0; k < nodes; ++k)
      if (k != node) visit(k);
  };
  auto const sums = [&](std::byte* at, int node, int row, int column) {  // of a node: [node][tile of a row][R][tile_n]
    std::int64_t const rows = g.per_rank.value(), nth = std::int64_t(node) * n_tiles + column;
    return reinterpret_cast<float*>(at + results.bytes()) + (nth * rows + row) * tile_n;  // behind what is near
  };
  auto const put = [&](block b, int tile) {
    int const column = tile % n_tiles, n0 = column * tile_n;
    index_range const rows = inbox.wait(b, tile / n_tiles, column);
    auto const window = [&](int k, int row) { return sums(e.inbox<std::byte>(e.rail(k)), node, row, column); };
    detail::for_each_vector<width>(b, rows.begin, n0, rows.size(), tile_n, rows.end, n, [&](int r, int col) {
      float out[width];
      detail::reduce_vector<float, Partial>(out, near, from, r, col, n, false, identity{});
      for_rails([&](int k) {
        float* const to = window(k, r) + col - n0;
#pragma unroll
        for (int j = 0; j < width; ++j) to[j] = out[j];
      });
    });
    for_rails([&](int k) { e.signal(b, e.rail(k), tile, window(k, rows.begin), std::int64_t(rows.size()) * tile_n); });
  };
  auto const reduce = [&](block b, int tile) {
    int const column = tile % n_tiles, n0 = column * tile_n, above = inbox.rows(place).begin;
    index_range const rows = inbox.wait(b, tile / n_tiles, column);
    for_rails([&](int k) { e.wait(b, e.rail(k), tile); });
    bool const poisoned = e.near().control().should_fill_nan(), aligned = is_row_aligned<width * sizeof(T)>(g.c);
    auto const of_all = [&](float sum, int r, int col) { return epilogue(sum, above + r, col); };
    detail::for_each_vector<width>(b, rows.begin, n0, rows.size(), tile_n, rows.end, n, [&](int r, int col) {
      alignas(16) T out[width];
      auto const theirs = [&](int k, float (&x)[width]) {
        float const* const of_node = sums(e.inbox_from<std::byte>(e.rail(k)), k, r, column) + col - n0;
#pragma unroll
        for (int j = 0; j < width; ++j) x[j] = of_node[j];
      };
      detail::reduce_nodes<T, Partial>(out, e, from, theirs, r, col, n, poisoned, of_all);
      results.store(r, col, out, aligned);
    });
    results.stored(b, tile / n_tiles, column);
  };
  tail const rest{steps * of_place + g.shards.all_m_tiles() * n_tiles, [&](block b, int item) {
                    if (item >= steps * of_place)
                      results.take(b, (item - steps * of_place) / n_tiles, (item - steps * of_place) % n_tiles);
                    else if (item >= (steps - 1) * of_place) reduce(b, item % of_place);
                    else put(b, item);
                  }};
  Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{}, rest);
}

}  // namespace fusewire
