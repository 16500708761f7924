// All-gather + GEMM over nodes in one kernel. The operator is in nodes_ag_gemm.hpp; mainloops, sources and sinks are
// those of ag_gemm_kernel.hpp.
//
//   communication   own rows of a M tile --window, put--> the same place of every other node    flag (M tile)
//                   own chunks           --copy--> ranks of this node                   flag (M tile, k chunk)
//                   rows of other nodes' rails: wait for them --copy--> ranks of this node, and this one where the
//                   network does not reach its inbox                               flag (node, M tile, k chunk)
//   tiles           as ag_gemm's: from A, or wait for the flag that the owner's place on this node raises --> inbox
//
// Each row crosses the network once to each other node. What tiles wait for comes from ranks of this node only.
//
// Deadlock: as ag_gemm_kernel.hpp, but threads that communicate wait, too: for room in the ring of puts, and then for
// rails. A rail's rows are put before its threads wait for anything but room in their ring. So they come.
// Order: a copy of a rail's rows comes after the wait for their flag, in the same group. Where they arrive in place, a
// group that has waited for them raises the flag for this rank's own tiles.
// Reuse: inboxes by the channel's argument. Every put is waited for in its launch, by every group that passes it on.
// Only this launch reads A.
// Abandonment: as ag_gemm_kernel.hpp.
#pragma once
#include <fusewire/nodes/nodes_launch.hpp>
#include <fusewire/ops/detail/ag_gemm_kernel.hpp>

namespace fusewire {

/// A launch's epoch as a source of gathered tiles sees it: ranks are those of all nodes, and the flags of a rank of
/// another node are raised by the rank of this node with its place.
class gathered_nodes {
 public:
  /// flags: of a source's chunks. The number of `e` may become known later.
  __device__ gathered_nodes(nodes_epoch const& e, int flags) : e_(e), flags_(flags) {}

  /// As channel_epoch::number().
  __device__ epoch_t number() const { return e_.number(); }
  /// The flag of chunk i of `source`, on this rank.
  __device__ flag* from(int source, int i) const { return e_.near().from(place(source), number_of(source, i)); }
  /// Waits for it. As fusewire::wait.
  template <group Group>
  __device__ void wait(Group g, int source, int i) const {
    e_.near().wait(g, place(source), number_of(source, i));
  }
  /// Waits for flag i of each of the sources [first, last].
  template <group Group>
  __device__ __forceinline__ void wait(Group g, int first, int last, int i) const {
    for (int s = first; s <= last; ++s) wait(g, s, i);
  }
  /// As channel_epoch::arrived().
  __device__ bool arrived(int source, int i) const { return e_.near().arrived(place(source), number_of(source, i)); }

  /// The rank of this node that raises a source's flags, and which of its flags.
  __device__ int place(int source) const { return source % e_.near_ranks(); }
  /// Likewise.
  __device__ int number_of(int source, int i) const { return e_.node_of(source) * flags_ + i; }

 private:
  nodes_epoch const& e_;
  int flags_;
};

/// Arguments of nodes_ag_gemm_kernel besides its operands.
template <class T>
struct nodes_ag_gemm_arguments {
  matrix<T const> a;       // this rank's shard
  gather_map map;          // of the ranks of all nodes
  bool local_shard_first;  // ag_gemm_options
  matrix<T> c;             // [M, N]
  /// Tiles of C, in the order of this rank.
  raster_order tiles;
};

namespace detail {

/// Moves chunks, within a node and between nodes.
template <class T>
struct nodes_pusher {
  nodes_epoch const& e;
  gathered_nodes const& flags;
  nodes_ag_gemm_arguments<T> const& g;
  bool in_place;  // what the network brings lies in this rank's inbox

