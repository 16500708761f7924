// Ranks that find each other over TCP: collectives, groups, and what each rank is told when something is wrong. Ranks
// are threads here, except where one has to die.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/ranks/run.hpp>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <atomic>

#include "tcp_ranks.hpp"

namespace {

struct environment {
  explicit environment(std::initializer_list<std::pair<char const*, char const*>> variables) {
    for (char const* name : {"MASTER_ADDR", "MASTER_PORT", "FUSEWIRE_MASTER_PORT", "FUSEWIRE_CONNECT_SECONDS",
                             "FUSEWIRE_COLLECTIVE_SECONDS", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT", "FUSEWIRE_JOB", "SLURM_STEP_ID"})
      save(name);
    for (auto const& l : detail::launchers)
      for (char const* name : {l.rank, l.size, l.local_rank, l.near})
        if (name) save(name);
    for (auto const& [name, value] : variables) ::setenv(name, value, 1);
  }
  void save(char const* name) {
    char const* const before = std::getenv(name);
    saved.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
    ::unsetenv(name);
  }
  ~environment() {
    for (auto const& [name, value] : saved) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  std::vector<std::pair<char const*, std::optional<std::string>>> saved;
};

std::string refusal(std::initializer_list<std::pair<char const*, char const*>> variables) {
  environment const e(variables);
  try {
    tcp_options::from_environment();
  } catch (bad_argument const& x) {
    return x.what();
  }
  return "";
}

}  // namespace

TEST_CASE("tcp_options: what torchrun sets is read") {
  {
    environment const e({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"MASTER_ADDR", "host7"},
                         {"MASTER_PORT", "12345"},
                         {"FUSEWIRE_CONNECT_SECONDS", "7"},
                         {"FUSEWIRE_JOB", "0123456789abcdef"},
                         {"TORCHELASTIC_RUN_ID", "a run"}});
    auto const o = tcp_options::from_environment();
    CHECK((o.rank == 5 && o.size == 8 && o.local_rank == 1 && o.address == "host7" && o.port == 12345));
    CHECK((o.connect_timeout == 7s && o.collective_timeout == 600s && o.secret == "0123456789abcdef" &&
           o.run == "a run"));
    ::setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
    CHECK(tcp_options::from_environment().run == "a run\nstart 2");
  }
  {
    environment const e({{"RANK", "2"}, {"WORLD_SIZE", "3"}});
    auto const o = tcp_options::from_environment();
    CHECK((o.local_rank == 2 && o.address == "127.0.0.1" && o.port == 29500 && o.connect_timeout == 60s));
  }
  {
    environment const e(
        {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "1000"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    CHECK(tcp_options::from_environment().port == 1001);
    ::setenv("FUSEWIRE_MASTER_PORT", "2000", 1);
    CHECK(tcp_options::from_environment().port == 2000);
  }
}

TEST_CASE("tcp_options: what srun and mpirun set is read") {
  auto const read = [](std::initializer_list<std::pair<char const*, char const*>> variables, int rank, int size,
                       int local_rank) {
    environment const e(variables);
    CHECK(started_as_processes());
    auto const o = tcp_options::from_environment();
    CHECK((o.rank == rank && o.size == size && o.local_rank == local_rank));
  };
  read({{"OMPI_COMM_WORLD_RANK", "5"},
        {"OMPI_COMM_WORLD_SIZE", "8"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
        {"MASTER_ADDR", "host7"},
        {"PMI_RANK", "0"},
        {"PMI_SIZE", "2"}},
       5, 8, 1);
  read({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}, 3, 4, 3);
  read({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}}, 3, 4, 2);
  read({{"SLURM_PROCID", "6"},
        {"SLURM_NTASKS", "8"},
        {"SLURM_LOCALID", "2"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_STEP_NUM_NODES", "1"}},
       6, 8, 2);
  read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "1"}}, 1, 2,
       1);  // torchrun that srun has started
  {
    environment const e({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
    CHECK_FALSE(started_as_processes());  // a batch script
  }
  {
    environment const e({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}});
    CHECK_FALSE(started_as_processes());  // a shell that srun has started
  }
  CHECK(contains(refusal({{"SLURM_PROCID", "9"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}}),
                 "SLURM_PROCID = 9; expected 0 to 7"));
  CHECK(contains(
      refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "2"}}),
      "MASTER_ADDR is not set, and SLURM_STEP_NUM_NODES = 2 of 8 ranks"));
  CHECK(contains(
      refusal({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
      "expected the name of rank 0's host, because there are several hosts"));
}

TEST_CASE("tcp_options: what makes no sense is refused by name") {
  CHECK(contains(refusal({{"RANK", "0"}}), "WORLD_SIZE is not set"));
  CHECK(contains(refusal({{"WORLD_SIZE", "2"}}), "RANK is not set; torchrun"));
  CHECK(contains(refusal({{"WORLD_SIZE", "0"}, {"RANK", "0"}}), "WORLD_SIZE = 0; expected 1 to 64"));
  CHECK(contains(refusal({{"WORLD_SIZE", "65"}, {"RANK", "0"}}), "WORLD_SIZE = 65"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "4"}}), "RANK = 4; expected 0 to 3"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "-1"}}), "RANK = -1"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4x"}, {"RANK", "1"}}), "WORLD_SIZE = 4x"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_PORT", "70000"}}),
                 "MASTER_PORT = 70000; expected 1 to 65535"));
  CHECK(contains(
      refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
      "MASTER_PORT = 65535; expected 1 to 65534"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"FUSEWIRE_CONNECT_SECONDS", "soon"}}),
                 "FUSEWIRE_CONNECT_SECONDS = soon"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"FUSEWIRE_JOB", "password"}}),
                 "FUSEWIRE_JOB has 8 characters; expected 16 or more"));
}

