// Bodies of world.hpp.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include <fusewire/ranks/environment.hpp>
#include <fusewire/ranks/launch_order.hpp>
#include <fusewire/ranks/ledger.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// What a world has. The stream waits for nothing when it is destroyed.
struct detail::world_state {
  world_state(std::shared_ptr<bootstrap> b, int its_device) : exchange(std::move(b)), device(its_device) {}

  struct destroy_stream {
    void operator()(hipStream_t s) const { ignore_hip(hipStreamDestroy(s)); }
  };
  struct check_of_memory {
    std::function<void(hipStream_t)> on;
    std::function<void()> poll;
  };

  std::shared_ptr<bootstrap> exchange;
  int device;
  int compute_units = 0, xcd_count = 1;
  std::unique_ptr<std::remove_pointer_t<hipStream_t>, destroy_stream> stream;
  std::vector<fusewire::place> places;
  std::vector<int> node;  // of each rank
  int nodes = 0;
  registry<check_of_memory> checks;
  std::map<kernel_key, residency> residencies;
  std::shared_ptr<launch_order> order = std::make_shared<launch_order>();
  open_ledger memory_ledger;  // the first to end: it may wait for kernels

  /// Calls enqueue() on the empty stream, and waits for it.
  template <class F>
  void on_empty_stream(char const* call, char const* what, std::source_location where, F enqueue) const {
    current_device const its(device, where);
    outside_captures const waiting;
    require_no_capture(stream.get(), what, where);
    check_hip(hipStreamSynchronize(stream.get()), "hipStreamSynchronize", where);
    check_hip(enqueue(), text(call, " for ", what).c_str(), where);
    check_hip(hipStreamSynchronize(stream.get()), "hipStreamSynchronize", where);
  }
};

FUSEWIRE_HOST void detail::end_of_world::operator()(world_state* s) const { delete s; }

namespace detail {
/// The part of its host that a rank acts as a node of.
inline int part_of_host(bootstrap const* b, std::source_location where) {
  auto const ranks = int(number_in("FUSEWIRE_RANKS_PER_NODE", 1, max_ranks, max_ranks, where));
  return b ? b->rank() / ranks : 0;
}
}  // namespace detail

FUSEWIRE_HOST world::world(std::shared_ptr<bootstrap> b, int device, std::source_location where)
    : world(b, device, detail::part_of_host(b.get(), where), where) {}

