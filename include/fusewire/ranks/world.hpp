// A rank's place among its peers, on the host.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <fusewire/core/world_view.hpp>
#include <fusewire/ranks/bootstrap.hpp>
#include <fusewire/ranks/launch_order.hpp>
#include <fusewire/ranks/ledger.hpp>
#include <fusewire/ranks/place.hpp>
#include <fusewire/ranks/registry.hpp>

namespace fusewire {

/// How much of a kernel fits at once on a compute unit (or, with clusters of several blocks, on a device), and the
/// dynamic shared memory to launch it with.
struct residency {
  int at_once;       // blocks of a unit, or clusters of a device
  int shared_bytes;  // per block
};
/// Kernel, threads, shared bytes asked for, blocks of a cluster
using kernel_key = std::tuple<void const*, int, int, int>;

/// One rank. One host thread owns it. It may end before what is made from it. Ranks are numbered 0 to size - 1 and need
/// not equal device numbers. Several ranks may share a device (loopback); each of them then gets its part of the
/// compute units.
class world {
 public:
  /// Collective. `device` becomes the calling thread's current device.
  /// Fails: runtime_failure on every rank, where ranks of different processes share a device and its driver would run
  /// them in turns, or where it is unknown whether ranks share a partition of a GPU; runtime_failure where the
  /// environment hides compute units and HIP does not say which.
  world(std::shared_ptr<bootstrap> b, int device, std::source_location where = std::source_location::current())
      : bootstrap_(std::move(b)), device_(device) {
    require(bootstrap_ != nullptr, where, "world: no bootstrap; expected one for the ranks of this world");
    require(size() >= 1 && size() <= max_ranks, where, "world: ", size(), " ranks; expected 1 to ", max_ranks);
    int devices = 0;
    check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount", where);
    require(device >= 0 && device < devices, where, "world: device ", device, " of rank ", rank(), "; 0 to ",
            devices - 1, " exist");
    char const* const mask = platform::unsupported_mask_variable();
    require<runtime_failure>(
        !mask, where, "world: ", mask ? mask : "",
        " is set: it takes compute units away that HIP still counts, so blocks that others wait for would never start; "
        "expected ROC_GLOBAL_CU_MASK or streams of hipExtStreamCreateWithCUMask");
    check_hip(hipSetDevice(device), "hipSetDevice", where);
    check_hip(platform::xcd_count(&xcd_count_, device), "hipDeviceGetAttribute(parts that take blocks in turn)", where);
    hipStream_t stream = nullptr;
    check_hip(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags", where);
    stream_.reset(stream);
    check_hip(platform::usable_cus(&compute_units_, stream, xcd_count_), "hipExtStreamGetCUMask", where);
    require<runtime_failure>(
        compute_units_ > 0, where, "world: a mask (ROC_GLOBAL_CU_MASK) leaves one of the ", xcd_count_,
        " XCDs of device ", device,
        " without a compute unit, so that blocks that go to it would never start; expected at least one unit on each");
    places_ = bootstrap_->all_gather(find_place(device, where));
    ledger_ = detail::open_ledger(std::make_shared<detail::ledger>(bootstrap_, device));
    for (int a = 0; a < size(); ++a)
      for (int b = 0; b < a; ++b) {
        require<runtime_failure>(
            !cannot_tell_apart(places_[std::size_t(a)], places_[std::size_t(b)]), where, "world: ranks ", b, " and ", a,
            " are processes on one partition of a GPU, or on two that have one PCI address (",
            places_[std::size_t(a)].bus,
            ") and one UUID under this driver, so that it is unknown how many compute units they share; expected "
            "ranks that are threads of one process, or at most one rank on each GPU");
        require<runtime_failure>(!same_device(places_[std::size_t(a)], places_[std::size_t(b)]) ||
                                     in_one_process(a, b) || places_[std::size_t(a)].shared_by_processes,
                                 where, "world: ranks ", b, " and ", a, " are processes on one device (",
                                 places_[std::size_t(a)].bus,
                                 "), which runs processes in turns, so that their kernels could not wait for each "
                                 "other; expected a device per rank, ranks that are threads of one process, or MPS");
      }
  }
  world(world&&) = default;
  /// Not collective. Waits for this rank's kernels if it has memory to give back, and for no other rank. The memory
  /// stays until all ranks of the world have ended theirs.
  ~world() = default;

  /// This rank's number, from 0 on.
  int rank() const { return bootstrap_->rank(); }
  /// Ranks of this world.
  int size() const { return bootstrap_->size(); }
  /// This rank's device, as this process numbers devices.
  int device() const { return device_; }
  /// Rank r's device as this process numbers devices; -1 when it does not see that device.
  int device_of(int r) const { return in_one_process(r, rank()) ? place_of(r).device : device_at(place_of(r)); }
  /// Where rank r runs. Fails: bad_argument.
  fusewire::place const& place_of(int r) const {
    require(r >= 0 && r < size(), std::source_location::current(), "world: rank ", r, "; 0 to ", size() - 1, " exist");
    return places_[static_cast<std::size_t>(r)];
  }
  /// Whether ranks a and b share pointers.
  bool in_one_process(int a, int b) const { return same_process(place_of(a), place_of(b)); }
  /// Every rank with its device, in words.
  std::string ranks_in_words() const {
    std::string all;
    for (int r = 0; r < size(); ++r)
      all += text(r ? ", rank " : "rank ", r, " on device ", place_of(r).device, " at ", place_of(r).bus,
                  in_one_process(r, rank()) ? "" : " of another process");
    return all;
  }
  /// A stream of this rank's own, which waits for no other stream. Ranks that share a device must not use the null
  /// stream: they would share it, and the first kernel on it would wait for a second one that cannot start.
  hipStream_t stream() const { return stream_.get(); }
  /// Compute units of this rank's device that blocks can fill.
  int compute_units() const { return compute_units_; }
  /// Parts of the device (XCDs) that take the blocks of a launch in turn.
  int xcd_count() const { return xcd_count_; }
  /// How many of them a mask of the stream takes away.
  int masked_units(hipStream_t stream, std::source_location where = std::source_location::current()) const {
    if (stream == stream_.get()) return 0;
    detail::current_device const device(device_, where);
    int units = 0;
    check_hip(platform::usable_cus(&units, stream, xcd_count_), "hipExtStreamGetCUMask", where);
    return compute_units_ - units;
  }
  /// The number of compute units of its device that this rank may use, when `reserved` of them are left to another
  /// kernel. All ranks get the number of those on the device with the most ranks, so that all plan alike. The parts of
  /// a device take blocks in turn, also those of the other kernel. So every part gives up an equal share of the
  /// reserved units, rounded up, and ranks that share a device get equal shares of every part.
  /// Fails: bad_argument.
  int cus_per_rank(int reserved) const {
    require(reserved >= 0, std::source_location::current(), "world: ", reserved,
            " compute units reserved; expected 0 or more");
    int const ranks = max_ranks_on_a_device();
    if (ranks == 1 && reserved == 0) return compute_units_;
    return xcd_count_ *
           std::max(0, (compute_units_ / xcd_count_ - reserved / xcd_count_ - (reserved % xcd_count_ != 0)) / ranks);
  }
  /// How many ranks of this world run on this rank's device. Worlds of one split() that share a device do not count
  /// each other's ranks: launch on one of them at a time.
  int ranks_on_device() const { return ranks_beside(place_of(rank())); }
  /// The largest number of ranks that share a device.
  int max_ranks_on_a_device() const {
    int max = 0;
    for (fusewire::place const& p : places_) max = std::max(max, ranks_beside(p));
    return max;
  }

  /// Collective, host only. Fails: as poll_errors().
  void barrier() {
    bootstrap_->barrier();
    poll_errors();
  }
  /// The host's exchange between the ranks, for collectives of your own.
  fusewire::bootstrap& exchange() { return *bootstrap_; }

  /// Tells all ranks that this one has failed, and comes to no further collective. Ranks that wait for it, or come
  /// later, get peer_failed with this text. For a program that holds a world from make_world(), when it leaves it by an
  /// exception; run() does it itself. Not collective.
  void fail(std::string const& why) { bootstrap_->fail(text("rank ", rank(), ": ", why)); }

  /// Collective. Frees what every rank has given up: arrays, and heaps that no object uses any more. Calls that make
  /// something of a heap do it, too. A rank that has given something up waits for its kernels first.
  void collect(std::source_location where = std::source_location::current()) {
    memory_ledger()->collect(stream(), where);
  }

  /// For a process that ends without order, at an error or at its interpreter's exit. This rank comes to no further
  /// collective, and its peers are told. From now on no destructor waits for a kernel or for another rank, and the
  /// memory of its heaps stays until the process ends. Not collective. If rank 0 of the job does this, no collective of
  /// the other ranks completes.
  void abandon() { memory_ledger()->abandon(); }

  /// Where this rank's heaps note what it has given up.
  std::shared_ptr<detail::ledger> const& memory_ledger() const { return ledger_.get(); }

  /// Collective. A world of the ranks that pass the same color, in the same order. Allocating and freeing waits for the
  /// device. So where the new worlds share a device, all ranks of this world must be between launches when one of them
  /// allocates or frees.
  world split(int color) {
    detail::current_device const device(device_);
    world part(bootstrap_->split(color), device_);
    part.order_ = std::make_shared<launch_order>(*order_);
    return part;
  }

  /// Synchronises the stream, then throws if a kernel of this rank has failed since the last reset(): wait_timeout,
  /// launch_unfinished, rank_mismatch, bad_argument for a misuse, or peer_failed if a rank has failed or died.
  /// Fails: bad_argument, too, where the stream is being captured.
  void check(hipStream_t stream, std::source_location where = std::source_location::current()) {
    detail::current_device const device(device_, where);
    detail::outside_captures const waiting;
    detail::require_no_capture(stream, "world::check", where);
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize", where);
    for (auto const& c : checks_) c.on(stream);
    order_->forget_stream(stream);
  }

  /// Copies on the world's stream, and returns when that is over. The stream is empty before the copy begins: a copy of
  /// pageable memory that waits in a stream can keep other ranks of the process from launching. `what` asks for it, in
  /// messages. Other streams, and captures on them, do not notice.
  /// Fails: bad_argument where the world's stream is being captured; runtime_failure.
  void copy(void* to, void const* from, std::size_t bytes, hipMemcpyKind kind, char const* what,
            std::source_location where = std::source_location::current()) const {
    on_empty_stream("hipMemcpyAsync", what, where, [&] { return hipMemcpyAsync(to, from, bytes, kind, stream()); });
  }
  /// Sets bytes of this rank's device. Otherwise as copy().
  void fill(void* to, int byte, std::size_t bytes, char const* what,
            std::source_location where = std::source_location::current()) const {
    on_empty_stream("hipMemsetAsync", what, where, [&] { return hipMemsetAsync(to, byte, bytes, stream()); });
  }

  /// Throws what check() would, if a kernel of this rank has noted that it failed and no call has thrown it yet. It
  /// waits for no kernel; it reads one word of the host's memory per heap. Launches, barrier() and calls that make
  /// something of a heap or a channel begin with it. A replay of a graph is no call of this library: the program calls
  /// this, or check(), before it uses the results.
  void poll_errors() const {
    for (auto const& c : checks_) c.poll();
  }

  /// The answer to an occupancy query, which takes microseconds: query() is called once for each key.
  template <class Query>
  residency cached(kernel_key const& key, Query query) const {
    auto it = residency_.find(key);
    if (it == residency_.end()) it = residency_.emplace(key, query()).first;
    return it->second;
  }

  /// The order of this rank's launches on several streams. launch() keeps it.
  std::shared_ptr<launch_order> const& launches() const { return order_; }
  /// Whether the latest launch with the channel was on this stream, and none was ever captured.
  bool used_last_by(void const* channel, hipStream_t stream) const { return order_->used_last_by(channel, stream); }
  /// Forgets the launches of a channel that has ended, before another gets its memory.
  void forget_user(void const* channel) { order_->forget_memory(channel); }

  /// Adds a function that check() calls, and one that poll_errors() calls, for as long as the result lives.
  [[nodiscard]] detail::registration add_check(
      std::function<void(hipStream_t)> on, std::function<void()> poll = [] {}) {
    return checks_.add({std::move(on), std::move(poll)});
  }

 private:
  int ranks_beside(fusewire::place const& p) const {
    return int(std::ranges::count_if(places_, [&](fusewire::place const& q) { return same_device(p, q); }));
  }
  template <class F>
  void on_empty_stream(char const* call, char const* what, std::source_location where, F enqueue) const {
    detail::current_device const device(device_, where);
    detail::outside_captures const waiting;
    detail::require_no_capture(stream(), what, where);
    check_hip(hipStreamSynchronize(stream()), "hipStreamSynchronize", where);
    check_hip(enqueue(), text(call, " for ", what).c_str(), where);
    check_hip(hipStreamSynchronize(stream()), "hipStreamSynchronize", where);
  }

  std::shared_ptr<bootstrap> bootstrap_;
  struct destroy_stream {
    void operator()(hipStream_t s) const { ignore_hip(hipStreamDestroy(s)); }
  };

  int device_;
  int compute_units_ = 0, xcd_count_ = 1;
  std::unique_ptr<std::remove_pointer_t<hipStream_t>, destroy_stream> stream_;
  std::vector<fusewire::place> places_;
  struct check_of_memory {
    std::function<void(hipStream_t)> on;
    std::function<void()> poll;
  };
  detail::registry<check_of_memory> checks_;
  mutable std::map<kernel_key, residency> residency_;
  std::shared_ptr<launch_order> order_ = std::make_shared<launch_order>();
  detail::open_ledger ledger_;  // the first to end: it may wait for kernels
};

}  // namespace fusewire