TEST_CASE("tcp_bootstrap: gathers, in rank order, of any size") {
  int const ranks = GENERATE(1, 2, 3, 8);
  auto const o = in_session(ranks, [&](tcp_bootstrap& b) {
    for (int i = 0; i < 100; ++i) {
      auto const all = b.all_gather(b.rank() + 10 * i);
      for (int p = 0; p < ranks; ++p)
        if (all[std::size_t(p)] != p + 10 * i)
          throw error(text("round ", i, ": rank ", p, " said ", all[std::size_t(p)]));
    }
    std::vector<std::byte> const large(100'000, std::byte(b.rank() + 1));
    auto const all = b.all_gather(large.data(), large.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != std::byte(i / large.size() + 1)) throw error(text("byte ", i, " of the large gather"));
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: groups of groups, which come and go") {
  auto const o = in_session(6, [](tcp_bootstrap& b) {
    for (int i = 0; i < 20; ++i) {
      auto const part = b.split(b.rank() % 2);
      if (part->size() != 3 || part->rank() != b.rank() / 2) throw error("wrong place in the group");
      auto const members = part->all_gather(b.rank());
      for (int m = 0; m < 3; ++m)
        if (members[std::size_t(m)] != b.rank() % 2 + 2 * m) throw error("wrong members");
      auto const inner = part->split(part->rank() == 0);
      if (inner->size() != (part->rank() == 0 ? 1 : 2)) throw error("wrong size of the inner group");
      inner->barrier();
    }
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: over IPv6") {
  int const port = free_port(AF_INET6);
  if (port == 0) SKIP("this machine has no IPv6");
  auto const o = at_once(2, [&](int r) {
    tcp_options a = options_of(r, 2, port);
    a.address = "::1";
    tcp_bootstrap b(std::make_shared<tcp_session>(a));
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE(
    "tcp_bootstrap: a rank that fails is quoted to those who wait, in its group and in the groups split from it") {
  auto const o = in_session(4, [](tcp_bootstrap& b) {
    auto const part = b.split(b.rank() / 2);
    if (b.rank() == 3) throw error("the reason");
    for (;;) part->barrier(), b.barrier();
  });
  print(o);
  CHECK(o.said[3] == "the reason");
  CHECK(o.all_contain("the reason"));
  CHECK(contains(o.said[0], "this collective cannot complete: rank 3"));
}

TEST_CASE("tcp_bootstrap: a group that fails leaves the others alone") {
  auto const o = in_session(4, [](tcp_bootstrap& b) {
    auto const part = b.split(b.rank() / 2);
    if (b.rank() == 3) part->fail("only here");
    try {
      part->barrier();
      if (b.rank() >= 2) throw error("a failed group met");
    } catch (peer_failed const& e) {
      if (b.rank() < 2 || !contains(e.what(), "only here")) throw;
    }
    b.barrier();
    b.split(0)->barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: a rank that returns early, or leaves a group, releases those that wait for it") {
  auto o = in_session(3, [](tcp_bootstrap& b) {
    if (b.rank() != 1) b.barrier();
  });
  print(o);
  CHECK(contains(o.said[0], "rank 1 has returned"));
  CHECK(contains(o.said[2], "rank 1 has returned"));
  o = in_session(3, [](tcp_bootstrap& b) {
    auto part = b.split(0);
    if (b.rank() == 2) part.reset();
    else part->barrier();
  });
  print(o);
  CHECK(contains(o.said[0], "rank 2 has left the group"));
}

TEST_CASE("tcp_bootstrap: a rank that returns releases those that wait in groups it is in, and no others") {
  std::string told;
  auto const o = in_session(5, [&](tcp_bootstrap& b) {
    try {
      auto const pair = b.split(b.rank() / 2), again = pair->split(0);
      if (b.rank() == 3) throw bad_argument("caught by the rank itself, so nobody is told that it leaves these groups");
      for (int i = 0; i < 50; ++i) again->barrier();
    } catch (bad_argument const&) {
    } catch (peer_failed const& e) {
      if (b.rank() != 2) throw;
      told = e.what();
    }
  });
  print(o);
  CHECK(contains(told, "rank 3 has returned"));
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: different collectives at the same time are an error") {
  auto o = in_session(2, [](tcp_bootstrap& b) { b.rank() ? void(b.split(0)) : b.barrier(); });
  CHECK(o.all_contain("different collectives"));
  o = in_session(
      2, [](tcp_bootstrap& b) { b.rank() ? void(b.all_gather(1)) : void(b.all_gather(std::array<char, 100>{})); });
  CHECK(o.all_contain("different collectives"));
}

TEST_CASE(
    "tcp_bootstrap: ranks that gather different numbers of bytes are all told, even where a rank's own would fit") {
  auto const o = in_session(3, [](tcp_bootstrap& b) {
    std::array<std::byte, 12> const some{};
    // 24 in all: rank 0 wants three times 8
    (void)b.all_gather(some.data(), std::size_t(std::array{8, 4, 12}[std::size_t(b.rank())]));
  });
  CHECK(o.all_contain("different collectives"));
}

TEST_CASE("tcp_bootstrap: limits may be infinite") {
  int const port = free_port();
  auto const o = at_once(2, [&](int r) {
    tcp_options a = options_of(r, 2, port);
    a.connect_timeout = a.collective_timeout = a.failure_timeout = std::chrono::milliseconds::max();
    if (r == 0) std::this_thread::sleep_for(50ms);
    tcp_bootstrap b(std::make_shared<tcp_session>(a));
    if (r == 1) std::this_thread::sleep_for(50ms);
    b.barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: a rank that does not come to a collective is named, in bounded time") {
  auto const o = in_session(
      3,
      [](tcp_bootstrap& b) {
        if (b.rank() != 1) return b.barrier();
        std::this_thread::sleep_for(450ms);
        b.barrier();
      },
      300ms);
  print(o);
  CHECK(o.all_contain("rank 1 did not come to a collective in which rank 0, 2 waited for 0.3 s"));
  CHECK(o.took < 5s);
}

TEST_CASE("tcp_bootstrap: the port is in use") {
  local_port const taken(AF_INET, true);
  auto const o = at_once(1, [&](int) { tcp_session s(options_of(0, 1, taken.number)); });
  print(o);
  CHECK(
      contains(o.said[0], text("rank 0 of 1: cannot listen at 127.0.0.1:", taken.number, ": Address already in use")));
  CHECK(contains(o.said[0], "choose another MASTER_PORT"));
}

TEST_CASE("tcp_bootstrap: an address that is not rank 0's, or that nobody knows") {
  auto o = at_once(1, [&](int) {
    tcp_options a = options_of(0, 2, free_port());
    a.address = "192.0.2.1";  // for documentation: nobody has it
    tcp_session s(a);
  });
  print(o);
  CHECK(contains(o.said[0], "MASTER_ADDR must be an address of the host on which rank 0 runs"));
  o = at_once(2, [&](int r) {
    tcp_options a = options_of(r, 2, 1234, 500ms);
    a.address = "no-such-host.invalid";
    tcp_session s(a);
  });
  print(o);
  CHECK(o.all_contain("MASTER_ADDR no-such-host.invalid: "));
}

TEST_CASE("tcp_bootstrap: rank 0 never comes") {
  int const port = free_port();
  auto const o = at_once(2, [&](int r) { tcp_session s(options_of(r + 1, 3, port, 400ms)); });
  print(o);
  CHECK(o.all_contain(text("rank 0 did not answer at 127.0.0.1:", port)));
  CHECK(o.all_contain("nobody listens there"));
  CHECK(o.took < 5s);
}

TEST_CASE("tcp_bootstrap: other ranks never come") {
  int const port = free_port();
  auto const o = at_once(2, [&](int r) { tcp_session s(options_of(2 * r, 5, port, 400ms)); });  // ranks 0 and 2
  print(o);
  CHECK(o.all_contain("only 2 of 5 ranks have come to 127.0.0.1"));
  CHECK(o.all_contain("missing: rank 1, 3, 4"));
  CHECK(o.took < 5s);
}

TEST_CASE("tcp_bootstrap: ranks that come late are waited for") {
  int const port = free_port();
  auto const o = at_once(3, [&](int r) {
    std::this_thread::sleep_for(r == 0 ? 300ms : r * 100ms);
    tcp_bootstrap(std::make_shared<tcp_session>(options_of(r, 3, port))).barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: a different WORLD_SIZE is told to all") {
  int const port = free_port();
  auto const o = at_once(3, [&](int r) { tcp_session s(options_of(r, r == 2 ? 4 : 3, port)); });
  print(o);
  CHECK(o.all_contain("rank 2 (process "));
  CHECK(o.all_contain("has WORLD_SIZE 4, rank 0 at 127.0.0.1"));
  CHECK(o.took < 8s);
}

TEST_CASE("tcp_bootstrap: a RANK that two processes have is told to all") {
  int const port = free_port();
  auto const o = at_once(3, [&](int r) { tcp_session s(options_of(std::min(r, 1), 3, port)); });
  print(o);
  CHECK(o.all_contain("two processes have RANK 1: rank 1 (process "));
  CHECK(o.took < 8s);
}

TEST_CASE("tcp_bootstrap: a process too many is turned away, and the others go on") {
  int const port = free_port();
  std::atomic<int> there = 0;
  std::atomic<bool> done = false;
  auto const o = at_once(3, [&](int r) {
    if (r < 2) {
      tcp_bootstrap b(std::make_shared<tcp_session>(options_of(r, 2, port)));
      ++there;
      while (!done) std::this_thread::sleep_for(5ms);
      b.barrier();
      return;
    }
    while (there < 2) std::this_thread::sleep_for(5ms);
    try {
      tcp_session s(options_of(1, 2, port, 400ms));
    } catch (...) {
      done = true;
      throw;
    }
  });
  print(o);
  CHECK((o.said[0].empty() && o.said[1].empty()));
  CHECK(contains(o.said[2], "all ranks have and this is one too many"));
}

TEST_CASE("tcp_bootstrap: garbage on the port does not harm the ranks") {
  int const port = free_port();
  auto const o = at_once(3, [&](int r) {
    if (r < 2) {
      std::this_thread::sleep_for(r * 400ms);
      tcp_bootstrap(std::make_shared<tcp_session>(options_of(r, 2, port))).barrier();
      return;
    }
    // Another protocol; half a frame; nothing; noise
    for (char const* words : {"GET / HTTP/1.0\r\n\r\n", "fwire01", "", "\x01"}) {
      std::this_thread::sleep_for(30ms);
      detail::descriptor const d(::socket(AF_INET, SOCK_STREAM, 0));
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      a.sin_port = htons(std::uint16_t(port));
      if (::connect(d.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0)
        (void)::send(d.get(), words, std::strlen(words), MSG_NOSIGNAL);
    }
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: what answers is not rank 0") {
  bool const speaks = GENERATE(true, false);
  local_port const other(AF_INET, true);
  std::jthread const service([&](std::stop_token stop) {
    std::vector<detail::descriptor> guests;
    while (!stop.stop_requested()) {
      pollfd p{other.socket.get(), POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      guests.emplace_back(::accept(other.socket.get(), nullptr, nullptr));
      if (speaks) (void)::send(guests.back().get(), "220 welcome\r\n", 13, MSG_NOSIGNAL);
    }
  });
  auto const o = at_once(1, [&](int) { tcp_session s(options_of(1, 2, other.number, 500ms)); });
  print(o);
  CHECK(contains(o.said[0], text("rank 0 did not answer at 127.0.0.1:", other.number)));
  CHECK(contains(o.said[0], speaks ? "it speaks another protocol" : "says nothing"));
  CHECK(o.took < 5s);
}

TEST_CASE("tcp_bootstrap: who accepts connections and says nothing, or too little, does not keep ranks from rank 0") {
  bool const challenges = GENERATE(true, false);
  auto silent = std::make_unique<local_port>(AF_INET, true);
  int const port = silent->number;
  int const on = 1;
  ::setsockopt(silent->socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto const o = at_once(2, [&](int r) {
    detail::descriptor guest;  // it stays open
    if (r == 0) {
      pollfd p{silent->socket.get(), POLLIN, 0};
      ::poll(&p, 1, 5000);
      guest = detail::descriptor(::accept(silent->socket.get(), nullptr, nullptr));
      detail::connection link{detail::descriptor(::dup(guest.get()))};
      std::uint64_t const number = 1;
      link.queue(detail::frame_kind::challenge, 0, &number, sizeof number);
      if (challenges) (void)link.send();
      silent.reset();  // its place is free
    }
    tcp_bootstrap(std::make_shared<tcp_session>(options_of(r, 2, port, 4s))).barrier();
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("tcp_bootstrap: a process that dies is named to those who wait for it") {
  bool const while_connecting = GENERATE(true, false);
  int const port = free_port(), ranks = while_connecting ? 4 : 3;
  pid_t const victim = child([&] {
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(1, ranks, port)));
    for (;;) b.barrier();
  });
  auto const o = at_once(3, [&](int i) {
    if (i == 2) {
      std::this_thread::sleep_for(300ms);
      ::kill(victim, SIGKILL);
      throw error(text("rank 1 (process ", victim, " has died: "));
    }
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(2 * i, ranks, port)));  // ranks 0 and 2
    for (;;) b.barrier();
  });
  ::waitpid(victim, nullptr, 0);
  print(o);
  CHECK(o.all_contain("has died: "));
  CHECK(o.all_contain(text("rank 1 (process ", victim)));
  CHECK(o.took < 5s);
}

TEST_CASE("tcp_bootstrap: when rank 0 dies, the others are told") {
  int const port = free_port();
  pid_t const victim = child([&] {
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(0, 3, port)));
    for (;;) b.barrier();
  });
  auto const o = at_once(3, [&](int r) {
    if (r == 0) {
      std::this_thread::sleep_for(300ms);
      ::kill(victim, SIGKILL);
      throw error("has ended or died");
    }
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(r, 3, port)));
    for (;;) b.barrier();
  });
  ::waitpid(victim, nullptr, 0);
  print(o);
  CHECK(o.all_contain("has ended or died"));
  CHECK(o.took < 5s);
}

TEST_CASE("tcp_session: what is kept stays where rank 0 is gone, and nobody knows who uses it") {
  int const port = free_port();
  pid_t const victim = child([&] {
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(0, 2, port)));
    for (;;) b.barrier();
  });
  std::weak_ptr<int> kept;
  auto const o = at_once(1, [&](int) {
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(1, 2, port)));
    auto const what = std::make_shared<int>(1);
    kept = what;
    b.keep(what);
    b.barrier();
    ::kill(victim, SIGKILL);
    for (;;) b.barrier();
  });
  ::waitpid(victim, nullptr, 0);
  CHECK(o.all_contain("has ended or died"));
  CHECK_FALSE(kept.expired());
}

TEST_CASE("tcp_session: what is kept goes when every rank has left") {
  std::atomic<int> alive = 2;
  std::array<int, 2> seen{};
  int const port = free_port();
  auto const o = at_once(2, [&](int r) {
    auto session = std::make_shared<tcp_session>(options_of(r, 2, port));
    session->keep(std::shared_ptr<void>(nullptr, [&](void*) { --alive; }));
    if (r == 1) std::this_thread::sleep_for(200ms), seen[1] = alive;
    session.reset();
  });
  print(o);
  CHECK(o.quiet());
  CHECK(seen[1] == 2);
  CHECK(alive == 0);
}
