// A channel whose ranks are on several nodes, inside a kernel. It has channel_epoch's calls for ranks of all nodes:
// stores and flags for those of this node, windows and puts for the others.
//
//   launch e on rank r                                         launch e on far rank p, slot e & 1
//   begin --- header, when all earlier puts have left ------------> end waits for the headers of e
//   window of p --- signal: a descriptor --- thread, engine ------> inbox, flag -----> wait(r, i)
//
// `far` is a rank of another node, `near` one of this node. A window is memory of r's own: what is stored into
// inbox(p) for a far p. signal() has the engine copy it to the same place of p's inbox.
//
// Why two slots need no barrier between nodes. Let x be a put of launch e from r to p, whether or not p waits for it.
//   1. r sends p its header of e+1 only after x has left: block 0 waits until everything that was put before has.
//   2. So p's end of launch e+1, which waits for that header, comes after x has arrived (promise 2 of an engine).
//   3. Whoever writes into p's slot e & 1 in launch e+2, near p or far from it, has seen p's header of e+1. p sent it
//      after its launch e had read the slot: as in channel_view.hpp. If p waited for x in launch e, x had come by then.
//   4. If p did not, x can be under way in launch e+2. r's own puts of e+2 arrive behind it (1, and promise 2). Another
//      rank's would not. So a kernel waits for every put in its launch, or leaves the place of one for which it does
//      not wait to the same sender in the next launch of that slot.
//   5. r's own window of slot e & 1 is free in launch e+2: x had left before r's header of e+1.
// Ranks that neither put to each other nor share a node exchange no headers: rails are enough for algorithms that
// cross nodes between equal places only.
// Why a flag needs no reset: as for a channel. A flag of r at p is raised by r alone, so promise 2 covers it, too.
// Why it does not deadlock: headers wait for the thread, which waits for no kernel; and put_ring.hpp. For the rest of a
// launch its kernel must have its own argument.
#pragma once
#include <fusewire/device/channel_view.hpp>
#include <fusewire/nodes/put_ring.hpp>

namespace fusewire {

/// Which far ranks a rank puts to, and exchanges headers with.
enum class far_peers : std::uint8_t {
  rails,  // those with its place on other nodes
  all     // all of them
};

class nodes_epoch;

/// Passed to kernels by value; made by nodes_channel::view(). Its base is the channel of the ranks of this node.
struct nodes_view : channel_view {
  int node = 0, nodes = 1;                // this rank's, and how many there are
  far_peers peers = far_peers::rails;     // network_options::peers
  put_ring_view ring;                     // network_options::ring descriptors
  std::byte* windows = nullptr;           // [far ranks that it reaches][2 slots][slot_bytes]
  std::byte* far_inbox = nullptr;         // [2 slots][slot_bytes]: where far ranks put; may be the near inbox
  flag* far_flags = nullptr;              // [1 + flags_per_source][2 slots][sources]: headers, then data
  flag* headers = nullptr;                // [2 slots]: what a launch tells far ranks, in its note
  int inbox_region = 0, flag_region = 0;  // numbers of far_inbox and far_flags for the engine

  /// As channel_view::begin(), for ranks of all nodes.
  __device__ __forceinline__ nodes_epoch begin(block b) const;
};

/// One launch's use of a channel of several nodes. Ranks are those of all nodes; those of a node follow each other.
/// Requires, for every call: a rank that exists, which reaches() says that it can reach; otherwise as channel_epoch.
class nodes_epoch {
 public:
  /// A launch's; begin() makes it.
  __device__ nodes_epoch(nodes_view const& v, channel_epoch const& e) : v_(&v), e_(e) {}

  /// As channel_epoch::number().
  __device__ epoch_t number() const { return e_.number(); }
  /// The same launch among the ranks of this node, which are numbered from 0 on there.
  __device__ channel_epoch const& near() const { return e_; }

