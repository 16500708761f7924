// Bodies of network.hpp.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fusewire/memory/heap.ipp>
#include <fusewire/nodes/network.hpp>
#include <fusewire/nodes/proxy.hpp>
#include <fusewire/ranks/world.ipp>

namespace fusewire {

namespace detail {

/// Pinned memory of the host, which starts as zeros.
class pinned_memory {
 public:
  pinned_memory() = default;
  pinned_memory(std::size_t bytes, char const* what, std::source_location where) {
    outside_captures const allocating;
    check_hip(hipHostMalloc(&at_, bytes, hipHostMallocMapped | hipHostMallocCoherent), what, where);
    std::memset(at_, 0, bytes);
  }
  pinned_memory(pinned_memory&& o) noexcept : at_(std::exchange(o.at_, nullptr)) {}
  pinned_memory& operator=(pinned_memory&& o) noexcept {
    std::swap(at_, o.at_);
    return *this;
  }
  ~pinned_memory() {
    if (at_) ignore_hip(hipHostFree(at_));
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  void* at_ = nullptr;
};

/// Every rank's bytes, however many.
inline std::vector<std::vector<std::byte>> gather_bytes(bootstrap& b, std::vector<std::byte> const& mine) {
  auto const lengths = b.all_gather(std::uint64_t(mine.size()));
  std::size_t const longest = *std::ranges::max_element(lengths);
  std::vector<std::vector<std::byte>> all(lengths.size());
  if (longest == 0) return all;
  std::vector<std::byte> padded = mine;
  padded.resize(longest);
  auto const raw = b.all_gather(padded.data(), longest);
  for (std::size_t r = 0; r < all.size(); ++r) {
    auto const first = raw.begin() + std::ptrdiff_t(r * longest);
    all[r].assign(first, first + std::ptrdiff_t(lengths[r]));
  }
  return all;
}

/// What a network consists of. The thread ends first, then the engine, then the memory that it may use.
struct network_state {
  network_state(world& w, fusewire::heap& h, network_options const& o) : all(w), heap(h.state()), options(o) {}
  network_state(network_state const&) = delete;
  ~network_state() {
    reset.reset();
    if (thread) thread->leave(options.drain_limit);
  }

  int nodes() const { return all.nodes(); }
  bool reaches(int rank) const {
    int const near = heap.world().size(), mine = all.rank();
    return rank / near != mine / near && (options.peers == far_peers::all || rank % near == mine % near);
  }
  /// Memory that far peers may put into: exchanges its keys. Collective in `all`. It stays as long as the engine.
  int expose(void* at, std::size_t bytes) {
    std::vector<std::byte> key;
    int const region = locked([&] {
      int const number = connected->expose(at, bytes);
      key = connected->key(number);
      return number;
    });
    auto const keys = gather_bytes(all.exchange(), key);
    locked([&] {
      for (int p : peers) connected->accept_key(p, region, keys[std::size_t(p)]);
      return 0;
    });
    all.exchange().barrier();  // nobody puts before all have the keys
    return region;
  }
  /// f(), while the thread does nothing.
  template <class F>
  int locked(F const& f) {
    return thread ? thread->locked(f) : f();
  }
  void quiesce() {
    (void)thread->drain(options.drain_limit);
    all.exchange().barrier();  // mail of all ranks has arrived
    thread->pause();
  }
  void renew(std::source_location where) {
    all.exchange().barrier();
    thread->renew();
    heap.world().fill(heap.here(head.get()), 0, sizeof(unsigned long long), "network: tickets", where);
    all.exchange().barrier();
  }

