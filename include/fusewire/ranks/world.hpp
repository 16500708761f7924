// A rank's place among its peers, on the host.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include <fusewire/core/host_code.hpp>
#include <fusewire/core/world_view.hpp>
#include <fusewire/ranks/bootstrap.hpp>
#include <fusewire/ranks/place.hpp>
#include <fusewire/ranks/registry.hpp>

namespace fusewire {

/// How much of a kernel fits concurrently on a compute unit (or, with clusters of several blocks, on a device), and the
/// dynamic shared memory to launch it with.
struct residency {
  int at_once;       // blocks of a unit, or clusters of a device
  int shared_bytes;  // per block
};
/// Kernel, threads, shared bytes requested, blocks of a cluster
using kernel_key = std::tuple<void const*, int, int, int>;

class launch_order;
namespace detail {
class ledger;
struct world_state;
struct end_of_world {
  void operator()(world_state* s) const;
};
}  // namespace detail

/// One rank. One host thread owns it. It may end before what is made from it. Ranks are numbered 0 to size - 1 and need
/// not equal device numbers. Several ranks may share a device (loopback); each of them then gets its part of the
/// compute units.
class world {
 public:
  /// Collective. `device` becomes the calling thread's current device.
  /// Fails: runtime_failure on every rank, where ranks of different processes share a device and its driver would run
  /// them time-sliced, or where it is unknown whether ranks share a partition of a GPU; runtime_failure where the
  /// environment hides compute units and HIP does not say which.
  world(std::shared_ptr<bootstrap> b, int device, std::source_location where = std::source_location::current());
  world(world&&) = default;
  /// Not collective. Waits for this rank's kernels if it has memory to give back, and for no other rank. The memory
  /// stays until all ranks of the world have ended theirs.
  ~world() = default;

  /// This rank's number, from 0 on.
  int rank() const { return exchange_->rank(); }
  /// Ranks of this world.
  int size() const { return exchange_->size(); }
  /// This rank's device, as this process numbers devices.
  int device() const;
  /// Rank r's device as this process numbers devices; -1 when it does not see that device.
  int device_of(int r) const;
  /// Where rank r runs. Fails: bad_argument.
  fusewire::place const& place_of(int r) const;
  /// Whether ranks a and b share pointers.
  bool in_one_process(int a, int b) const { return same_process(place_of(a), place_of(b)); }
  /// Every rank with its device, in words.
  std::string ranks_in_words() const;
  /// A stream of this rank's own, which waits for no other stream. Ranks that share a device must not use the null
  /// stream: they would share it, and the first kernel on it would wait for a second one that cannot start.
  hipStream_t stream() const;
  /// Compute units of this rank's device that blocks can fill.
  int compute_units() const;
  /// XCDs of the device; they take the blocks of a launch round robin.
  int xcd_count() const;
  /// How many of them a mask of the stream takes away.
  int masked_units(hipStream_t stream, std::source_location where = std::source_location::current()) const;
  /// The number of compute units of its device that this rank may use, when `reserved` of them are left to another
  /// kernel. All ranks get the number of those on the device with the most ranks, so that all plan alike. The XCDs of
  /// a device take blocks round robin, also those of the other kernel. So every XCD leaves an equal share of the
  /// reserved units, rounded up, and ranks that share a device get equal shares of every XCD.
  /// Fails: bad_argument.
  int cus_per_rank(int reserved) const;
  /// How many ranks of this world run on this rank's device. Worlds of one split() that share a device do not count
  /// each other's ranks: launch on one of them at a time.
  int ranks_on_device() const;
  /// The largest number of ranks that share a device.
  int max_ranks_on_a_device() const;

  /// Collective, host only. Fails: as poll_errors().
  void barrier();
  /// The host's exchange between the ranks, for your own collectives.
  bootstrap& exchange() { return *exchange_; }