  /// This rank, and how many there are, of all nodes.
  __device__ int rank() const { return first_near() + v_->world.rank(); }
  /// Ranks of all nodes.
  __device__ int size() const { return v_->nodes * near_ranks(); }
  /// This rank's node.
  __device__ int node() const { return v_->node; }
  /// How many nodes there are.
  __device__ int nodes() const { return v_->nodes; }
  /// Ranks of each node.
  __device__ int near_ranks() const { return v_->world.size(); }
  /// The lowest rank of this node.
  __device__ int first_near() const { return v_->node * near_ranks(); }
  /// The node of a rank.
  __device__ int node_of(int rank) const { return rank / near_ranks(); }
  /// Whether the rank is on this node.
  __device__ bool is_near(int rank) const { return unsigned(rank - first_near()) < unsigned(near_ranks()); }
  /// The rank with this rank's place on another node: the far rank to which two-level algorithms put.
  __device__ int rail(int node) const { return node * near_ranks() + v_->world.rank(); }
  /// The rank of this node that has the place of `rank` on its own.
  __device__ int near_of(int rank) const { return first_near() + rank % near_ranks(); }
  /// Whether this rank can signal `rank`, and wait for it.
  __device__ __forceinline__ bool reaches(int rank) const {
    return is_near(rank) || v_->peers == far_peers::all || rank == rail(node_of(rank));
  }

  /// Where to store what `peer` shall find at the same place of its inbox_from(this rank).
  template <class T>
  __device__ T* inbox(int peer) const {
    return is_near(peer) ? e_.inbox<T>(peer - first_near()) : reinterpret_cast<T*>(window(peer));
  }
  /// Where this rank finds what `source` stored into inbox(this rank).
  template <class T>
  __device__ T* inbox_from(int source) const {
    return is_near(source) ? e_.inbox<T>() : reinterpret_cast<T*>(v_->far_inbox + slot() * v_->slot_bytes);
  }

  /// Publishes [to, to + count), which lies in inbox(peer), and raises flag i of `peer`. A near peer finds all that the
  /// group stored, as after channel_epoch::signal(); a far one these elements.
  template <group Group, class T>
  __device__ __forceinline__ void signal(Group g, int peer, int i, T const* to, std::int64_t count) const {
    if (is_near(peer)) return e_.signal(g, peer - first_near(), i);
    auto const* const from = reinterpret_cast<std::byte const*>(to);
    v_->ring.put(g, v_->world,
                 {.where = put_descriptor::where_of(peer, v_->inbox_region, v_->flag_region),
                  .from = reinterpret_cast<std::uint64_t>(from),
                  .to = slot() * v_->slot_bytes + std::uint64_t(from - window(peer)),
                  .bytes = std::uint64_t(count) * sizeof(T),
                  .flag = flag_offset(i),
                  .value = number()});
  }
  /// Raises flag i of `peer`. Order: as the other one for a near peer; a far peer finds no bytes.
  template <group Group>
  __device__ __forceinline__ void signal(Group g, int peer, int i) const {
    if (is_near(peer)) return e_.signal(g, peer - first_near(), i);
    v_->ring.put(g, v_->world,
                 {.where = put_descriptor::where_of(peer, v_->inbox_region, v_->flag_region),
                  .flag = flag_offset(i),
                  .value = number()});
  }
  /// Copies `count` elements to element `at` of the peer's inbox_from(this rank), and raises flag i there. `from` may
  /// be written again when the call returns.
  template <group Group, class T>
  __device__ __forceinline__ void send(Group g, int peer, int i, T const* from, std::int64_t at,
                                       std::int64_t count) const {
    T* const to = inbox<T>(peer) + at;
    copy(g, from, to, count);
    signal(g, peer, i, to, count);
  }

  /// Waits for flag i of `source`. As fusewire::wait.
  template <group Group>
  __device__ __forceinline__ void wait(Group g, int source, int i) const {
    if (is_near(source)) return e_.wait(g, source - first_near(), i);
    fusewire::wait(g, v_->world, far_flag(1 + i, source), number(), first_of_all_nodes + source);
  }
  /// As wait(); returns whether the flag came. For `word` see fusewire::try_wait.
  template <group Group>
  [[nodiscard]] __device__ __forceinline__ bool try_wait(Group g, int source, int i, int* word) const {
    if (is_near(source)) return e_.try_wait(g, source - first_near(), i, word);
    return fusewire::try_wait(g, v_->world, far_flag(1 + i, source), number(), word, first_of_all_nodes + source);
  }
  /// Whether flag i of `source` is up now. Order: as wait() if it is.
  __device__ __forceinline__ bool arrived(int source, int i) const {
    if (is_near(source)) return e_.arrived(source - first_near(), i);
    return platform::atomic_load<order::acquire, scope::system>(&far_flag(1 + i, source)->value) == number();
  }

  /// Ends the launch: block 0 waits for the headers of near ranks and of far peers. Called by: every thread of every
  /// block, last of all.
  __device__ __forceinline__ void end(block b) const {
    if (b.index() == 0) collect_far_credit(b);
    e_.end(b);
  }
  /// As channel_control::collect_credit(), of near ranks and far peers: for kernels that end in steps.
  template <group Group>
  __device__ __forceinline__ void collect_credit(Group g) const {
    collect_far_credit(g);
    e_.control().collect_credit(g);
  }

