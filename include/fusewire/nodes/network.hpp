// What connects a rank to those of other nodes: an engine, a ring in which kernels ask for puts, and the host thread
// that reads it. Channels of several nodes are made on it.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include <fusewire/core/host_code.hpp>
#include <fusewire/memory/heap.hpp>
#include <fusewire/nodes/engine.hpp>
#include <fusewire/nodes/nodes_view.hpp>

namespace fusewire {

/// Where far ranks put, and from where they take.
enum class network_reach {
  device,  // the network reaches memory of the GPU
  host     // it does not: windows, inboxes and flags for far ranks are in pinned memory of the host
};

/// Options of a network; the same on every rank.
struct network_options {
  network_reach reach = network_reach::host;  // device is faster where the engine can
  far_peers peers = far_peers::rails;         // far ranks that a rank puts to
  int ring = 64;                              // puts that kernels may ask for before one has left
  /// How long a destructor, and reset(), wait for puts to arrive
  std::chrono::nanoseconds drain_limit = std::chrono::seconds(5);
};

namespace detail {
struct network_state;
}

/// A rank's network. Ranks of a node follow each other, and all nodes have equally many. A world of one node needs no
/// engine, and its kernels do without a ring.
/// It ends after the launches of its channels; then far ranks may still use theirs. Its destructor lets this rank's
/// puts arrive, for at most drain_limit. Memory of its channels is given up with the last of them and the network.
class network {
 public:
  /// Collective in `all`, the ranks of all nodes. `h` is a heap of this node's, so of
  /// all.split(all.node_of(all.rank())). `e`: not connected yet; null is allowed on one node. heap::reset() of h is
  /// from now on collective in `all`. Fails: bad_argument where nodes have different numbers of ranks, or these do not
  /// follow each other; runtime_failure of the engine; rank_mismatch.
  network(world& all, heap& h, std::unique_ptr<engine> e, network_options const& o = {},
          std::source_location where = std::source_location::current());

  /// The ranks of all nodes.
  world& all() const;
  /// The heap of this node's ranks.
  fusewire::heap& heap() const;
  /// The options that it was made with.
  network_options const& options() const;
  /// Puts that this rank's engine has taken so far.
  std::uint64_t puts() const;
  /// What its channels share.
  std::shared_ptr<detail::network_state> const& state() const { return state_; }

 private:
  std::shared_ptr<detail::network_state> state_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/nodes/network.ipp>
#endif
