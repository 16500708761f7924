// How peers get access to a rank's memory: threads of one process share pointers, processes share handles or file
// descriptors.
//
//   rank's process   hipMalloc --handle--> all_gather  --> hipIpcOpenMemHandle          a peer's process
//                    cuMemCreate --descriptor--> UNIX socket --> map                    (nvidia, on request)
#pragma once
#include <memory>
#include <vector>

#include <fusewire/core/math.hpp>
#include <fusewire/memory/descriptor_exchange.hpp>
#include <fusewire/memory/sharing.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

/// Segments of memory of every rank, mapped into this process. Constructing them is collective.
/// Requires: when they are destroyed, no kernel uses them, and no peer has this rank's memory mapped.
class shared_segments {
 public:
  /// A segment that each rank has.
  struct request {
    std::size_t bytes;  // the same on every rank
    bool signal;        // memory that kernels poll
    char const* name;   // for messages
  };

  /// Collective. `how`: the way between processes.
  /// Fails: runtime_failure on every rank where memory cannot be allocated or mapped; bad_argument.
  shared_segments(world& w, std::vector<request> const& wanted, sharing how, std::source_location where) {
    int processes = 1;
    for (int r = 0; r < w.size(); ++r) {
      require<runtime_failure>(same_host(w.place_of(r), w.place_of(w.rank())), where, "heap: rank ", r, " is on host ",
                               host_of(w, r), ", rank ", w.rank(), " on ", host_of(w, w.rank()),
                               "; expected ranks of one host");
      processes += !w.in_one_process(r, w.rank());
    }
    bool const descriptors = how == sharing::descriptor && processes > 1;
    enable_peer_access(w, where);
    try {
      for (request const& q : wanted) own_.push_back(allocate(w, q, processes > 1, descriptors, where));
      for (segment const& s : own_)
        mapped_.push_back(descriptors ? through_descriptors(w, s, where) : through_handles(w, s, processes > 1, where));
    } catch (...) {  // peers may have mapped it already
      unmap_peers();
      for (auto& memory : local()) w.exchange().keep(std::move(memory));
      throw;
    }
  }
  shared_segments(shared_segments const&) = delete;

  /// Segment i of a rank.
  std::byte* of(std::size_t i, int rank) const { return mapped_[i][std::size_t(rank)].get(); }
  /// Unmaps the peers' segments. This rank's memory must outlast its peers' mappings.
  /// Requires: this rank's kernels are over.
  void unmap_peers() { mapped_.clear(); }
  /// This rank's memory, for whoever keeps it longer.
  std::vector<std::shared_ptr<void>> local() const {
    std::vector<std::shared_ptr<void>> all;
    for (segment const& s : own_) all.push_back(s.memory);
    return all;
  }

 private:
  struct segment {
    std::shared_ptr<std::byte> memory;
    std::size_t bytes = 0;  // as allocated
    char const* name = "";
  };

  static std::string host_of(world const& w, int rank) {
    auto const& name = w.place_of(rank).host_name;
    return detail::printable({name, ::strnlen(name, sizeof name)});
  }

  /// For memory of ranks in this process. What other processes share is mapped with access; enabling it for their
  /// devices would make a context on each, of some 500 MiB.
  static void enable_peer_access(world const& w, std::source_location where) {
    for (int r = 0; r < w.size(); ++r) {
      int const peer = w.device_of(r);  // negative: this process does not see the device
      if (peer == w.device() || peer < 0) continue;
      int can = 0;
      check_hip(hipDeviceCanAccessPeer(&can, w.device(), peer), "hipDeviceCanAccessPeer", where);
      require<runtime_failure>(can, where, "heap: device ", w.device(), " (rank ", w.rank(),
                               ") cannot access the memory of device ", peer, " (rank ", r,
                               "); expected devices linked by xGMI or NVLink");
      if (!w.in_one_process(r, w.rank())) continue;
      hipError_t const e = hipDeviceEnablePeerAccess(peer, 0);
      if (e == hipErrorPeerAccessAlreadyEnabled) ignore_hip(e);
      else check_hip(e, "hipDeviceEnablePeerAccess", where);
    }
  }

