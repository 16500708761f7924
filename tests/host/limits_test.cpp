// Nothing waits in silence: what a rank's death, its failure, or its absence does to those who wait for it.
#include <catch2/generators/catch_generators.hpp>
#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>

#include "../said_on_stderr.hpp"
#include "tcp_ranks.hpp"

#include <fusewire/ranks/thread_bootstrap.hpp>

TEST_CASE("tcp_session: a rank that has failed says why while it waits for another to end") {
  int const port = free_port();
  std::atomic<bool> over = false;
  std::string meanwhile;
  auto const o = at_once(2, [&](int r) {
    tcp_options a = options_of(r, 2, port);
    a.collective_timeout = a.failure_timeout = 60s;
    auto session = std::make_shared<tcp_session>(a);
    if (r == 1) {
      while (!over) std::this_thread::sleep_for(5ms);
      return;
    }
    said_on_stderr const listen;
    std::jthread const look([&] {
      for (int i = 0; i < 2000 && meanwhile.empty(); ++i) std::this_thread::sleep_for(5ms), meanwhile = listen.text();
      over = true;
    });
    session->fail(0, "rank 0: the reason");
    session.reset();
  });
  print(o);
  CHECK(o.quiet());
  CHECK(contains(meanwhile, "fusewire: rank 0: the reason; waiting up to 60 s for the other ranks to end"));
}

TEST_CASE("tcp_session: a rank that has failed does not wait long for one that does not end") {
  int const port = free_port();
  std::atomic<bool> over = false;
  auto const o = at_once(2, [&](int r) {
    tcp_options a = options_of(r, 2, port);
    a.collective_timeout = 40s, a.failure_timeout = 300ms;
    auto session = std::make_shared<tcp_session>(a);
    if (r == 1) {
      while (!over) std::this_thread::sleep_for(5ms);
      return;
    }
    session->fail(0, "rank 0: the reason");
    session.reset();
    over = true;
  });
  print(o);
  CHECK(o.quiet());
  CHECK(o.took < 20s);
}

TEST_CASE("tcp_session: a rank's death is noticed, whatever a child that it has forked holds") {
  int const victim = GENERATE(1, 0), port = free_port();
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  pid_t const group = child([&] {
    ::setpgid(0, 0);
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(victim, 3, port)));
    b.barrier();  // a rank that the hub has not accepted yet when rank 0 dies tries again, until connect_timeout
    if (::fork() == 0)
      for (;;) ::pause();
    (void)!::write(ready[1], "!", 1);
    for (;;) b.barrier();
  });
  auto const o = at_once(3, [&](int r) {
    if (r == victim) {
      char c;
      (void)!::read(ready[0], &c, 1);
      ::kill(group, SIGKILL);
      return;
    }
    tcp_options a = options_of(r, 3, port);
    a.collective_timeout = 25s, a.failure_timeout = 1s;
    tcp_bootstrap b(std::make_shared<tcp_session>(a));
    try {
      for (;;) b.barrier();
    } catch (std::exception const& e) {
      b.fail(e.what());
      throw;
    }
  });
  ::close(ready[0]), ::close(ready[1]);
  ::kill(-group, SIGKILL);
  ::waitpid(group, nullptr, 0);
  print(o);
  for (int r = 0; r < 3; ++r)
    CHECK((r == victim ||
           contains(o.said[std::size_t(r)], victim == 0 ? "has ended or died" : text("rank 1 (process ", group))));
  CHECK(o.took < 20s);
}

