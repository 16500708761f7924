// Sockets for the TCP bootstrap: addresses, deadlines, and frames that arrive in parts.
#pragma once
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fusewire/ranks/file_descriptor.hpp>
#include <fusewire/ranks/error.hpp>

namespace fusewire::detail {

using time_point = std::chrono::steady_clock::time_point;
inline time_point now() { return std::chrono::steady_clock::now(); }
inline double seconds_of(std::chrono::milliseconds t) { return double(t.count()) / 1000; }
/// A timeout for poll(): at least 1 ms until `until` has come, so that no thread spins towards it.
inline int milliseconds_until(time_point until) {
  auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now()).count();
  return int(std::clamp<long long>(left + 1, 0, 1000 * 3600));
}

/// The addresses of a name and a port: IPv4 and IPv6, in the system's order.
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
  /// Why there is no address; empty when there is one.
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
  if (::getnameinfo(a, n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an address without a name";
  return a->sa_family == AF_INET6 ? text("[", host, "]:", port) : text(host, ":", port);
}
inline std::string name_of_peer(int fd) {
  sockaddr_storage a{};
  socklen_t n = sizeof a;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &n) == 0 ? name_of(reinterpret_cast<sockaddr*>(&a), n)
                                                                     : "a closed connection";
}

/// Makes the system notice within about half a minute when the other host vanishes without a word.
inline void watch_connection(int fd) {
  int const on = 1, idle = 10, interval = 5, probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// A client asks, and the hub answers.
enum class frame_kind : std::uint32_t {
  challenge,  // hub, first frame: the payload is a number that it uses once
  hello,      // client: the payload is a `greeting`
  accepted,   // hub: the client knows the job's secret; the payload proves that the hub does
  welcome,    // hub: every rank has come
  gather,     // client: the payload is its contribution
  split,      // client: the payload is its color
  done,       // hub: the payload is all contributions (gather), or a `split_result` (split)
  fail,       // client: the group ends; hub: a request cannot be served; the payload says why
  failed,     // hub: the group has ended, because of a failure; the payload says why. It answers no request
  leave,      // client: it asks for nothing more in this group; of group 0: it ends
  gone,       // hub: every rank has left the group; of group 0: has left or died
};

struct frame_header {
  static constexpr std::uint64_t right_magic = 0x33306572697766ull;  // "fwire03"
  std::uint64_t magic = right_magic;
  frame_kind kind{};
  std::uint32_t bytes = 0;  // of the payload
  std::uint64_t group = 0;
};
inline constexpr std::uint32_t largest_request = 1u << 20;  // payload of a rank
inline constexpr std::uint32_t largest_answer = 64 * largest_request;

/// What a rank says about itself, and the proof that it belongs to the job (job_key::proof_of_rank).
struct greeting {
  std::uint64_t nonce, layout;
  std::int32_t version, rank, size, process;
  char host[56];
  std::uint64_t proof;
};
struct split_result {
  std::uint64_t group;
  std::int32_t rank, size;
};

/// Text from another process, made fit for a log: one line, in ASCII.
inline std::string printable(std::string_view said) {
  constexpr char digits[] = "0123456789abcdef";
  std::string s;
  for (char const c : said) {
    if (c >= ' ' && c <= '~') s += c;
    else s += {'\\', 'x', digits[(c >> 4) & 15], digits[c & 15]};
  }
  return s;
}

struct frame {
  frame_header header;
  std::vector<std::byte> payload;
  std::string text() const { return printable({reinterpret_cast<char const*>(payload.data()), payload.size()}); }
  /// The payload, if it is a T.
  template <class T>
  std::optional<T> as() const {
    T x;
    if (payload.size() != sizeof x) return std::nullopt;
    std::memcpy(&x, payload.data(), sizeof x);
    return x;
  }
};

/// One end of a connection. Reading and writing never wait: bytes that cannot be sent yet, and the bytes of an
/// incomplete frame, are kept.
class connection {
 public:
  connection() = default;
  /// `largest`: payloads up to this size are accepted; a greeting's size, until the other end has proved to belong to
  /// the job.
  explicit connection(descriptor d, std::uint32_t largest = sizeof(greeting))
      : socket_(std::move(d)), largest_(largest) {}
  void accept_up_to(std::uint32_t bytes) { largest_ = bytes; }
  int fd() const { return socket_.get(); }
  bool open() const { return bool(socket_); }
  void close() { *this = {}; }
  bool unsent() const { return sent_ < out_.size(); }

  void queue(frame_kind kind, std::uint64_t group, void const* payload, std::size_t bytes) {
    frame_header h;
    h.kind = kind;
    h.bytes = std::uint32_t(bytes);
    h.group = group;
    append(out_, &h, sizeof h);
    append(out_, payload, bytes);
  }
  void queue(frame_kind kind, std::uint64_t group, std::string const& words) {
    queue(kind, group, words.data(), words.size());
  }

  /// Sends what is queued, as far as possible. Returns false when the other end is gone.
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
  /// Reads up to the end of one frame and no further. Returns false when the other end is gone; next_frame() may still
  /// return a frame.
  bool receive() {
    while (!garbage() && in_.size() < wanted()) {
      std::byte block[16384];
      auto const n = ::recv(fd(), block, std::min(sizeof block, wanted() - in_.size()), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      if (n == 0) return false;
      append(in_, block, std::size_t(n));
    }
    return true;
  }
  /// Whether the other end has closed, and no more frames will come.
  bool ended() const {
    char next;
    return ::recv(fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  /// Whether the bytes that came are not the beginning of a frame, or of a frame that is too long.
  bool garbage() const {
    frame_header h;
    std::size_t const n = std::min(in_.size(), sizeof h.magic);
    if (n != 0 && std::memcmp(in_.data(), &h.magic, n) != 0) return true;
    if (in_.size() < sizeof h) return false;
    std::memcpy(&h, in_.data(), sizeof h);
    return h.kind > frame_kind::gone || h.bytes > largest_;
  }
  /// The frame that has come completely, if there is one. Requires: !garbage().
  std::optional<frame> next_frame() {
    if (in_.size() < sizeof(frame_header) || in_.size() < wanted()) return {};
    frame f;
    std::memcpy(&f.header, in_.data(), sizeof f.header);
    f.payload.assign(in_.begin() + sizeof f.header, in_.end());
    in_.clear();
    return f;
  }

 private:
  static void append(std::vector<std::byte>& to, void const* from, std::size_t bytes) {
    if (bytes == 0) return;
    auto const* p = static_cast<std::byte const*>(from);
    to.insert(to.end(), p, p + bytes);
  }
  /// Bytes of the incoming frame, as far as they are known.
  std::size_t wanted() const {
    frame_header h;
    if (in_.size() < sizeof h) return sizeof h;
    std::memcpy(&h, in_.data(), sizeof h);
    return sizeof h + h.bytes;
  }

  descriptor socket_;
  std::uint32_t largest_ = 0;
  std::vector<std::byte> in_, out_;
  std::size_t sent_ = 0;
};

}  // namespace fusewire::detail
