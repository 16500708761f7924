// GEMM + reduce-scatter over nodes in one kernel: C on a rank = its rows of the sum over the ranks of all nodes of A *
// B. The operator is in nodes_gemm_rs.hpp.
//
//   tiles        A, B --mainloop--> partial sums --> inbox of the owner's place on this node
//                --signal--> flag (node of the owner, tile, slice)
//   after them   of other nodes' rows: wait for the ranks of this node --> add up in their order --> window, fp32
//                --put--> the owner, flag (tile)
//   after them   of own rows: wait for the ranks of this node, and for rails --> add up in the order of nodes -->
//                epilogue --> C
//
// M tiles of all ranks alternate, so that tiles for other nodes are among the first.
//
// Deadlock: all blocks are resident (launch() checks). Multiplications wait for nothing. Blocks take what is left to do
// in one order, and wait for multiplications, which are done or running then; for room in the ring of puts; and, last,
// for rails, whose blocks put before they wait for rails.
// Order: as gemm_rs_kernel.hpp inside a node. A put publishes the tile that its block has stored.
// Reuse: near inboxes by the channel's argument. Every put is waited for in its launch. Only this launch reads A and B.
// Abandonment: as gemm_rs_kernel.hpp.
#pragma once
#include <fusewire/comm/reduce_scatter_sink.hpp>
#include <fusewire/gemm/epilogue.hpp>
#include <fusewire/gemm/mainloop.hpp>
#include <fusewire/nodes/nodes_launch.hpp>

namespace fusewire {

/// A tile sink: the inbox of the rank of this node with the owner's place. An inbox holds [node of the owner][source of
/// this node][rows][N] partial sums and, behind them, sums of rails by tile: [node][M tile][tile of a
/// row][tile_m][tile_n].
template <class Partial>
struct nodes_reduce_scatter_sink {
  static constexpr int max_tile = 256;  // rows and columns of a tile, at most

  nodes_epoch const& e;      // of this launch
  row_shards const& shards;  // of the ranks of all nodes
  int n, tile_n, n_tiles;    // columns of C; of a tile; tiles of a M tile
  int stores;                // blocks that each store a slice of a tile

  /// Bytes of a channel's slot in front of the sums of rails.
  static __host__ __device__ std::uint64_t near_bytes(int nodes, int near, int per_rank, int n) {
    std::uint64_t const bytes = std::uint64_t(nodes) * std::uint64_t(near) * std::uint64_t(per_rank) *
                                std::uint64_t(inbox_pitch<Partial>(n)) * sizeof(Partial);
    return (bytes + 255) / 256 * 256;
  }