 private:
  friend struct nodes_view;

  __device__ __forceinline__ std::uint64_t slot() const { return detail::slot_of(number()); }
  /// Far ranks that this one reaches, and the k-th of them.
  __device__ __forceinline__ int far_count() const {
    return (v_->nodes - 1) * (v_->peers == far_peers::all ? near_ranks() : 1);
  }
  __device__ __forceinline__ int far_rank(int k) const {
    if (v_->peers == far_peers::all) return k < first_near() ? k : k + near_ranks();
    return rail(k < v_->node ? k : k + 1);
  }
  /// The inverse of far_rank().
  __device__ __forceinline__ int far_index(int rank) const {
    if (v_->peers == far_peers::all) return rank < first_near() ? rank : rank - near_ranks();
    int const n = node_of(rank);
    return n < v_->node ? n : n - 1;
  }
  __device__ __forceinline__ std::byte* window(int peer) const {
    return v_->windows + (std::uint64_t(far_index(peer)) * 2 + slot()) * v_->slot_bytes;
  }

  /// Flags of a row: one of each source, in the order of ranks, or of nodes where there are rails only.
  __device__ __forceinline__ int sources() const { return v_->peers == far_peers::all ? size() : v_->nodes; }
  __device__ __forceinline__ std::uint64_t flag_number(int row, int source) const {
    return (std::uint64_t(row) * 2 + slot()) * std::uint64_t(sources()) +
           std::uint64_t(v_->peers == far_peers::all ? source : node_of(source));
  }
  __device__ __forceinline__ flag* far_flag(int row, int source) const {
    return v_->far_flags + flag_number(row, source);
  }
  /// Where data flag i of this rank is on any far peer, in bytes.
  __device__ __forceinline__ std::uint64_t flag_offset(int i) const {
    return flag_number(1 + i, rank()) * sizeof(flag);
  }

  __device__ __forceinline__ std::uint64_t word_to_compare(int i) const {
    if (i < launch_words) return v_->header.what[i];
    return v_->header.equal_grids * std::uint64_t(platform::grid_blocks());
  }
  /// Tells far peers what was launched, when all earlier puts have left. Called by: one wave.
  __device__ __forceinline__ void send_far_headers() const {
    if (!wave{}.leader()) return;
    flag* const mine = v_->headers + slot();  // whose puts of launch e-2 have left: launch e-1 waited for that
    for (int i = 0; i < header_words; ++i) store(&mine->note[i], word_to_compare(i));
    if (!v_->ring.wait_left(v_->world)) return;
    std::uint64_t const at = flag_number(0, rank()) * sizeof(flag);
    for (int k = 0; k < far_count(); ++k)
      v_->ring.put(thread{}, v_->world,
                   {.where = put_descriptor::where_of(far_rank(k), v_->flag_region, v_->flag_region),
                    .from = reinterpret_cast<std::uint64_t>(mine->note),
                    .to = at + offsetof(flag, note),
                    .bytes = header_words * sizeof mine->note[0],
                    .flag = at,
                    .value = number()});
  }
  /// As channel_control::collect_credit(), of far peers.
  template <group Group>
  __device__ __forceinline__ void collect_far_credit(Group g) const {
    wait_all(
        g, v_->world, far_count(), [&](int k) { return far_flag(0, far_rank(k)); }, number(),
        [&](int k) { return first_of_all_nodes + far_rank(k); });
    for (int k = g.rank(); k < far_count(); k += g.size()) {
      flag const* const theirs = far_flag(0, far_rank(k));
      if (load(&theirs->value) != number()) continue;  // abandoned
      bool equal = true;
      for (int i = 0; i < header_words; ++i) equal &= load(&theirs->note[i]) == word_to_compare(i);
      if (equal) continue;
      detail::note_disagreement(v_->world, first_of_all_nodes + far_rank(k), theirs, v_->headers + slot());
      detail::abandon(v_->world, false);
    }
  }

  nodes_view const* v_;
  channel_epoch e_;
};

__device__ inline nodes_epoch nodes_view::begin(block b) const {
  nodes_epoch const e(*this, channel_view::begin(b));
  if (nodes > 1 && b.index() == 0 && wave{}.index() == (b.size() - 1) / wave::width) e.send_far_headers();
  return e;
}

}  // namespace fusewire
