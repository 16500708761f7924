// Processes give each other file descriptors, with other programs on the same host that see the sockets and send their
// own.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/memory/descriptor_exchange.hpp>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <thread>

using namespace fusewire;
using namespace std::chrono_literals;

namespace {

/// A file that can be told from every other.
detail::descriptor memory() { return detail::descriptor(::memfd_create("segment", MFD_CLOEXEC)); }
ino_t id_of(detail::descriptor const& d) {
  struct stat s{};
  return ::fstat(d.get(), &s) == 0 ? s.st_ino : 0;
}

/// Ranks 0 to 2, each of which has a descriptor for the others.
struct three_ranks {
  std::vector<detail::descriptor> own;
  std::vector<std::unique_ptr<detail::descriptor_exchange>> at;
  std::vector<detail::descriptor_exchange::address> addresses;

  three_ranks() {
    for (int r = 0; r < 3; ++r) {
      own.push_back(memory());
      at.push_back(std::make_unique<detail::descriptor_exchange>(r));
      addresses.push_back(at.back()->here());
    }
  }
  /// What rank r got wrong, or why it threw.
  std::vector<std::string> run(std::chrono::milliseconds limit = 10s) {
    std::vector<std::string> said(3);
    std::vector<std::jthread> threads;
    for (int r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        try {
          std::vector<int> const peers{(r + 1) % 3, (r + 2) % 3};
          auto const got = at[std::size_t(r)]->run(addresses, peers, own[std::size_t(r)].get(), limit);
          for (std::size_t i = 0; i < peers.size(); ++i)
            if (id_of(got[i]) != id_of(own[std::size_t(peers[i])]))
              said[std::size_t(r)] += text("not the memory of rank ", peers[i]);
        } catch (std::exception const& e) {
          said[std::size_t(r)] = e.what();
        }
      });
    threads.clear();
    return said;
  }
};

/// Sends descriptors to `to` as rank `from` would. How many did not fit the socket's queue does not matter.
void inject(detail::descriptor_exchange::address const& to, std::uint64_t secret, int from,
            std::vector<int> const& fds) {
  detail::descriptor const s(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct {
    std::uint64_t secret;
    std::int32_t from, padding;
  } ticket{secret, from, 0};
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, to.name, sizeof to.name);
  iovec data{&ticket, sizeof ticket};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr m{};
  m.msg_name = &at;
  m.msg_namelen = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + ::strnlen(to.name, sizeof to.name));
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(h), fds.data(), fds.size() * sizeof(int));
  }
  (void)::sendmsg(s.get(), &m, MSG_NOSIGNAL);
}

void none_said_anything(std::vector<std::string> const& said) {
  for (auto const& s : said) {
    INFO(s);
    CHECK(s.empty());
  }
}

}  // namespace

TEST_CASE("descriptor_exchange: every rank gets every other's") { none_said_anything(three_ranks().run()); }

TEST_CASE("descriptor_exchange: the socket's public name says nothing of the secret") {
  three_ranks const ranks;
  std::ifstream list("/proc/net/unix");
  std::string const names{std::istreambuf_iterator<char>(list), {}};
  for (auto const& a : ranks.addresses) {
    std::string const name(a.name, ::strnlen(a.name, sizeof a.name)), secret = text(std::hex, a.secret);
    CHECK(names.find("@" + name) != names.npos);
    CHECK(names.find(secret) == names.npos);
    CHECK_FALSE(secret.starts_with(name));
  }
}

TEST_CASE("descriptor_exchange: what does not know the secret, or carries no descriptor, or several, is not taken for "
          "a rank's") {
  three_ranks ranks;
  auto const evil = memory();
  auto const& victim = ranks.addresses[1];
  inject(victim, victim.secret + 1, 0, {evil.get()});
  inject(victim, victim.secret, 0, {});
  inject(victim, victim.secret, 0, {evil.get(), evil.get()});
  inject(victim, victim.secret, 7, {evil.get()});
  int const before = ::dup(0);
  none_said_anything(ranks.run());
  int const after = ::dup(0);
  CHECK(after == before + 1);  // what other programs sent was closed
  ::close(before), ::close(after);
}

TEST_CASE("descriptor_exchange: another user's is not taken, even with the secret") {
  if (::getuid() != 0) SKIP("only root can be another user");
  three_ranks ranks;
  pid_t const other_program = ::fork();
  if (other_program == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    auto const evil = memory();
    inject(ranks.addresses[1], ranks.addresses[1].secret, 0, {evil.get()});
    ::_exit(evil ? 0 : 2);
  }
  int status = -1;
  ::waitpid(other_program, &status, 0);
  CHECK(status == 0);
  none_said_anything(ranks.run());
}

TEST_CASE("descriptor_exchange: a rank that can open no more files says so immediately") {
  pid_t const p = ::fork();
  if (p == 0) {
    three_ranks ranks;
    int const free = ::dup(0);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = rlim_t(free);  // none is left
    ::close(free);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
    auto const said = ranks.run(5s);
    bool named = false;
    for (auto const& s : said) named |= s.find("this process can open no more files (ulimit -n)") != s.npos;
    ::_exit(named ? 0 : 2);
  }
  int status = -1;
  ::waitpid(p, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("descriptor_exchange: two from one rank are an error, and not the first of them the rank's") {
  three_ranks ranks;
  auto const evil = memory();
  inject(ranks.addresses[1], ranks.addresses[1].secret, 0, {evil.get()});
  inject(ranks.addresses[1], ranks.addresses[1].secret, 0, {evil.get()});
  CHECK(ranks.run(500ms)[1].find("two came from rank 0") != std::string::npos);
}