  /// The place of `owner` in its node.
  __device__ int place(int owner) const { return owner % e.near_ranks(); }
  /// The partial sums of rows of `owner` in its place's inbox, from `source` of this node.
  __device__ matrix<Partial> from(int source, int owner) const {
    std::int64_t const pitch = inbox_pitch<Partial>(n), nth = std::int64_t(e.node_of(owner)) * e.near_ranks() + source;
    return {e.near().template inbox<Partial>(place(owner)) + nth * shards.per_rank * pitch, shards.rows(owner), n,
            pitch};
  }
  __device__ matrix<Partial> at(tile_coord t) const {
    // So that the owner's rows have the numbers that they have in the grid of tiles
    int const above = t.m * shards.tile_m - shards.row_in_shard(t.m);
    matrix<Partial> const c = from(e.rank() - e.first_near(), shards.owner(t.m));
    return {c.data - above * c.ld, above + c.rows, n, c.ld};
  }
  /// The number of a tile among those of its owner.
  __device__ int tile(int nth, int column) const { return nth * n_tiles + column; }
  /// The first of the `stores` flags, of each source, of a tile.
  __device__ int flag(int owner, int tile) const {
    return (e.node_of(owner) * shards.m_tiles * n_tiles + tile) * stores;
  }
  template <group Group>
  __device__ __forceinline__ void stored(Group g, tile_coord t, stored_slice s) const {
    int const owner = shards.owner(t.m);
    e.near().signal(g, place(owner), flag(owner, tile(shards.nth_of_owner(t.m), t.n)) + s.slice);
  }
  /// Waits for the partial sums of all ranks of this node of a tile. Called by: every thread of the group.
  template <group Group>
  __device__ void wait(Group g, int owner, int tile) const {
    for (int s = 0; s < stores; ++s) e.near().wait(g, 0, e.near_ranks() - 1, flag(owner, tile) + s);
  }
  /// A node's sums of a tile, in an inbox of far ranks or a window onto one: [tile_m][tile_n].
  __device__ float* sums(std::byte* inbox, int node, int tile) const {
    std::int64_t const nth = std::int64_t(node) * shards.m_tiles * n_tiles + tile;
    return reinterpret_cast<float*>(inbox + near_bytes(e.nodes(), e.near_ranks(), shards.per_rank, n)) +
           nth * shards.tile_m * tile_n;
  }
};

namespace detail {

/// A vector of epilogue(the fp32 sum over nodes, in their order), or of NaN if `poisoned`, from (r, col) on. from(s):
/// the partial sums of source s of this node; theirs(k, x): x = the vector of node k's sums.
template <class T, class Partial, class From, class Theirs, class Epilogue>
__device__ __forceinline__ void reduce_nodes(T (&out)[per_16_bytes<Partial>], nodes_epoch const& e, From const& from,
                                             Theirs const& theirs, int r, int col, int cols, bool poisoned,
                                             Epilogue const& epilogue) {
  constexpr int width = per_16_bytes<Partial>;
  float sum[width] = {}, own[width];
  reduce_vector<float, Partial>(own, e.near_ranks(), from, r, col, cols, false, identity{});
  for (int k = 0; k < e.nodes(); ++k) {
    float more[width];
    if (k != e.node()) theirs(k, more);
#pragma unroll
    for (int j = 0; j < width; ++j) sum[j] += k == e.node() ? own[j] : more[j];
  }
#pragma unroll
  for (int j = 0; j < width; ++j)
    out[j] = col + j < cols ? T(poisoned ? __builtin_nanf("") : epilogue(sum[j], r, col + j)) : T(0.0f);
}

}  // namespace detail

/// C = epilogue(the sum over the ranks of all nodes of A B), for this rank's rows. Called by: nodes_gemm_rs, on every
/// rank. Partial: the type in which partial sums travel inside a node; they are added in fp32, and travel so between
/// nodes.
template <class T, mainloop Mainloop, class Epilogue, class Partial = T>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    nodes_gemm_rs_kernel(__grid_constant__ nodes_view const ch, __grid_constant__ sum_arguments<T> const g,
                         __grid_constant__ typename Mainloop::template operands<1> const x, Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  using sink = nodes_reduce_scatter_sink<Partial>;
  constexpr int tile_m = Mainloop::traits.tile_m, tile_n = Mainloop::traits.tile_n, width = per_16_bytes<Partial>;
  static_assert(tile_m <= sink::max_tile && tile_n <= sink::max_tile);
  nodes_launch launch(ch);
  nodes_epoch const& e = launch.epoch();
  int const n = g.c.cols, n_tiles = ceil_div(n, tile_n), near = ch.world.size(), nodes = ch.nodes,
            rank = ch.node * near + ch.world.rank(), of_rail = g.shards.m_tiles * n_tiles;
  sink const inbox{e, g.shards, n, tile_n, n_tiles, x.stores()};
  local_shards source(g.shards, g.k, x.k_slice());
  bool const aligned = is_row_aligned<width * sizeof(T)>(g.c);

  auto const sum_for_rail = [&](block b, int owner, int nth, int column) {
    int const tile = inbox.tile(nth, column), row = nth * tile_m, rows = g.shards.rows(owner);
    inbox.wait(b, owner, tile);
    float* const to = inbox.sums(e.inbox<std::byte>(owner), e.node(), tile);
    detail::for_each_vector<width>(b, row, column * tile_n, tile_m, tile_n, rows, n, [&](int r, int col) {
      float out[width];
      detail::reduce_vector<float, Partial>(
          out, near, [&](int s) { return inbox.from(s, owner); }, r, col, n, false, identity{});
#pragma unroll
      for (int j = 0; j < width; ++j) to[(r - row) * tile_n + col - column * tile_n + j] = out[j];
    });
    e.signal(b, owner, tile, to, std::int64_t(tile_m) * tile_n);
  };
  auto const sum_own = [&](block b, int nth, int column) {
    int const tile = inbox.tile(nth, column), row = nth * tile_m;
    inbox.wait(b, rank, tile);
    for (int k = 0; k < nodes; ++k)
      if (k != e.node()) e.wait(b, e.rail(k), tile);
    bool const poisoned = e.near().control().should_fill_nan();
    detail::for_each_vector<width>(b, row, column * tile_n, tile_m, tile_n, g.c.rows, n, [&](int r, int col) {
      alignas(16) T out[width];
      auto const theirs = [&](int k, float (&x)[width]) {
        float const* const from = inbox.sums(e.inbox_from<std::byte>(e.rail(k)), k, tile);
#pragma unroll
        for (int j = 0; j < width; ++j) x[j] = from[(r - row) * tile_n + col - column * tile_n + j];
      };
      detail::reduce_nodes<T, Partial>(
          out, e, [&](int s) { return inbox.from(s, rank); }, theirs, r, col, n, poisoned, epilogue);
      detail::store_vector(g.c, r, col, out, aligned);
    });
  };
  tail const reduce{(nodes - 1) * of_rail + g.shards.m_tiles_of(rank) * n_tiles, [&](block b, int item) {
                      int const behind = item / of_rail, nth = item % of_rail / n_tiles, column = item % n_tiles;
                      if (behind == nodes - 1) return sum_own(b, nth, column);
                      int const owner = e.rail((e.node() + 1 + behind) % nodes);
                      if (nth < g.shards.m_tiles_of(owner)) sum_for_rail(b, owner, nth, column);
                    }};
  Mainloop::run(shared, launch, x, g.tiles, source, inbox, no_comm{}, identity{}, reduce);
}

}  // namespace fusewire
