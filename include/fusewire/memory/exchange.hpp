// How a rank's memory becomes its peers': threads of one process share pointers, processes share handles or file descriptors.
//
//   rank's process   hipMalloc --handle--> all_gather  --> hipIpcOpenMemHandle          a peer's process
//                    cuMemCreate --descriptor--> UNIX socket --> map                    (nvidia, on request)
#pragma once
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include <fusewire/core/types.hpp>
#include <fusewire/runtime/tcp_socket.hpp>
#include <fusewire/runtime/world.hpp>

namespace fusewire {

/// How processes map each other's memory. Threads of one process always share pointers.
enum class sharing {
  handle,      // hipIpcMemHandle_t, cudaIpcMemHandle_t
  descriptor,  // POSIX file descriptor; nvidia. The memory is there until its last mapping is gone, whatever becomes of its owner
};

/// Segments of memory of every rank, mapped here. Collective to make. Requires: no kernel uses them when they go.
class shared_segments {
 public:
  struct request {
    std::size_t bytes;
    bool signal;       // memory that kernels poll
    char const* name;  // for messages
  };

  shared_segments(world& w, std::vector<request> const& wanted, sharing how, std::source_location where) : world_(w) {
    int processes = 1;
    for (int r = 0; r < w.size(); ++r) {
      require<runtime_failure>(same_host(w.place_of(r), w.place_of(w.rank())), where, "heap: rank ", r, " is on host ", w.place_of(r).host_name, ", rank ", w.rank(), " on ",
                               w.place_of(w.rank()).host_name, "; ranks of one host are accepted");
      processes += !w.in_one_process(r, w.rank());
    }
    bool const descriptors = how == sharing::descriptor && processes > 1;
    try {
      for (request const& q : wanted) own_.push_back(allocate(w, q, processes > 1, descriptors, where));
      for (segment const& s : own_) mapped_.push_back(descriptors ? through_descriptors(w, s, where) : through_handles(w, s, processes > 1, where));
    } catch (...) {
      abandon();
      throw;
    }
  }
  shared_segments(shared_segments const&) = delete;
  /// This rank's memory goes at once, unless an exception is on its way: then peers may still use it.
  ~shared_segments() {
    if (std::uncaught_exceptions() > exceptions_) abandon();
  }

  /// Segment i of a rank.
  std::byte* of(std::size_t i, int rank) const { return mapped_[i][std::size_t(rank)].get(); }
  /// Requires: this rank's kernels are over. Its own memory must outlast its peers' mappings.
  void unmap_peers() { mapped_.clear(); }
  /// As unmap_peers(), when the peers cannot be asked: this rank's memory stays until all ranks are gone.
  void abandon() {
    mapped_.clear();
    for (segment const& s : own_) world_.exchange().keep(s.memory);
  }

 private:
  struct segment {
    std::shared_ptr<std::byte> memory;
    std::size_t bytes = 0;  // as allocated
    char const* name = "";
  };

  static segment allocate(world const& w, request const& q, bool several_processes, bool descriptors, std::source_location where) {
    void* p = nullptr;
    // Handles share whole blocks of 2 MiB: a segment should not share one with a stranger.
    segment s{{}, several_processes ? round_up(q.bytes, std::size_t(2) << 20) : q.bytes, q.name};
    if (descriptors) {
      check_hip(platform::malloc_shared(&p, &s.bytes, w.device()), text("malloc_shared(", q.name, " segment)").c_str(), where);
      s.memory.reset(static_cast<std::byte*>(p), [bytes = s.bytes](std::byte* m) { platform::free_shared(m, bytes); });
    } else {
      if (q.signal) check_hip(platform::malloc_signal(&p, s.bytes), text("malloc(", q.name, " segment)").c_str(), where);
      else check_hip(hipMalloc(&p, s.bytes), text("hipMalloc(", q.name, " segment)").c_str(), where);
      s.memory.reset(static_cast<std::byte*>(p), [](std::byte* m) { ignore_hip(hipFree(m)); });
    }
    return s;
  }

  using mappings = std::vector<std::shared_ptr<std::byte>>;  // by rank; this rank's own and those of its process own nothing

  static mappings through_handles(world& w, segment const& s, bool several_processes, std::source_location where) {
    struct card {
      std::byte* pointer;
      hipIpcMemHandle_t handle;
    };
    card mine{};
    mine.pointer = s.memory.get();
    if (several_processes) check_hip(hipIpcGetMemHandle(&mine.handle, mine.pointer), text("hipIpcGetMemHandle(", s.name, " segment)").c_str(), where);
    auto const cards = w.exchange().all_gather(mine);
    mappings all;
    for (int r = 0; r < w.size(); ++r) {
      card const& c = cards[std::size_t(r)];
      if (w.in_one_process(r, w.rank())) {
        all.emplace_back(std::shared_ptr<void>(), c.pointer);
        continue;
      }
      void* p = nullptr;
      check_hip(hipIpcOpenMemHandle(&p, c.handle, hipIpcMemLazyEnablePeerAccess), text("hipIpcOpenMemHandle(", s.name, " segment of rank ", r, ")").c_str(), where);
      all.emplace_back(static_cast<std::byte*>(p), [](std::byte* m) { ignore_hip(hipIpcCloseMemHandle(m)); });
    }
    return all;
  }