  /// Tells all ranks that this one has failed, and comes to no further collective. Ranks that wait for it, or come
  /// later, get peer_failed with this text. For a program that holds a world from make_world(), when it leaves it by an
  /// exception; run() does it itself. Not collective.
  void fail(std::string const& why);

  /// Collective. Frees what every rank has retired: arrays, and heaps that no object uses any more. Calls that make
  /// something of a heap do it, too. A rank that has given something up waits for its kernels first.
  void collect(std::source_location where = std::source_location::current());

  /// For a process that ends without order, at an error or at its interpreter's exit. This rank comes to no further
  /// collective, and its peers are told. From now on no destructor waits for a kernel or for another rank, and the
  /// memory of its heaps stays until the process ends. Not collective. If rank 0 of the job does this, no collective of
  /// the other ranks completes.
  void abandon();

  /// Where this rank's heaps note what it has retired.
  std::shared_ptr<detail::ledger> const& memory_ledger() const;

  /// How many nodes the ranks are on: hosts or, with FUSEWIRE_RANKS_PER_NODE = n, groups of n ranks that follow each
  /// other and act as nodes, to try a program of several nodes on one.
  int nodes() const;
  /// The node of rank r: nodes are numbered from 0 on in the order of their lowest ranks. Fails: bad_argument.
  int node_of(int r) const;

  /// Collective. A world of the ranks that pass the same color, in the same order. Allocating and freeing waits for the
  /// device. So where the new worlds share a device, all ranks of this world must be between launches when one of them
  /// allocates or frees.
  world split(int color);

  /// Synchronises the stream, then throws if a kernel of this rank has failed since the last reset(): wait_timeout,
  /// launch_unfinished, rank_mismatch, bad_argument for a misuse, or peer_failed if a rank has failed or died.
  /// Fails: bad_argument, too, where the stream is being captured.
  void check(hipStream_t stream, std::source_location where = std::source_location::current());

  /// Copies on the world's stream, and returns when that is over. The stream is empty before the copy begins: a copy of
  /// pageable memory that waits in a stream can keep other ranks of the process from launching. `what` asks for it, in
  /// messages. Other streams, and captures on them, do not notice.
  /// Fails: bad_argument where the world's stream is being captured; runtime_failure.
  void copy(void* to, void const* from, std::size_t bytes, hipMemcpyKind kind, char const* what,
            std::source_location where = std::source_location::current()) const;
  /// Sets bytes of this rank's device. Otherwise as copy().
  void fill(void* to, int byte, std::size_t bytes, char const* what,
            std::source_location where = std::source_location::current()) const;

  /// Throws what check() would, if a kernel of this rank has noted that it failed and no call has thrown it yet. It
  /// waits for no kernel; it reads one word of the host's memory per heap. Launches, barrier() and calls that make
  /// something of a heap or a channel begin with it. A replay of a graph is no call of this library: the program calls
  /// this, or check(), before it uses the results.
  void poll_errors() const;

  /// The answer to an occupancy query, which takes microseconds: query() is called once for each key.
  residency cached(kernel_key const& key, std::function<residency()> const& query) const;

  /// The order of this rank's launches on several streams. launch() keeps it.
  std::shared_ptr<launch_order> const& launches() const;
  /// Whether the latest launch with the channel was on this stream, and none was ever captured.
  bool used_last_by(void const* channel, hipStream_t stream) const;
  /// Forgets the launches of a channel that has ended, before another gets its memory.
  void forget_user(void const* channel);

  /// Adds a function that check() calls, and one that poll_errors() calls, for as long as the result lives.
  [[nodiscard]] detail::registration add_check(std::function<void(hipStream_t)> on, std::function<void()> poll = [] {});

 private:
  world(std::shared_ptr<bootstrap> b, int device, int part, std::source_location where);
  int ranks_beside(fusewire::place const& p) const;

  bootstrap* exchange_;  // of the state
  std::unique_ptr<detail::world_state, detail::end_of_world> state_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/ranks/world.ipp>
#endif
