// Gives every other process a file descriptor over UNIX sockets. Accepts one from each of these processes, and from no
// other.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include <fusewire/ranks/place.hpp>
#include <fusewire/ranks/tcp_socket.hpp>

namespace fusewire::detail {

/// One rank's part of the exchange. Every process of this host can see and reach the socket. So a descriptor counts
/// only if it comes with the secret of the exchange, which travels over the ranks' bootstrap, and from a process of
/// this rank's user, as the kernel says.
class descriptor_exchange {
 public:
  /// What the other ranks need to know of this one.
  struct address {
    std::uint64_t secret;
    char name[8];  // in the abstract namespace, chosen by the kernel
  };

  /// Fails: runtime_failure.
  explicit descriptor_exchange(int rank)
      : rank_(rank), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (!socket_) fail("socket", errno);
    int const on = 1;
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
      fail("setsockopt(SO_PASSCRED)", errno);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    // The kernel chooses a name
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at.sun_family) != 0) fail("bind", errno);
    socklen_t n = sizeof at;
    if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &n) != 0) fail("getsockname", errno);
    std::memcpy(here_.name, at.sun_path + 1,
                std::min(sizeof here_.name, std::size_t(n) - offsetof(sockaddr_un, sun_path) - 1));
  }

  address const& here() const { return here_; }

  /// Sends `mine` to each of `peers` and returns what each of them sent, in the same order.
  /// Requires: all of them are in the exchange, and `all` is every rank's address.
  /// Fails: runtime_failure when not all have come in time, or when two come from one peer.
  std::vector<descriptor> run(std::vector<address> const& all, std::vector<int> const& peers, int mine,
                              std::chrono::milliseconds limit) {
    std::vector<descriptor> got(peers.size());
    std::size_t sent = 0, came = 0;
    auto const deadline = now() + limit;
    while (sent < peers.size() || came < peers.size()) {
      if (sent < peers.size()) {
        if (int const e = send(all[std::size_t(peers[sent])], mine); e == 0) ++sent;
        else if (e != EAGAIN && e != EINTR && e != ENOBUFS) fail("sendmsg", e);
      }
      int from = -1;
      for (bool more = true; more && came < peers.size() && now() < deadline;) {
        descriptor d = receive(from, more);
        auto const peer = std::ranges::find(peers, from);
        if (!d || peer == peers.end()) continue;
        descriptor& place = got[std::size_t(peer - peers.begin())];
        if (place) throw runtime_failure(text(who(), "two came from rank ", from, "; one of them is not a rank's"));
        place = std::move(d);
        ++came;
      }
      if (sent == peers.size() && came == peers.size()) break;
      if (now() >= deadline)
        throw runtime_failure(text(who(), peers.size() - came, " of ", peers.size(),
                                   " peers' descriptors did not come within ", double(limit.count()) / 1000, " s"));
      pollfd waiting{socket_.get(), POLLIN, 0};
      ::poll(&waiting, 1, sent < peers.size() ? 1 : std::min(100, milliseconds_until(deadline)));
    }
    return got;
  }

 private:
  /// What travels with a descriptor.
  struct ticket {
    std::uint64_t secret;  // the receiver's
    std::int32_t from;
  };
  union control {
    char bytes[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))];
    cmsghdr align;
  };

  std::string who() const { return text("heap: rank ", rank_, ", exchange of file descriptors: "); }
  [[noreturn]] void fail(char const* call, int e) const {
    throw runtime_failure(text(who(), call, ": ", system_error(e)));
  }

  int send(address const& to, int fd) const {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;  // sun_path[0] stays 0: abstract
    std::size_t const n = ::strnlen(to.name, sizeof to.name);
    std::memcpy(at.sun_path + 1, to.name, n);
    ticket t{};
    t.secret = to.secret;
    t.from = rank_;
    iovec data{&t, sizeof t};
    control c{};
    msghdr m{};
    m.msg_name = &at;
    m.msg_namelen = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + n);
    m.msg_iov = &data;
    m.msg_iovlen = 1;
    m.msg_control = c.bytes;
    m.msg_controllen = CMSG_SPACE(sizeof fd);
    cmsghdr* const h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(h), &fd, sizeof fd);
    return ::sendmsg(socket_.get(), &m, MSG_NOSIGNAL) == sizeof t ? 0 : errno;
  }

  /// The next descriptor that a rank of this job sent; `from` becomes that rank. If a message from another process
  /// comes, it is dropped, its descriptors are closed, and the result is empty. `more` becomes false when there was no
  /// message.
  descriptor receive(int& from, bool& more) const {
    ticket t{};
    iovec data{&t, sizeof t};
    control c{};
    msghdr m{};
    m.msg_iov = &data;
    m.msg_iovlen = 1;
    m.msg_control = c.bytes;
    m.msg_controllen = sizeof c.bytes;
    auto const n = ::recvmsg(socket_.get(), &m, MSG_CMSG_CLOEXEC);
    more = n >= 0;
    std::vector<descriptor> came;
    bool ours = n == sizeof t && t.secret == here_.secret, same_user = false;
    for (cmsghdr* h = n >= 0 ? CMSG_FIRSTHDR(&m) : nullptr; h; h = CMSG_NXTHDR(&m, h)) {
      if (h->cmsg_level != SOL_SOCKET) continue;
      if (h->cmsg_type == SCM_CREDENTIALS) {
        ucred sender;
        std::memcpy(&sender, CMSG_DATA(h), sizeof sender);
        same_user = sender.uid == ::getuid();
      }
      for (std::size_t i = 0; h->cmsg_type == SCM_RIGHTS && CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
        came.emplace_back(fd);
      }
    }
    ours = ours && same_user;
    if (ours && came.empty() && (m.msg_flags & MSG_CTRUNC))
      fail("recvmsg: a peer's descriptor has come, and this process can open no more files (ulimit -n)", EMFILE);
    ours = ours && came.size() == 1;
    from = ours ? t.from : -1;
    return ours ? std::move(came[0]) : descriptor();
  }

  int const rank_;
  descriptor const socket_;
  address here_{random_bits(), {}};
};

}  // namespace fusewire::detail
