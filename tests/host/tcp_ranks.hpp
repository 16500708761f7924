// Ranks that find each other over TCP on this machine, as threads or as processes that have to die.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <fusewire/ranks/tcp_bootstrap.hpp>
#include <fusewire/ranks/tcp_options.hpp>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace fusewire;
using namespace std::chrono_literals;

inline bool contains(std::string const& s, std::string const& piece) { return s.find(piece) != s.npos; }

/// A listener on a port that nobody has; closed with the object.
struct local_port {
  detail::descriptor socket;
  int number = 0;
  explicit local_port(int family = AF_INET, bool listens = false)
      : socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const a = family == AF_INET6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    socklen_t n = family == AF_INET6 ? sizeof six : sizeof four;
    if (::bind(socket.get(), a, n) != 0 || (listens && ::listen(socket.get(), 16) != 0)) return;
    ::getsockname(socket.get(), a, &n);
    number = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  }
};
inline int free_port(int family = AF_INET) { return local_port(family).number; }

inline tcp_options options_of(int rank, int size, int port, std::chrono::milliseconds connect = 10s) {
  tcp_options o;
  o.rank = rank, o.size = size, o.port = port, o.secret = "the secret of these tests", o.connect_timeout = connect,
  o.collective_timeout = 10s;
  return o;
}

/// What each rank's function threw; "" if nothing. `same` finds text in all of them.
struct outcome {
  std::vector<std::string> said;
  std::chrono::steady_clock::duration took{};
  bool all_contain(std::string const& piece) const {
    return std::ranges::all_of(said, [&](auto const& s) { return s.find(piece) != s.npos; });
  }
  bool quiet() const {
    return std::ranges::all_of(said, [](auto const& s) { return s.empty(); });
  }
};

inline outcome at_once(int ranks, std::function<void(int)> const& f) {
  outcome o;
  o.said.resize(std::size_t(ranks));
  auto const start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          f(r);
        } catch (std::exception const& e) {
          o.said[std::size_t(r)] = e.what();
        }
      });
  }
  o.took = std::chrono::steady_clock::now() - start;
  return o;
}

/// f(bootstrap&) on every rank of a session.
inline outcome in_session(int ranks, std::function<void(tcp_bootstrap&)> const& f,
                          std::chrono::milliseconds collective = 10s) {
  int const port = free_port();
  return at_once(ranks, [&](int r) {
    tcp_options o = options_of(r, ranks, port);
    o.collective_timeout = collective;
    auto const session = std::make_shared<tcp_session>(o);
    tcp_bootstrap b(session);
    try {
      f(b);
    } catch (std::exception const& e) {
      b.fail(text("rank ", r, ": ", e.what()));
      throw;
    }
  });
}

inline void print(outcome const& o) {
  for (auto const& s : o.said) UNSCOPED_INFO(s);
}

/// A process that calls f and then waits to be killed.
template <class F>
pid_t child(F f) {
  pid_t const p = ::fork();
  if (p) return p;
  try {
    f();
  } catch (...) {}
  for (;;) ::pause();
}
