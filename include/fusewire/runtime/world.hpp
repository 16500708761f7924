// A rank's place among its peers, on the host.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <fusewire/core/world_view.hpp>
#include <fusewire/runtime/bootstrap.hpp>
#include <fusewire/runtime/place.hpp>

namespace fusewire {

/// What a compute unit, or with clusters of several blocks a device, holds of a kernel, and the dynamic shared memory
/// to launch it with.
struct residency {
  int at_once;       // blocks of a unit, or clusters of a device
  int shared_bytes;  // per block
};
/// Kernel, threads, shared bytes asked for, blocks of a cluster
using kernel_key = std::tuple<void const*, int, int, int>;

/// One rank. Owned by one host thread. Ranks are numbered 0 to size - 1 and need not equal device numbers; several
/// ranks may share a device (loopback), and then each of them gets its part of the compute units.
class world {
 public:
  /// Collective. `device` becomes the calling thread's current device.
  /// Fails: runtime_failure on every rank where ranks of different processes share a device whose driver would run them
  /// in turns, or may be on one partition of a GPU or on two; runtime_failure where the environment hides compute units
  /// and HIP does not say which.
  world(std::unique_ptr<bootstrap> b, int device, std::source_location where = std::source_location::current())
      : bootstrap_(std::move(b)), device_(device) {
    require(bootstrap_ != nullptr, where, "world: no bootstrap; expected one that says who the ranks are");
    require(size() >= 1 && size() <= max_ranks, where, "world: ", size(), " ranks; expected 1 to ", max_ranks);
    int devices = 0;
    check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount", where);
    require(device >= 0 && device < devices, where, "world: device ", device, " of rank ", rank(), "; 0 to ",
            devices - 1, " exist");
    char const* const mask = platform::hidden_mask();
    require<runtime_failure>(
        !mask, where, "world: ", mask ? mask : "",
        " is set: it takes compute units away that HIP still counts, so blocks that others wait for would never start; "
        "expected ROC_GLOBAL_CU_MASK or streams of hipExtStreamCreateWithCUMask");
    check_hip(hipSetDevice(device), "hipSetDevice", where);
    check_hip(platform::dispatch_parts(&dispatch_parts_, device),
              "hipDeviceGetAttribute(parts that take blocks in turn)", where);
    hipStream_t stream = nullptr;
    check_hip(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags", where);
    stream_.reset(stream);
    check_hip(platform::fillable_units(&compute_units_, stream, dispatch_parts_), "hipExtStreamGetCUMask", where);
    require<runtime_failure>(
        compute_units_ > 0, where, "world: a mask (ROC_GLOBAL_CU_MASK) leaves one of the ", dispatch_parts_,
        " XCDs of device ", device,
        " without a compute unit, so that blocks whose turn it is would never start; expected at least one of each");
    places_ = bootstrap_->all_gather(find_place(device, where));
    for (int a = 0; a < size(); ++a)
      for (int b = 0; b < a; ++b) {
        require<runtime_failure>(
            !cannot_tell_apart(places_[std::size_t(a)], places_[std::size_t(b)]), where, "world: ranks ", b, " and ", a,
            " are processes on one partition of a GPU, or on two that have one PCI address (",
            places_[std::size_t(a)].bus,
            ") and one UUID under this driver, so that nobody can tell how many compute units they share; expected "
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

  int rank() const { return bootstrap_->rank(); }
  int size() const { return bootstrap_->size(); }
  int device() const { return device_; }
  /// Rank r's device as this process numbers devices; -1 when it does not see that device.
  int device_of(int r) const { return in_one_process(r, rank()) ? place_of(r).device : device_at(place_of(r)); }
  /// Fails: bad_argument.
  fusewire::place const& place_of(int r) const {
    require(r >= 0 && r < size(), std::source_location::current(), "world: rank ", r, "; 0 to ", size() - 1, " exist");
    return places_[static_cast<std::size_t>(r)];
  }
  /// Ranks a and b share pointers.
  bool in_one_process(int a, int b) const { return same_process(place_of(a), place_of(b)); }
  /// A stream of this rank's own that waits for no other. Ranks that share a device must not use the null stream: it is
  /// one for all of them, and the first kernel on it would wait for a second that cannot start.
  hipStream_t stream() const { return stream_.get(); }
  /// Of this rank's device, as many as blocks can fill.
  int compute_units() const { return compute_units_; }
  /// Parts of the device (XCDs) that take the blocks of a launch in turn.
  int dispatch_parts() const { return dispatch_parts_; }
  /// How many of them a mask of the stream takes away from blocks on it.
  int masked_units(hipStream_t stream, std::source_location where = std::source_location::current()) const {
    if (stream == stream_.get()) return 0;
    int units = 0;
    check_hip(platform::fillable_units(&units, stream, dispatch_parts_), "hipExtStreamGetCUMask", where);
    return compute_units_ - units;
  }
  /// How many of this rank's device's compute units are its own when `reserved` of them are left to another kernel. All
  /// ranks get as much as those of the device with the most ranks, so that they plan alike. Blocks go to the parts of a
  /// device in turn, the other kernel's too, so every part gives up its share of the reserved ones, rounded up, and
  /// ranks that share a device get equal shares of every part.
  /// Fails: bad_argument.
  int share_of_units(int reserved) const {
    require(reserved >= 0, std::source_location::current(), "world: ", reserved,
            " compute units reserved; expected 0 or more");
    int const ranks = max_ranks_on_a_device();
    if (ranks == 1 && reserved == 0) return compute_units_;
    return dispatch_parts_ * std::max(0, (compute_units_ / dispatch_parts_ - reserved / dispatch_parts_ -
                                          (reserved % dispatch_parts_ != 0)) /
                                             ranks);
  }
  /// How many ranks of this world run on this rank's device. Worlds that split() made and that share a device do not
  /// count each other: launch on one of them at a time.
  int ranks_on_device() const { return ranks_beside(place_of(rank())); }
  int max_ranks_on_a_device() const {
    int max = 0;
    for (fusewire::place const& p : places_) max = std::max(max, ranks_beside(p));
    return max;
  }

  /// Collective, host only. Fails: as look().
  void barrier() {
    bootstrap_->barrier();
    look();
  }
  fusewire::bootstrap& exchange() { return *bootstrap_; }

  /// A world of the ranks that pass the same color, in the same order. Collective. Where parts share a device, all
  /// ranks of the whole must be between launches when one part allocates or frees: that waits for the device.
  world split(int color) { return world(bootstrap_->split(color), device_); }

  /// Synchronises the stream, then throws wait_timeout or rank_mismatch if a kernel of this rank gave up since the last
  /// reset().
  void check(hipStream_t stream) {
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    for (auto const& c : checks_) c.on(stream);
    std::erase_if(users_, [&](auto const& u) { return u.second.stream == stream; });
  }

  /// Throws what check() would if a kernel of this rank has noted that it failed and nobody has been told yet. It waits
  /// for no kernel, and costs a look at a word of the host's memory per heap. Launches, barrier() and what makes
  /// something of a heap or a channel begin with it. A replay of a graph is no call of this library: whoever replays
  /// calls this, or check(), before results are used.
  void look() const {
    for (auto const& c : checks_) c.look();
  }

  /// Occupancy queries cost microseconds: their answers are kept.
  template <class Query>
  residency remember(kernel_key const& key, Query query) const {
    auto it = residency_.find(key);
    if (it == residency_.end()) it = residency_.emplace(key, query()).first;
    return it->second;
  }

  /// A launch on `stream` uses the channel whose state is at `channel`. Fails: bad_argument when the launch before was
  /// on another stream and is not over. What is captured says nothing of when it runs. Requires: the other stream still
  /// exists, or check() has been called for it.
  void launches_on(void const* channel, hipStream_t stream, bool captured, std::source_location where) const {
    user& last = users_[channel];
    if (!captured && last.busy && last.stream != stream) {
      hipError_t const e = hipStreamQuery(last.stream);
      ignore_hip(e);
      require(e != hipErrorNotReady, where,
              "launch: the channel is in use on another stream, whose work is not over; expected launches of one "
              "channel on one stream, or on another after check() for the first");
    }
    last = {stream, !captured};
  }
  /// Whether the latest launch with the channel was on this stream, and not captured.
  bool used_last_by(void const* channel, hipStream_t stream) const {
    auto const it = users_.find(channel);
    return it != users_.end() && it->second.busy && it->second.stream == stream;
  }
  void forget_user(void const* channel) { users_.erase(channel); }

  /// For memory that check(), and look(), should look at; returns a key for remove_check.
  int add_check(std::function<void(hipStream_t)> on, std::function<void()> look = [] {}) {
    checks_.push_back({++last_key_, std::move(on), std::move(look)});
    return last_key_;
  }
  void remove_check(int key) {
    std::erase_if(checks_, [&](auto const& c) { return c.key == key; });
  }

 private:
  int ranks_beside(fusewire::place const& p) const {
    return int(std::ranges::count_if(places_, [&](fusewire::place const& q) { return same_device(p, q); }));
  }

  std::unique_ptr<bootstrap> bootstrap_;
  struct destroy_stream {
    void operator()(hipStream_t s) const { ignore_hip(hipStreamDestroy(s)); }
  };

  int device_;
  int compute_units_ = 0, dispatch_parts_ = 1;
  std::unique_ptr<std::remove_pointer_t<hipStream_t>, destroy_stream> stream_;
  std::vector<fusewire::place> places_;
  struct check_of_memory {
    int key;
    std::function<void(hipStream_t)> on;
    std::function<void()> look;
  };
  std::vector<check_of_memory> checks_;
  int last_key_ = 0;
  mutable std::map<kernel_key, residency> residency_;
  struct user {
    hipStream_t stream = nullptr;
    bool busy = false;  // as far as is known
  };
  mutable std::map<void const*, user> users_;  // by channel: its latest launch
};

}  // namespace fusewire