FUSEWIRE_HOST world::world(std::shared_ptr<bootstrap> b, int device, int part, std::source_location where)
    : exchange_(b.get()), state_(new detail::world_state(std::move(b), device)) {
  detail::world_state& s = *state_;
  require(exchange_ != nullptr, where, "world: no bootstrap; expected one for the ranks of this world");
  require(size() >= 1 && size() <= max_ranks, where, "world: ", size(), " ranks; expected 1 to ", max_ranks);
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount", where);
  require(device >= 0 && device < devices, where, "world: device ", device, " of rank ", rank(), "; 0 to ", devices - 1,
          " exist");
  char const* const mask = platform::unsupported_mask_variable();
  require<runtime_failure>(
      !mask, where, "world: ", mask ? mask : "",
      " is set: it takes compute units away that HIP still counts, so blocks that others wait for would never start; "
      "expected ROC_GLOBAL_CU_MASK or streams of hipExtStreamCreateWithCUMask");
  check_hip(hipSetDevice(device), "hipSetDevice", where);
  check_hip(platform::xcd_count(&s.xcd_count, device), "hipDeviceGetAttribute(XCDs)", where);
  hipStream_t stream = nullptr;
  check_hip(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags", where);
  s.stream.reset(stream);
  check_hip(platform::usable_cus(&s.compute_units, stream, s.xcd_count), "hipExtStreamGetCUMask", where);
  require<runtime_failure>(
      s.compute_units > 0, where, "world: a mask (ROC_GLOBAL_CU_MASK) leaves one of the ", s.xcd_count,
      " XCDs of device ", device,
      " without a compute unit, so that blocks that go to it would never start; expected at least one unit on each");
  fusewire::place mine = find_place(device, where);
  mine.part = part;
  s.places = exchange_->all_gather(mine);
  for (auto const& p : s.places) {
    auto const same = std::ranges::find_if(s.places, [&](fusewire::place const& q) { return same_node(p, q); });
    auto const lowest = static_cast<std::size_t>(same - s.places.begin());
    s.node.push_back(lowest < s.node.size() ? s.node[lowest] : s.nodes++);
  }
  s.memory_ledger = detail::open_ledger(std::make_shared<detail::ledger>(s.exchange, device));
  for (int a = 0; a < size(); ++a)
    for (int b = 0; b < a; ++b) {
      require<runtime_failure>(
          !cannot_tell_apart(place_of(a), place_of(b)), where, "world: ranks ", b, " and ", a,
          " are processes on one partition of a GPU, or on two that have one PCI address (", place_of(a).bus,
          ") and one UUID under this driver, so that it is unknown how many compute units they share; expected "
          "ranks that are threads of one process, or at most one rank on each GPU");
      require<runtime_failure>(
          !same_device(place_of(a), place_of(b)) || in_one_process(a, b) || place_of(a).shared_by_processes, where,
          "world: ranks ", b, " and ", a, " are processes on one device (", place_of(a).bus,
          "), which time-slices processes, so that their kernels could not wait for each other; expected a device "
          "per rank, ranks that are threads of one process, or MPS");
    }
}

FUSEWIRE_HOST int world::device() const { return state_->device; }
FUSEWIRE_HOST int world::device_of(int r) const {
  return in_one_process(r, rank()) ? place_of(r).device : device_at(place_of(r));
}
FUSEWIRE_HOST fusewire::place const& world::place_of(int r) const {
  require(r >= 0 && r < size(), std::source_location::current(), "world: rank ", r, "; 0 to ", size() - 1, " exist");
  return state_->places[static_cast<std::size_t>(r)];
}
FUSEWIRE_HOST int world::nodes() const { return state_->nodes; }
FUSEWIRE_HOST int world::node_of(int r) const {
  (void)place_of(r);
  return state_->node[static_cast<std::size_t>(r)];
}
FUSEWIRE_HOST std::string world::ranks_in_words() const {
  std::string all;
  for (int r = 0; r < size(); ++r)
    all += text(r ? ", rank " : "rank ", r, " on device ", place_of(r).device, " at ", place_of(r).bus,
                in_one_process(r, rank()) ? "" : " of another process");
  return all;
}
FUSEWIRE_HOST hipStream_t world::stream() const { return state_->stream.get(); }
FUSEWIRE_HOST int world::compute_units() const { return state_->compute_units; }
FUSEWIRE_HOST int world::xcd_count() const { return state_->xcd_count; }
FUSEWIRE_HOST int world::masked_units(hipStream_t stream, std::source_location where) const {
  if (stream == this->stream()) return 0;
  detail::current_device const its(device(), where);
  int units = 0;
  check_hip(platform::usable_cus(&units, stream, xcd_count()), "hipExtStreamGetCUMask", where);
  return compute_units() - units;
}
FUSEWIRE_HOST int world::cus_per_rank(int reserved) const {
  require(reserved >= 0, std::source_location::current(), "world: ", reserved,
          " compute units reserved; expected 0 or more");
  int const ranks = max_ranks_on_a_device(), units = compute_units(), xcds = xcd_count();
  if (ranks == 1 && reserved == 0) return units;
  return xcds * std::max(0, (units / xcds - reserved / xcds - (reserved % xcds != 0)) / ranks);
}
FUSEWIRE_HOST int world::ranks_beside(fusewire::place const& p) const {
  return int(std::ranges::count_if(state_->places, [&](fusewire::place const& q) { return same_device(p, q); }));
}
FUSEWIRE_HOST int world::ranks_on_device() const { return ranks_beside(place_of(rank())); }
FUSEWIRE_HOST int world::max_ranks_on_a_device() const {
  int max = 0;
  for (fusewire::place const& p : state_->places) max = std::max(max, ranks_beside(p));
  return max;
}

FUSEWIRE_HOST void world::barrier() {
  exchange_->barrier();
  poll_errors();
}
FUSEWIRE_HOST void world::fail(std::string const& why) { exchange_->fail(text("rank ", rank(), ": ", why)); }
FUSEWIRE_HOST void world::collect(std::source_location where) { memory_ledger()->collect(stream(), where); }
FUSEWIRE_HOST void world::abandon() { memory_ledger()->abandon(); }
FUSEWIRE_HOST std::shared_ptr<detail::ledger> const& world::memory_ledger() const {
  return state_->memory_ledger.get();
}
FUSEWIRE_HOST world world::split(int color) {
  detail::current_device const its(device());
  world subgroup(exchange_->split(color), device(), place_of(rank()).part, std::source_location::current());
  subgroup.state_->order = std::make_shared<launch_order>(*state_->order);
  return subgroup;
}

FUSEWIRE_HOST void world::check(hipStream_t stream, std::source_location where) {
  detail::current_device const its(device(), where);
  detail::outside_captures const waiting;
  detail::require_no_capture(stream, "world::check", where);
  check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize", where);
  for (auto const& c : state_->checks) c.on(stream);
  state_->order->forget_stream(stream);
}
FUSEWIRE_HOST void world::copy(void* to, void const* from, std::size_t bytes, hipMemcpyKind kind, char const* what,
                               std::source_location where) const {
  state_->on_empty_stream("hipMemcpyAsync", what, where,
                          [&] { return hipMemcpyAsync(to, from, bytes, kind, stream()); });
}
FUSEWIRE_HOST void world::fill(void* to, int byte, std::size_t bytes, char const* what,
                               std::source_location where) const {
  state_->on_empty_stream("hipMemsetAsync", what, where, [&] { return hipMemsetAsync(to, byte, bytes, stream()); });
}
FUSEWIRE_HOST void world::poll_errors() const {
  for (auto const& c : state_->checks) c.poll();
}

FUSEWIRE_HOST residency world::cached(kernel_key const& key, std::function<residency()> const& query) const {
  auto it = state_->residencies.find(key);
  if (it == state_->residencies.end()) it = state_->residencies.emplace(key, query()).first;
  return it->second;
}
FUSEWIRE_HOST std::shared_ptr<launch_order> const& world::launches() const { return state_->order; }
FUSEWIRE_HOST bool world::used_last_by(void const* channel, hipStream_t stream) const {
  return state_->order->used_last_by(channel, stream);
}
FUSEWIRE_HOST void world::forget_user(void const* channel) { state_->order->forget_memory(channel); }
FUSEWIRE_HOST detail::registration world::add_check(std::function<void(hipStream_t)> on, std::function<void()> poll) {
  return state_->checks.add({std::move(on), std::move(poll)});
}

}  // namespace fusewire