  /// What travels with a descriptor.
  struct ticket {
    std::uint64_t secret;  // of this exchange and receiver: who knows it is one of us
    std::int32_t from;
  };

  static mappings through_descriptors(world& w, segment const& s, std::source_location where) {
    struct card {
      std::byte* pointer;
      std::uint64_t bytes, secret;
      char socket[64];  // name in the abstract namespace
    };
    auto const fail = [&](char const* call, int e) { throw runtime_failure(text("heap: rank ", w.rank(), ", exchange of file descriptors: ", call, ": ", detail::system_error(e))); };
    card mine{s.memory.get(), s.bytes, random_bits(), {}};
    std::snprintf(mine.socket, sizeof mine.socket, "fusewire-%llx-%d", static_cast<unsigned long long>(mine.secret), w.rank());
    detail::descriptor const own(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!own) fail("socket", errno);
    sockaddr_un at{};
    if (::bind(own.get(), reinterpret_cast<sockaddr*>(&at), address_of(mine.socket, at)) != 0) fail("bind", errno);
    int fd = -1;
    check_hip(platform::export_shared(&fd, mine.pointer), text("export_shared(", s.name, " segment)").c_str(), where);
    detail::descriptor const exported(fd);
    auto const cards = w.exchange().all_gather(mine);  // every socket is bound

    mappings all(std::size_t(w.size()));
    std::vector<int> to;
    for (int i = 1; i < w.size(); ++i) to.push_back((w.rank() + i) % w.size());
    std::erase_if(to, [&](int r) { return w.in_one_process(r, w.rank()); });
    std::size_t missing = to.size(), sent = 0;
    auto const deadline = detail::now() + std::chrono::seconds(60);
    while (sent < to.size() || missing) {
      if (sent < to.size()) {
        int const r = to[sent];
        if (int const e = send(own.get(), cards[std::size_t(r)].socket, {cards[std::size_t(r)].secret, w.rank()}, exported.get()); e == 0) ++sent;
        else if (e != EAGAIN && e != EINTR && e != ENOBUFS) fail("sendmsg", e);
      }
      int from = -1;
      for (detail::descriptor got = receive(own.get(), mine.secret, from); got; got = receive(own.get(), mine.secret, from)) {
        if (from < 0 || from >= w.size() || all[std::size_t(from)]) continue;
        void* p = nullptr;
        std::size_t const bytes = cards[std::size_t(from)].bytes;
        check_hip(platform::import_shared(&p, bytes, w.device(), got.get()), text("import_shared(", s.name, " segment of rank ", from, ")").c_str(), where);
        all[std::size_t(from)].reset(static_cast<std::byte*>(p), [bytes](std::byte* m) { platform::free_shared(m, bytes); });
        --missing;
      }
      if (sent == to.size() && !missing) break;
      require<runtime_failure>(detail::now() < deadline, where, "heap: rank ", w.rank(), ", exchange of file descriptors: ", missing, " of ", to.size(),
                               " peers' descriptors did not come within 60 s");
      pollfd waiting{own.get(), POLLIN, 0};
      ::poll(&waiting, 1, sent < to.size() ? 1 : 100);
    }
    for (int r = 0; r < w.size(); ++r)
      if (w.in_one_process(r, w.rank())) all[std::size_t(r)] = {std::shared_ptr<void>(), cards[std::size_t(r)].pointer};
    return all;
  }

  static socklen_t address_of(char const* name, sockaddr_un& at) {
    at.sun_family = AF_UNIX;  // sun_path[0] stays 0: abstract
    std::size_t const n = ::strnlen(name, sizeof at.sun_path - 2);
    std::memcpy(at.sun_path + 1, name, n);
    return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + n);
  }

  union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    cmsghdr align;
  };

  static int send(int socket, char const* to, ticket t, int fd) {
    sockaddr_un at{};
    iovec data{&t, sizeof t};
    control c{};
    msghdr m{};
    m.msg_name = &at;
    m.msg_namelen = address_of(to, at);
    m.msg_iov = &data;
    m.msg_iovlen = 1;
    m.msg_control = c.bytes;
    m.msg_controllen = sizeof c.bytes;
    cmsghdr* const h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(h), &fd, sizeof fd);
    return ::sendmsg(socket, &m, MSG_NOSIGNAL) == sizeof t ? 0 : errno;
  }

  /// The next descriptor that one of us sent; none when none has come. `from` is -1 for a stranger's.
  static detail::descriptor receive(int socket, std::uint64_t secret, int& from) {
    ticket t{};
    iovec data{&t, sizeof t};
    control c{};
    msghdr m{};
    m.msg_iov = &data;
    m.msg_iovlen = 1;
    m.msg_control = c.bytes;
    m.msg_controllen = sizeof c.bytes;
    auto const n = ::recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    from = n == sizeof t && t.secret == secret ? t.from : -1;
    int fd = -1;
    if (n >= 0)
      for (cmsghdr* h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(h), sizeof fd);
    return detail::descriptor(fd);
  }

  world& world_;
  std::vector<segment> own_;
  std::vector<mappings> mapped_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace fusewire
