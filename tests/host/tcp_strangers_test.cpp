// Other programs on rank 0's port, and ranks of other jobs: they get nothing, they cost little, and the job goes on.
#include <arpa/inet.h>
#include <catch2/generators/catch_generators.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "../said_on_stderr.hpp"
#include "tcp_ranks.hpp"

using detail::frame_kind;

namespace {

constexpr char secret[] = "the secret of these tests";
detail::job_key key_of(std::string const& words = secret) { return {words, ""}; }

/// Somebody who speaks to rank 0's port as it likes. No wait is longer than 10 s.
class guest {
 public:
  /// Comes as soon as somebody listens.
  explicit guest(int port) {
    for (auto const until = detail::now() + 10s; detail::now() < until; std::this_thread::sleep_for(5ms))
      if (knock(port)) return;
  }
  static bool listens(int port) { return guest().knock(port); }

  bool send(void const* p, std::size_t bytes) {
    return ::send(socket_.get(), p, bytes, MSG_NOSIGNAL) == ssize_t(bytes);
  }
  void send(frame_kind kind, void const* payload, std::size_t bytes, std::uint64_t group = 0) {
    send_header(kind, std::uint32_t(bytes), group);
    send(payload, bytes);
  }
  void send_header(frame_kind kind, std::uint32_t bytes, std::uint64_t group = 0) {
    detail::frame_header h;
    h.kind = kind, h.bytes = bytes, h.group = group;
    send(&h, sizeof h);
  }
  /// What it sends goes when it closes the connection, together with that.
  void wait_until_the_end() {
    int const on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
  }
  /// The next frame; nothing when the connection ends first.
  std::optional<detail::frame> next() {
    detail::frame f;
    if (!read(&f.header, sizeof f.header)) return std::nullopt;
    f.payload.resize(f.header.bytes);
    if (!read(f.payload.data(), f.payload.size())) return std::nullopt;
    return f;
  }
  /// The next frame that is not about a group that all have left.
  std::optional<detail::frame> answer() {
    auto f = next();
    while (f && f->header.kind == frame_kind::gone) f = next();
    return f;
  }
  /// The other end has closed the connection, and said nothing before.
  bool turned_away() {
    char c;
    return !read(&c, 1) && !late_;
  }
  /// Waits for the challenge, and says who it is.
  void introduce(int rank, int size, detail::job_key const& key, std::string const& host = "here",
                 std::uint64_t layout = detail::layout_hash) {
    auto const f = next();
    if (!f) return;
    detail::greeting g{};
    g.nonce = 5, g.layout = layout, g.version = FUSEWIRE_VERSION, g.rank = rank, g.size = size, g.process = 4711;
    std::memcpy(g.host, host.data(), host.size());
    g.proof = key.proof_of_rank(f->as<std::uint64_t>().value(), g);
    send(frame_kind::hello, &g, sizeof g);
  }

 private:
  guest() = default;
  bool knock(int port) {
    socket_ = detail::descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(std::uint16_t(port));
    timeval const limit{10, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
  }
  bool read(void* to, std::size_t bytes) {
    for (auto* p = static_cast<char*>(to); bytes;) {
      pollfd waiting{socket_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) <= 0) return late_ = true, false;
      auto const n = ::recv(socket_.get(), p, bytes, 0);
      if (n <= 0) return false;
      p += n, bytes -= std::size_t(n);
    }
    return true;
  }

