// What the TCP bootstrap needs of sockets: owned descriptors, addresses, deadlines, and frames that arrive in pieces.
#pragma once
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fusewire/runtime/error.hpp>

namespace fusewire::detail {

using time_point = std::chrono::steady_clock::time_point;
inline time_point now() { return std::chrono::steady_clock::now(); }
/// For poll(): at least 1 ms while `until` is ahead, so that nobody spins towards it.
inline int milliseconds_until(time_point until) {
  auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now()).count();
  return int(std::clamp<long long>(left + 1, 0, 1000 * 3600));
}

/// A file descriptor that is closed with its owner.
class descriptor {
 public:
  explicit descriptor(int fd = -1) : fd_(fd) {}
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

inline std::string system_error(int e) { return std::strerror(e); }

/// What a name and a port stand for: IPv4 and IPv6, in the system's order.
class addresses {
 public:
  addresses(std::string const& name, int port, int flags = 0) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    error_ = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error_ == 0) all_.reset(found);
  }
  /// Why there is none; empty when there is one.
  std::string problem() const { return error_ ? ::gai_strerror(error_) : ""; }
  addrinfo const* first() const { return all_.get(); }

 private:
  struct release {
    void operator()(addrinfo* a) const { ::freeaddrinfo(a); }
  };
  int error_ = 0;
  std::unique_ptr<addrinfo, release> all_;
};

/// "127.0.0.1:4711" or "[::1]:4711".
inline std::string name_of(sockaddr const* a, socklen_t n) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(a, n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) return "an address without a name";
  return a->sa_family == AF_INET6 ? text("[", host, "]:", port) : text(host, ":", port);
}
inline std::string name_of_peer(int fd) {
  sockaddr_storage a{};
  socklen_t n = sizeof a;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &n) == 0 ? name_of(reinterpret_cast<sockaddr*>(&a), n) : "a closed connection";
}

/// A host that vanishes without a word is noticed within about half a minute.
inline void watch_connection(int fd) {
  int const on = 1, idle = 10, interval = 5, probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// A client asks, the hub answers; hello is answered twice.
enum class frame_kind : std::uint32_t {
  hello,     // client: payload `greeting`
  accepted,  // hub: the greeting was right; others are still to come
  welcome,   // hub: every rank has come
  gather,    // client: payload is its contribution
  split,     // client: payload is its color
  done,      // hub: gather: all contributions; split: payload `split_result`
  fail,      // client: the group ends, payload says why; hub: a request cannot be met, payload says why
  leave,     // client: it asks for nothing in this group any more; of group 0: it goes
  gone,      // hub: every rank has gone or died
};

struct frame_header {
  static constexpr std::uint64_t right_magic = 0x31306572697766ull;  // "fwire01"
  std::uint64_t magic = right_magic;
  frame_kind kind{};
  std::uint32_t bytes = 0;  // of the payload
  std::uint64_t group = 0;
};
inline constexpr std::uint32_t largest_payload = 64u << 20;

struct greeting {
  std::int32_t rank, size, process;
  char host[52];
};
struct split_result {
  std::uint64_t group;
  std::int32_t rank, size;
};

struct frame {
  frame_header header;
  std::vector<std::byte> payload;
  std::string text() const { return {reinterpret_cast<char const*>(payload.data()), payload.size()}; }
};

/// One end of a connection. Reading and writing never wait: what could not be sent yet and what came of the next frame is kept.
class connection {
 public:
  connection() = default;
  explicit connection(descriptor d) : socket_(std::move(d)) {}
  int fd() const { return socket_.get(); }
  bool open() const { return bool(socket_); }
  void close() { descriptor const going = std::move(socket_); }
  bool unsent() const { return sent_ < out_.size(); }

  void queue(frame_kind kind, std::uint64_t group, void const* payload, std::size_t bytes) {
    frame_header h;
    h.kind = kind;
    h.bytes = std::uint32_t(bytes);
    h.group = group;
    append(out_, &h, sizeof h);
    append(out_, payload, bytes);
  }
  void queue(frame_kind kind, std::uint64_t group, std::string const& words) { queue(kind, group, words.data(), words.size()); }

  /// False when the other end is gone.
  bool send() {
    while (unsent()) {
      auto const n = ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      sent_ += std::size_t(n);
    }
    out_.clear();
    sent_ = 0;
    return true;
  }
  /// False when the other end is gone; what it sent before can still be taken.
  bool receive() {
    for (;;) {
      std::byte block[16384];
      auto const n = ::recv(fd(), block, sizeof block, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      if (n == 0) return false;
      append(in_, block, std::size_t(n));
      if (std::size_t(n) < sizeof block) return true;
    }
  }
  /// What came is not the beginning of a frame.
  bool garbage() const {
    frame_header h;
    std::size_t const n = std::min(in_.size(), sizeof h.magic);
    if (n != 0 && std::memcmp(in_.data(), &h.magic, n) != 0) return true;
    if (in_.size() < sizeof h) return false;
    std::memcpy(&h, in_.data(), sizeof h);
    return h.kind > frame_kind::gone || h.bytes > largest_payload;
  }
  /// The next frame that has come completely. Requires: !garbage().
  std::optional<frame> take() {
    frame f;
    if (in_.size() < sizeof f.header) return {};
    std::memcpy(&f.header, in_.data(), sizeof f.header);
    auto const payload = in_.begin() + sizeof f.header;
    if (in_.size() < sizeof f.header + f.header.bytes) return {};
    f.payload.assign(payload, payload + f.header.bytes);
    in_.erase(in_.begin(), payload + f.header.bytes);
    return f;
  }

 private:
  static void append(std::vector<std::byte>& to, void const* from, std::size_t bytes) {
    if (bytes == 0) return;
    auto const* p = static_cast<std::byte const*>(from);
    to.insert(to.end(), p, p + bytes);
  }
  descriptor socket_;
  std::vector<std::byte> in_, out_;
  std::size_t sent_ = 0;
};

}  // namespace fusewire::detail