  /// Moves this worker's share. Called by: every thread of the group.
  template <group Group>
  __device__ void push(Group group, int worker, int workers) const {
    gather_map const& map = g.map;
    int const near = e.near_ranks(), others = e.nodes() - 1, tiles = map.m_tiles_of(e.rank());
    for (int const i : round_robin(tiles * others, worker, workers))
      put(group, e.rail(node_behind(i % others)), i / others);
    // A turn is a peer, from the next rank on; the last is this rank
    for (int const i : round_robin(tiles * map.k_chunks() * near, worker, workers)) {
      gather_chunk const c = map.chunk(e.rank(), i / near);
      pass(group, e.rank(), c, i % near + 1,
           g.a.submatrix(c.row - map.first_row(e.rank()), c.col - map.first_col(e.rank()), c.rows, c.cols));
    }
    for (int n = 0; n < others; ++n) {
      int const rail = e.rail(node_behind(n));
      for (int const i : round_robin(map.m_tiles_of(rail) * map.k_chunks() * near, worker, workers)) {
        gather_chunk const c = map.chunk(rail, i / near);
        e.wait(group, rail, c.m_tile);
        matrix<T const> const all = shard_in(e.inbox_from<T const>(rail), map, rail);
        pass(group, rail, c, i % near + 1,
             all.submatrix(c.row - map.first_row(rail), c.col - map.first_col(rail), c.rows, c.cols));
      }
    }
  }

 private:
  /// The n-th node after this one, from 0 on.
  __device__ int node_behind(int n) const { return (e.node() + 1 + n) % e.nodes(); }
  /// Puts this rank's rows of a M tile, the row-th of its shard, all columns of it.
  template <group Group>
  __device__ void put(Group group, int rail, int row) const {
    gather_chunk const c = g.map.chunk(e.rank(), row, 0);
    int const first = c.row - g.map.first_row(e.rank()), cols = g.map.cols();
    matrix<T> const to = shard_in(e.inbox<T>(rail), g.map, e.rank()).submatrix(first, 0, c.rows, cols);
    copy_aligned(group, g.a.submatrix(first, 0, c.rows, cols), to);
    e.signal(group, rail, c.m_tile, static_cast<T const*>(to.data), std::int64_t(c.rows) * cols);
  }
  /// Copies a chunk of `owner`, which lies in `from`, to the rank of this node `ahead` places after this one, and
  /// raises its flag there.
  template <group Group>
  __device__ void pass(Group group, int owner, gather_chunk const& c, int ahead, matrix<T const> const& from) const {
    int const near = e.near_ranks(), peer = (e.rank() - e.first_near() + ahead) % near, place = flags.place(owner);
    if (ahead == near) {
      // This rank's own rows are read from A, but for those in M tiles that it shares
      if (owner == e.rank() && (g.map.by == gather::k || is_local(g.map, c.m_tile, owner))) return;
      if (owner != e.rank() && in_place) return e.near().signal_here(group, place, flags.number_of(owner, c.flag));
    }
    copy_aligned(group, from,
                 shard_in(e.near().template inbox<T>(peer), g.map, owner)
                     .submatrix(c.row - g.map.first_row(owner), c.col - g.map.first_col(owner), c.rows, c.cols));
    e.near().signal(group, peer, flags.number_of(owner, c.flag));
  }
};

}  // namespace detail

/// C = epilogue(gather(A) B) on this rank. Called by: nodes_ag_gemm, on every rank, with at most as many blocks as can
/// be resident.
template <class T, mainloop Mainloop, class Epilogue>
__global__ void __launch_bounds__(Mainloop::traits.threads, Mainloop::traits.min_blocks_per_cu)
    nodes_ag_gemm_kernel(__grid_constant__ nodes_view const ch, __grid_constant__ nodes_ag_gemm_arguments<T> const g,
                         __grid_constant__ typename Mainloop::template operands<gathered_buffers> const x,
                         Epilogue epilogue) {
  extern __shared__ bytes16 shared[];
  nodes_launch launch(ch);
  nodes_epoch const& e = launch.epoch();
  gathered_nodes const flags(e, g.map.flags_per_source());
  gathered_source<Mainloop, gathered_nodes> source(flags, e.rank(), g.map, g.local_shard_first, x.k_slice());
  checked_local_sink<T> const sink{g.c, e.near(), Mainloop::traits.tile_m,
                                   Mainloop::traits.tile_n / columns_of_value<Epilogue>};
  auto const gather = [&](auto group, int worker, int workers, auto const& begin) {
    begin();
    bool const in_place = ch.far_inbox == ch.template slot<std::byte>(0);
    detail::nodes_pusher<T>{e, flags, g, in_place}.push(group, worker, workers);
  };
  Mainloop::run(shared, launch, x, g.tiles, source, sink, gather, epilogue, no_tail{});
}

}  // namespace fusewire