  world& all;
  fusewire::heap heap;
  network_options options;
  std::vector<int> peers;
  owned<unsigned long long> head;
  pinned_memory ring, done, mail;
  std::vector<std::shared_ptr<void>> kept;  // memory of channels
  std::unique_ptr<engine> connected;
  put_ring_view view;
  registration reset;
  std::unique_ptr<proxy> thread;
};

}  // namespace detail

FUSEWIRE_HOST network::network(world& all, fusewire::heap& h, std::unique_ptr<engine> e, network_options const& o,
                               std::source_location where)
    : state_(std::make_shared<detail::network_state>(all, h, o)) {
  auto& s = *state_;
  int const near = h.world().size(), nodes = all.nodes(), node = all.node_of(all.rank());
  require(o.ring >= 1 && o.ring <= 1 << 20, where, "network: a ring of ", o.ring, " puts; expected 1 to ", 1 << 20);
  for (int r = 0; r < all.size(); ++r)
    require(all.size() == nodes * near && all.node_of(r) == r / near, where, "network: rank ", r, " of ", all.size(),
            " is on node ", all.node_of(r), " of ", nodes, ", and the heap has ", near,
            " ranks; expected as many ranks on every node, which follow each other, and a heap of those of this node");
  require(h.world().rank() == all.rank() - node * near, where, "network: rank ", all.rank(), " is rank ",
          h.world().rank(), " of the heap; expected ranks in the same order");
  auto const words = all.exchange().all_gather(
      std::array<std::uint64_t, 3>{std::uint64_t(o.reach), std::uint64_t(o.peers), std::uint64_t(o.ring)});
  for (std::size_t r = 0; r < words.size(); ++r)
    require<rank_mismatch>(words[r] == words[0], where, "network: ranks 0 and ", r, " have different network_options");
  h.names().number_ranks_from(node * near);
  if (nodes == 1) return;
  require(e != nullptr, where, "network: no engine for ", nodes, " nodes; expected one");
  detail::current_device const device(h.world().device(), where);
  s.connected = std::move(e);
  auto const addresses = detail::gather_bytes(all.exchange(), s.connected->address());
  for (int r = 0; r < all.size(); ++r)
    if (s.reaches(r)) s.peers.push_back(r), s.connected->connect(r, addresses[std::size_t(r)]);
  s.ring = {std::size_t(o.ring) * sizeof(put_descriptor), "hipHostMalloc(ring)", where};
  s.done = {sizeof(flag), "hipHostMalloc(puts that have left)", where};
  s.mail = {std::size_t(max_ranks) * sizeof(std::uint64_t), "hipHostMalloc(mail)", where};
  s.head = {h, h.allocate<unsigned long long>(1, 256, where)};
  h.world().fill(h.here(s.head.get()), 0, sizeof(unsigned long long), "network: tickets", where);
  s.view = {s.ring.as<put_descriptor>(), o.ring, h.here(s.head.get()), s.done.as<flag>()};
  auto const signal = reinterpret_cast<std::uint64_t>(h.view().signal[h.world().rank()]);
  h.names().add_flags(reinterpret_cast<std::uint64_t>(s.view.done) - signal, 1, [size = o.ring](std::uint64_t) {
    return text("puts to other nodes that have left this rank, in a ring of ", size);
  });
  int const mail = s.expose(s.mail.as<void>(), std::size_t(max_ranks) * sizeof(std::uint64_t));
  std::vector<unsigned*> waits_of_near;
  for (int r = 0; r < near; ++r)
    if (r != h.world().rank()) waits_of_near.push_back(&reinterpret_cast<watch*>(h.view().signal[r])->abandoned);
  s.thread = std::make_unique<detail::proxy>(
      detail::proxy_parts{s.connected.get(), s.view.descriptors, o.ring, s.done.as<flag>(), s.mail.as<std::uint64_t>(),
                          mail, s.peers, all.rank(), h.state()->launch_alarm(), waits_of_near, h.world().rank()});
  s.reset = h.state()->add_reset(
      s.head.get().offset, [&s] { s.renew(std::source_location::current()); }, [&s] { s.quiesce(); });
  all.exchange().barrier();
}

FUSEWIRE_HOST world& network::all() const { return state_->all; }
FUSEWIRE_HOST fusewire::heap& network::heap() const { return state_->heap; }
FUSEWIRE_HOST network_options const& network::options() const { return state_->options; }
FUSEWIRE_HOST std::uint64_t network::puts() const { return state_->thread ? state_->thread->puts() : 0; }

}  // namespace fusewire