TEST_CASE("tcp_session: a child that a rank has forked does not speak for it") {
  auto const o = in_session(2, [](tcp_bootstrap& b) {
    b.barrier();
    if (b.rank() == 1) return b.barrier();
    pid_t const p = ::fork();
    if (p == 0) {
      try {
        b.barrier();
      } catch (peer_failed const&) {
        ::_exit(7);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(p, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) throw error(text("the child's barrier: status ", status));
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("descriptor: in a forked child it is nobody's, and its number is not given away") {
  detail::descriptor const d(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  pid_t const p = ::fork();
  if (p == 0) {
    int kind = 0;
    socklen_t n = sizeof kind;
    bool const socket = ::getsockopt(d.get(), SOL_SOCKET, SO_TYPE, &kind, &n) == 0;
    bool const open = ::fcntl(d.get(), F_GETFD) >= 0;
    ::_exit(socket ? 1 : open ? 0 : 2);
  }
  int status = 0;
  ::waitpid(p, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("descriptor: none is a standard stream's, where the program was started without them") {
  pid_t const p = ::fork();
  if (p == 0) {
    for (int fd : {0, 1, 2}) ::close(fd);
    detail::descriptor const first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        second(::socket(AF_UNIX, SOCK_STREAM, 0));
    int kind = 0;
    socklen_t n = sizeof kind;
    bool const sockets = ::getsockopt(first.get(), SOL_SOCKET, SO_TYPE, &kind, &n) == 0 &&
                         ::getsockopt(second.get(), SOL_SOCKET, SO_TYPE, &kind, &n) == 0;
    bool const low = first.get() <= 2 || second.get() <= 2 || ::fcntl(0, F_GETFD) >= 0;
    ::_exit(!sockets ? 2 : low ? 1 : 0);
  }
  int status = 0;
  ::waitpid(p, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("thread_bootstrap: different collectives at the same time are an error for all ranks") {
  bool const splits = GENERATE(true, false);
  auto const hub = std::make_shared<thread_bootstrap::hub>(
      3, std::chrono::milliseconds::max());  // no limit does not end immediately
  auto const o = at_once(3, [&](int r) {
    thread_bootstrap b(hub, r);
    b.barrier();
    if (r == 1) std::this_thread::sleep_for(50ms);
    b.barrier();
    std::array<std::byte, 12> const some{};
    // 24 bytes in all: rank 0 wants three times 8
    if (splits && r == 1) (void)b.split(0);
    else (void)b.all_gather(some.data(), splits ? sizeof(int) : std::size_t(std::array{8, 4, 12}[std::size_t(r)]));
  });
  print(o);
  CHECK(o.all_contain("different collectives"));
}

TEST_CASE("thread_bootstrap: a rank that does not come to a collective is named, in bounded time") {
  auto const hub = std::make_shared<thread_bootstrap::hub>(3, 300ms);
  std::atomic<int> told = 0;
  auto const o = at_once(3, [&](int r) {
    thread_bootstrap b(hub, r);
    while (r == 1 && told < 2) std::this_thread::sleep_for(5ms);
    try {
      b.barrier();
    } catch (...) {
      ++told;
      throw;
    }
  });
  print(o);
  CHECK(o.all_contain(
      "this collective cannot complete: rank 1 did not come to a collective in which rank 0, 2 waited for 0.3 s"));
  CHECK(o.took < 20s);
}

TEST_CASE("thread_bootstrap: groups that all have left are given back, with what they keep") {
  auto const hub = std::make_shared<thread_bootstrap::hub>(2);
  std::atomic<int> kept = 0;
  at_once(2, [&](int r) {
    thread_bootstrap b(hub, r);
    for (int i = 0; i < 100; ++i) {
      auto const part = b.split(0);
      part->barrier();
      ++kept;
      part->keep(std::shared_ptr<void>(nullptr, [&](void*) { --kept; }));
    }
  });
  CHECK(hub->groups() <= 2);
  CHECK(kept <= 4);
}

TEST_CASE("place: a host that cannot be told is an error, and not another host") {
  CHECK(boot_id() == boot_id());
  CHECK(boot_id().size() == 36);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit const none{0, before.rlim_max};
  std::string said;
  ::setrlimit(RLIMIT_NOFILE, &none);
  try {
    boot_id();
  } catch (runtime_failure const& e) {
    said = e.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(contains(said, "which host this is cannot be read from /proc/sys/kernel/random/boot_id: Too many open files"));
}