  detail::descriptor socket_;
  bool late_ = false;
};

struct ends {
  std::atomic<bool>& done;
  bool counts = true;
  ~ends() {
    if (counts) done = true;
  }
};

/// Ranks 0 and 1 meet; rank 1 starts when `before`, which speaks to the port, is done.
outcome with_guests(
    std::function<void(int port)> const& before,
    std::function<void(tcp_options&)> const& change = [](tcp_options&) {}) {
  int const port = free_port();
  std::atomic<bool> done = false;
  return at_once(3, [&](int r) {
    if (r == 2) {
      ends const at_last{done};
      return before(port);
    }
    while (r == 1 && !done) std::this_thread::sleep_for(5ms);
    tcp_options o = options_of(r, 2, port, 30s);
    change(o);
    tcp_bootstrap b(std::make_shared<tcp_session>(o));
    for (int i = 0; i < 10; ++i) b.barrier();
  });
}

void expect(bool ok, char const* what) {
  if (!ok) throw error(what);
}

/// A child that ends when f does, with 0 unless f throws.
template <class F>
pid_t process(F f) {
  pid_t const p = ::fork();
  if (p) return p;
  try {
    f();
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    ::_exit(1);
  }
  ::_exit(0);
}
/// Its status, as waitpid() says it; it is killed after 20 s.
int status_of(pid_t p) {
  int status = 0;
  for (auto const until = detail::now() + 20s; detail::now() < until; std::this_thread::sleep_for(10ms))
    if (::waitpid(p, &status, WNOHANG) == p) return status;
  ::kill(p, SIGKILL);
  ::waitpid(p, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("siphash: the vectors of its authors") {
  std::array<unsigned char, 16> bytes{};
  for (int i = 0; i < 16; ++i) bytes[std::size_t(i)] = static_cast<unsigned char>(i);
  detail::siphash_key const key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  CHECK(detail::siphash(key, bytes.data(), 0) == 0x726fdb47dd0e0e31);
  CHECK(detail::siphash(key, bytes.data(), 8) == 0x93f5f5799a932462);
  CHECK(detail::siphash(key, bytes.data(), 15) == 0xa129ca6149be45e5);
}

TEST_CASE("tcp_hub: who does not know the secret is no rank, and cannot end the job, whatever it says") {
  auto const o = with_guests([](int port) {
    guest impostor(port), wrong_size(port), without_a_proof(port), other_kind(port);
    impostor.introduce(1, 2, key_of("another secret"));
    expect(impostor.turned_away(), "an impostor of rank 1 was answered");
    wrong_size.introduce(1, 3, key_of("another secret"));
    expect(wrong_size.turned_away(), "a connection with another WORLD_SIZE was answered");
    expect(without_a_proof.next().has_value(), "no challenge");
    detail::greeting g{};
    g.rank = 1, g.size = 2;
    without_a_proof.send(frame_kind::hello, &g, sizeof g);
    expect(without_a_proof.turned_away(), "a connection without a proof was answered");
    expect(other_kind.next().has_value(), "no challenge");
    other_kind.send(frame_kind::fail, "end it", 6);
    expect(other_kind.turned_away(), "an unauthenticated failure was answered");
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_hub: a rank that has timed out waiting for its answer comes again") {
  auto const o = with_guests([](int port) {
    guest impatient(port);
    impatient.wait_until_the_end();
    impatient.introduce(1, 2, key_of());
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_hub: a proof is of one connection") {
  auto const o = with_guests([](int port) {
    detail::greeting g{};
    {
      guest first(port);
      auto const challenge = first.next();
      g.rank = 5, g.size = 2;  // not accepted, so that the job goes on
      g.proof = key_of().proof_of_rank(challenge->as<std::uint64_t>().value() + 1, g);
    }
    guest second(port);
    expect(second.next().has_value(), "no challenge");
    second.send(frame_kind::hello, &g, sizeof g);
    expect(second.turned_away(), "a proof for another challenge was accepted");
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_session: who listens on rank 0's port and does not know the secret is not believed") {
  local_port const squatter(AF_INET, true);
  std::jthread const service([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      pollfd p{squatter.socket.get(), POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      detail::connection c(detail::descriptor(::accept(squatter.socket.get(), nullptr, nullptr)));
      std::uint64_t const number = 1;
      c.queue(frame_kind::challenge, 0, &number, sizeof number);
      (void)c.send();
      pollfd hello{c.fd(), POLLIN, 0};
      ::poll(&hello, 1, 1000);
      if (!c.receive() || !c.next_frame()) continue;
      c.queue(frame_kind::accepted, 0, &number, sizeof number);
      c.queue(frame_kind::welcome, 0, "");
      (void)c.send();
    }
  });
  auto const o = at_once(1, [&](int) { tcp_session s(options_of(1, 2, squatter.number, 500ms)); });
  print(o);
  CHECK(contains(o.said[0], "what listens there does not know the secret"));
}

TEST_CASE("tcp_hub: two jobs on one port do not mix, be it that their secrets differ or torchrun's names of them") {
  bool const by_secret = GENERATE(true, false);
  int const port = free_port();
  std::atomic<bool> done = false;
  auto const o = at_once(3, [&](int r) {
    tcp_options a = options_of(r == 0 ? 0 : 1, 2, port, r == 2 ? 500ms : 10s);
    a.run = "first job";
    if (r == 2) (by_secret ? a.secret : a.run) = "the second job's";
    while (r == 1 && !done) std::this_thread::sleep_for(5ms);
    ends const at_last{done, r == 2};
    tcp_bootstrap(std::make_shared<tcp_session>(a)).barrier();
  });
  print(o);
  CHECK((o.said[0].empty() && o.said[1].empty()));
  CHECK(contains(o.said[2], "is FUSEWIRE_JOB the same for all ranks"));
}

TEST_CASE("tcp_hub: ranks built from different layouts of memory are told") {
  int const port = free_port();
  auto const o = at_once(3, [&](int r) {
    tcp_options a = options_of(r, 3, port);
    a.layout += r == 2;
    tcp_session s(a);
  });
  print(o);
  CHECK(o.all_contain("rank 2 (process "));
  CHECK(o.all_contain(text("was built with fusewire ", FUSEWIRE_VERSION, ", layout ")));
  CHECK(o.took < 8s);
}

TEST_CASE("tcp_hub: what a rank says is escaped before it reaches a log") {
  int const port = free_port();
  auto const o = at_once(2, [&](int r) {
    if (r == 0) tcp_session s(options_of(0, 2, port));
    guest loud(port);
    loud.introduce(1, 3, key_of(), "evil\x1b[31mRED\nfusewire: all is well\x9b");
    auto const accepted = loud.next(), why = loud.next();
    throw error(why->text());
  });
  print(o);
  CHECK(o.all_contain("evil\\x1b[31mRED\\x0afusewire: all is well\\x9b"));
  CHECK(o.all_contain("has WORLD_SIZE 3"));
  for (auto const& s : o.said) CHECK(std::ranges::all_of(s, [](char c) { return c >= ' ' && c <= '~'; }));
}

TEST_CASE("tcp_hub: a connection that sends nothing, or little, is closed while others are waited for") {
  auto const o = with_guests([](int port) {
    guest silent(port), slow(port);
    expect(silent.next().has_value() && slow.next().has_value(), "no challenge");
    detail::frame_header h;
    h.kind = frame_kind::hello, h.bytes = sizeof(detail::greeting);
    slow.send(&h, sizeof h);
    expect(silent.turned_away(), "a silent connection was kept");
    expect(slow.turned_away(), "a connection that does not finish was kept");
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_hub: an unauthenticated connection cannot announce more than a greeting, nor send it") {
  auto const o = with_guests([](int port) {
    for (std::uint32_t const bytes : {std::uint32_t(sizeof(detail::greeting) + 1), 1u << 20, 64u << 20, 0xffffffffu}) {
      guest g(port);
      expect(g.next().has_value(), "no challenge");
      g.send_header(frame_kind::hello, bytes);
      expect(g.turned_away(), "a long frame was waited for");
    }
    guest endless(port);
    expect(endless.next().has_value(), "no challenge");
    endless.send_header(frame_kind::hello, 64u << 20);
    std::vector<char> const block(1 << 20);
    int sent = 0;
    while (sent < 64 && endless.send(block.data(), block.size())) ++sent;
    expect(sent < 64, "64 MiB were read of an unauthenticated connection");
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_hub: a rank that announces more than a collective takes is named") {
  int const port = free_port();
  auto const o = at_once(2, [&](int r) {
    if (r == 0) {
      tcp_bootstrap(std::make_shared<tcp_session>(options_of(0, 2, port))).barrier();
      return;
    }
    guest g(port);
    g.introduce(1, 2, key_of());
    g.send_header(frame_kind::gather, detail::largest_request + 1);
    while (g.next());
  });
  print(o);
  CHECK(contains(o.said[0], "rank 1 (process 4711 on here, "));
  CHECK(contains(o.said[0], "sent what is no frame, or one of more than 1048576 bytes"));
  CHECK(o.took < 8s);
}

TEST_CASE("tcp_hub: nobody can come in any more when all ranks have") {
  bool listens = true;
  int const port = free_port();
  auto const o = at_once(2, [&](int r) {
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(r, 2, port)));
    if (r == 0) listens = guest::listens(port);
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
  CHECK_FALSE(listens);
}

TEST_CASE("tcp_hub: pending connections that take all descriptors do not keep the ranks out") {
  int const port = free_port();
  pid_t const rank_0 = process([&] {
    rlimit const few{40, 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
    tcp_bootstrap(std::make_shared<tcp_session>(options_of(0, 2, port))).barrier();
  });
  std::vector<guest> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(port);
  auto const o =
      at_once(1, [&](int) { tcp_bootstrap(std::make_shared<tcp_session>(options_of(1, 2, port, 8s))).barrier(); });
  print(o);
  CHECK(o.quiet());
  CHECK(status_of(rank_0) == 0);
}

TEST_CASE("tcp_hub: ranks that are missing because no descriptor is left are not the only thing that is said") {
  int const port = free_port();
  int said[2];
  REQUIRE(::pipe(said) == 0);
  detail::descriptor const end(said[0]);
  pid_t const rank_0 = process([&] {
    std::vector<detail::descriptor> held;
    local_port const reserved;
    try {
      std::jthread const take([&] {
        std::this_thread::sleep_for(100ms);
        for (int fd; (fd = ::open("/dev/null", O_RDONLY)) >= 0;) held.emplace_back(fd);
      });
      rlimit const few{40, 40};
      ::setrlimit(RLIMIT_NOFILE, &few);
      tcp_session s(options_of(0, 2, port, 1s));
    } catch (bootstrap_failed const& e) {
      (void)!::write(said[1], e.what(), std::strlen(e.what()));
    }
  });
  ::close(said[1]);
  std::this_thread::sleep_for(400ms);
  guest const late(port);
  std::string text(4096, '\0');
  auto const n = ::read(end.get(), text.data(), text.size());
  text.resize(n > 0 ? std::size_t(n) : 0);
  CHECK(status_of(rank_0) == 0);
  CAPTURE(text);
  CHECK(contains(text, "missing: rank 1"));
  CHECK(contains(text, "connections could not be accepted: Too many open files"));
}

TEST_CASE("tcp_hub: rank 0 without memory for what ranks send ends the job, not its process") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("a sanitizer needs the address space that this takes away");
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  SKIP("a sanitizer needs the address space that this takes away");
#endif
#endif
  int const port = free_port();
  std::vector<std::byte> const mine(1 << 16);
  pid_t const rank_0 = process([&] {
    tcp_options a = options_of(0, 3, port);
    a.failure_timeout = 1s;
    auto const session = std::make_shared<tcp_session>(a);
    rlimit limit{std::size_t(1) << 28, std::size_t(1) << 28};
    std::FILE* const statm = std::fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (std::fscanf(statm, "%lu", &pages) == 1) limit.rlim_cur = limit.rlim_max = pages * 4096 + (64u << 20);
    std::fclose(statm);
    ::setrlimit(RLIMIT_AS, &limit);
    tcp_bootstrap b(session);
    said_on_stderr const listen;
    try {
      for (int i = 0; i < 1000; ++i) static_cast<bootstrap&>(b).all_gather(mine.data(), mine.size());
    } catch (peer_failed const& e) {
      b.fail(e.what());
      expect(contains(e.what(), "has ended or died"), e.what());
      expect(contains(listen.text(), "fusewire: rank 0 cannot connect the ranks any more: std::bad_alloc"),
             "nothing was said");
      return;
    }
    throw error("all was kept");
  });
  guest greedy(port), polite(port);  // one never reads what comes of gathers; the other does
  greedy.introduce(1, 3, key_of());
  polite.introduce(2, 3, key_of());
  bool met = polite.next() && polite.next();
  while (met) {
    greedy.send(frame_kind::gather, mine.data(), mine.size());
    polite.send(frame_kind::gather, mine.data(), mine.size());
    auto const f = polite.next();
    met = f && f->header.kind == frame_kind::done;
  }
  CHECK(status_of(rank_0) == 0);
}

TEST_CASE("tcp_hub: groups that all have left are given back") {
  int const port = free_port();
  auto const o = at_once(2, [&](int r) {
    if (r == 0) {
      tcp_bootstrap b(std::make_shared<tcp_session>(options_of(0, 2, port)));
      for (int i = 0; i < 3; ++i) b.split(0)->split(0)->barrier();
      b.barrier();
      return;
    }
    guest g(port);
    g.introduce(1, 2, key_of());
    expect(g.next() && g.next(), "not welcome");
    int const color = 0;
    std::vector<std::uint64_t> groups{0};
    for (int i = 0; i < 3; ++i) {
      groups.resize(1);
      for (int level = 0; level < 2; ++level) {
        g.send(frame_kind::split, &color, sizeof color, groups.back());
        groups.push_back(g.answer()->as<detail::split_result>().value().group);
      }
      g.send(frame_kind::gather, nullptr, 0, groups[2]);
      expect(g.answer()->header.kind == frame_kind::done, "the group did not meet");
      g.send(frame_kind::leave, nullptr, 0, groups[1]);  // and so the one within
    }
    g.send(frame_kind::gather, nullptr, 0, 0);  // rank 0 has left them
    expect(g.answer()->header.kind == frame_kind::done, "the ranks did not meet");
    for (std::size_t i : {1, 2}) {
      g.send(frame_kind::gather, nullptr, 0, groups[i]);
      auto const answer = g.answer()->text();
      if (!contains(answer, "is not a member of group")) throw error(answer);
    }
    g.send(frame_kind::leave, nullptr, 0, 0);
    while (g.next());
  });
  print(o);
  CHECK(o.quiet());
}

namespace {

/// XDG_RUNTIME_DIR is an empty folder of this test's.
struct runtime_folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("fusewire-test-" + std::to_string(::getpid()));
  std::optional<std::string> before = detail::variable("XDG_RUNTIME_DIR");
  runtime_folder() {
    std::filesystem::create_directories(path);
    ::setenv("XDG_RUNTIME_DIR", path.c_str(), 1);
  }
  ~runtime_folder() {
    before ? ::setenv("XDG_RUNTIME_DIR", before->c_str(), 1) : ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(path);
  }
  std::string file(int port) const { return path / text("fusewire-", ::geteuid(), "-", port); }
};

}  // namespace

TEST_CASE("job_file: the user who left it can read it, whatever the umask") {
  runtime_folder const folder;
  int const port = 1235;
  mode_t const before = ::umask(0777);
  detail::job_file const file(port);
  ::umask(before);
  struct stat s{};
  REQUIRE(::stat(folder.file(port).c_str(), &s) == 0);
  CHECK(s.st_mode == (S_IFREG | 0600));
}

TEST_CASE("job_file: ranks that were given no secret agree on one that nobody else can read") {
  runtime_folder const folder;
  int const port = free_port();
  std::ofstream(folder.file(port)) << "what an earlier job left behind";
  struct stat meanwhile{};
  bool afterwards = true;
  auto const o = at_once(2, [&](int r) {
    tcp_options a = options_of(r, 2, port);
    a.secret.clear();
    if (r == 1) {
      for (int i = 0; i < 1000 && !guest::listens(port); ++i) std::this_thread::sleep_for(5ms);
      std::this_thread::sleep_for(100ms);
      (void)::stat(folder.file(port).c_str(), &meanwhile);
    }
    tcp_bootstrap b(std::make_shared<tcp_session>(a));
    if (r == 0) afterwards = std::filesystem::exists(folder.file(port));
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
  CHECK_FALSE(afterwards);
  CHECK(meanwhile.st_mode == (S_IFREG | 0600));
  CHECK(meanwhile.st_size == 32);
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("job_file: a file that somebody else could have written is not believed") {
  runtime_folder const folder;
  int const port = 1234;
  std::string problem;
  CHECK(detail::job_file::read(port, problem).empty());
  CHECK(contains(problem, "No such file"));
  auto const refused = [&](char const* how) {
    std::string const said = detail::job_file::read(port, problem);
    INFO(how << ": " << problem);
    CHECK(said.empty());
    CHECK(contains(problem, "FUSEWIRE_JOB"));
  };
  std::ofstream(folder.file(port)) << "0123456789abcdef";
  ::chmod(folder.file(port).c_str(), 0644);
  refused("others read it");
  ::chmod(folder.file(port).c_str(), 0600);
  CHECK(detail::job_file::read(port, problem) == "0123456789abcdef");
  if (::chown(folder.file(port).c_str(), 65534, 65534) == 0) refused("another user's");
  std::filesystem::remove(folder.file(port));
  std::ofstream(folder.path / "elsewhere") << "0123456789abcdef";
  ::chmod((folder.path / "elsewhere").c_str(), 0600);
  std::filesystem::create_symlink(folder.path / "elsewhere", folder.file(port));
  refused("a link");
}