  static segment allocate(world const& w, request const& q, bool several_processes, bool descriptors,
                          std::source_location where) {
    void* p = nullptr;
    // A handle shares whole blocks of 2 MiB, so a segment gets its own blocks
    segment s{{}, several_processes ? round_up(q.bytes, std::size_t(2) << 20) : q.bytes, q.name};
    if (descriptors) {
      check_hip(platform::malloc_shared(&p, &s.bytes, w.device()), text("malloc_shared(", q.name, " segment)").c_str(),
                where);
      s.memory.reset(static_cast<std::byte*>(p), [bytes = s.bytes](std::byte* m) { platform::free_shared(m, bytes); });
    } else {
      if (q.signal)
        check_hip(platform::malloc_signal(&p, s.bytes), text("malloc(", q.name, " segment)").c_str(), where);
      else check_hip(hipMalloc(&p, s.bytes), text("hipMalloc(", q.name, " segment)").c_str(), where);
      s.memory.reset(static_cast<std::byte*>(p), [](std::byte* m) { ignore_hip(hipFree(m)); });
    }
    return s;
  }

  /// By rank. Those of this rank and of others in its process own nothing
  using mappings = std::vector<std::shared_ptr<std::byte>>;

  static mappings through_handles(world& w, segment const& s, bool several_processes, std::source_location where) {
    struct card {
      std::byte* pointer;
      hipIpcMemHandle_t handle;
    };
    card mine{};
    mine.pointer = s.memory.get();
    if (several_processes)
      check_hip(hipIpcGetMemHandle(&mine.handle, mine.pointer),
                text("hipIpcGetMemHandle(", s.name, " segment)").c_str(), where);
    auto const cards = w.exchange().all_gather(mine);
    mappings all;
    for (int r = 0; r < w.size(); ++r) {
      card const& c = cards[std::size_t(r)];
      if (w.in_one_process(r, w.rank())) {
        all.emplace_back(std::shared_ptr<void>(), c.pointer);
        continue;
      }
      void* p = nullptr;
      check_hip(hipIpcOpenMemHandle(&p, c.handle, hipIpcMemLazyEnablePeerAccess),
                text("hipIpcOpenMemHandle(", s.name, " segment of rank ", r, ")").c_str(), where);
      all.emplace_back(static_cast<std::byte*>(p), [](std::byte* m) { ignore_hip(hipIpcCloseMemHandle(m)); });
    }
    return all;
  }

  static mappings through_descriptors(world& w, segment const& s, std::source_location where) {
    struct card {
      std::byte* pointer;
      std::uint64_t bytes;
      detail::descriptor_exchange::address address;
    };
    detail::descriptor_exchange exchange(w.rank());
    int fd = -1;
    check_hip(platform::export_shared(&fd, s.memory.get()), text("export_shared(", s.name, " segment)").c_str(), where);
    detail::descriptor const exported(fd);
    // After this call every rank is in the exchange
    auto const cards = w.exchange().all_gather(card{s.memory.get(), s.bytes, exchange.here()});

    std::vector<detail::descriptor_exchange::address> addresses;
    for (card const& c : cards) addresses.push_back(c.address);
    std::vector<int> peers;
    for (int i = 1; i < w.size(); ++i)
      if (int const r = w.rank() + i < w.size() ? w.rank() + i : w.rank() + i - w.size();
          !w.in_one_process(r, w.rank()))
        peers.push_back(r);
    auto const came = exchange.run(addresses, peers, exported.get(), std::chrono::seconds(60));

    mappings all(std::size_t(w.size()));
    for (std::size_t i = 0; i < peers.size(); ++i) {
      std::size_t const r = std::size_t(peers[i]), bytes = cards[r].bytes;
      void* p = nullptr;
      check_hip(platform::import_shared(&p, bytes, w.device(), came[i].get()),
                text("import_shared(", s.name, " segment of rank ", r, ")").c_str(), where);
      all[r].reset(static_cast<std::byte*>(p), [bytes](std::byte* m) { platform::free_shared(m, bytes); });
    }
    for (int r = 0; r < w.size(); ++r)
      if (w.in_one_process(r, w.rank())) all[std::size_t(r)] = {std::shared_ptr<void>(), cards[std::size_t(r)].pointer};
    return all;
  }

  std::vector<segment> own_;
  std::vector<mappings> mapped_;
};

}  // namespace fusewire
