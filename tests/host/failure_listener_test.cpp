// Who listens hears of a failure immediately, without asking: among threads, and over TCP.
#include <catch2/generators/catch_generators.hpp>

#include <condition_variable>
#include <mutex>

#include "tcp_ranks.hpp"

#include <fusewire/ranks/thread_bootstrap.hpp>

namespace {

class ear final : public failure_listener {
 public:
  void failed(std::string const& why) override {
    std::lock_guard const lock(m_);
    heard_ += why + '\n';
    news_.notify_all();
  }
  /// What it has heard, as soon as that is something; "" after 20 s.
  std::string wait() {
    std::unique_lock lock(m_);
    news_.wait_for(lock, 20s, [&] { return !heard_.empty(); });
    return heard_;
  }
  std::string now() {
    std::lock_guard const lock(m_);
    return heard_;
  }

 private:
  std::mutex m_;
  std::condition_variable news_;
  std::string heard_;
};

void expect(bool ok, std::string const& what) {
  if (!ok) throw std::logic_error("wrong: " + what);
}

/// Rank 2 fails in the group {0, 2}, then in the group of all.
void hear_of_both(bootstrap& all) {
  auto const part = all.split(all.rank() % 2);
  auto const of_all = std::make_shared<ear>(), of_part = std::make_shared<ear>(), late = std::make_shared<ear>(),
             of_child = std::make_shared<ear>();
  auto const child = part->split(0);
  all.listen(of_all);
  part->listen(of_part);
  child->listen(of_child);
  all.listen(std::make_shared<ear>());  // gone before anything happens
  all.barrier();
  if (all.rank() == 2) part->fail("the part is over");
  if (all.rank() != 1) {
    expect(of_part->wait() == "the part is over\n", "of the part: " + of_part->now());
    expect(of_child->wait() == "the part is over\n", "of the group within: " + of_child->now());
    part->listen(late);
    expect(late->wait() == "the part is over\n", "too late: " + late->now());
  }
  all.barrier();
  expect(of_all->now().empty(), "of all, too early: " + of_all->now());
  all.barrier();
  if (all.rank() == 2) all.fail("all is over");
  expect(of_all->wait() == "all is over\n", "of all: " + of_all->now());
  std::string const of_part_at_last = of_part->wait();
  expect(of_part_at_last == (all.rank() == 1 ? "all is over\n" : "the part is over\n"), "at last: " + of_part_at_last);
}

}  // namespace

TEST_CASE("failure_listener: ranks over TCP hear of a failure immediately") {
  outcome const o = in_session(3, [](tcp_bootstrap& b) { hear_of_both(b); });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("failure_listener: ranks that are threads hear of a failure immediately") {
  auto const hub = std::make_shared<thread_bootstrap::hub>(3);
  outcome const o = at_once(3, [&](int r) {
    thread_bootstrap b(hub, r);
    try {
      hear_of_both(b);
    } catch (std::exception const& e) {
      b.fail(e.what());
      throw;
    }
  });
  print(o);
  CHECK(o.quiet());
}

TEST_CASE("failure_listener: a process that dies is named to those who listen, rank 0 too") {
  int const victim = GENERATE(0, 1);
  int const port = free_port();
  pid_t const p = child([&] {
    tcp_session s(options_of(victim, 3, port));
    tcp_bootstrap(std::shared_ptr<tcp_session>(&s, [](auto*) {})).barrier();
    std::this_thread::sleep_for(500ms);  // what the hub answers is in flight
    ::raise(SIGKILL);
  });
  std::vector<std::string> heard(2);
  outcome const o = at_once(2, [&](int i) {
    int const rank = i < victim ? i : i + 1;
    tcp_bootstrap b(std::make_shared<tcp_session>(options_of(rank, 3, port)));
    auto const listens = std::make_shared<ear>();
    b.listen(listens);
    b.barrier();
    heard[std::size_t(i)] = listens->wait();
  });
  ::waitpid(p, nullptr, 0);
  print(o);
  for (auto const& h : heard) CHECK(contains(h, victim == 0 ? "rank 0 (" : "rank 1 (process "));
  for (auto const& h : heard) CHECK(contains(h, "died"));
}
