// run_local and world: placement, collectives on the host, sub-worlds, and ranks that throw.
#include "support.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "../said_on_stderr.hpp"

using namespace support;

namespace {

template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (E const& e) {
    return e.what();
  } catch (std::exception const& e) {
    return text("another type of exception: ", e.what());
  }
  return "nothing was thrown";
}

__global__ void add_rank(world_view w, sym<int> sum) {
  for (int p = 0; p < w.size(); ++p) atomic_ref<int>(w.on(p, sum)).fetch_add(w.rank() + 1);
}

}  // namespace

TEST_CASE("run_local: every rank once, each with its number") {
  needs_threads("about run_local");
  int const ranks = GENERATE(1, 2, 3, 4, 8);
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(ranks));
  run_local(ranks, [&](world& w) {
    if (w.size() == ranks) ++seen[std::size_t(w.rank())];
  });
  for (auto const& s : seen) CHECK(s == 1);
}

TEST_CASE("run_local: bad arguments") {
  needs_threads("about run_local");
  auto const nothing = [](world&) {};
  CHECK(contains(message_of<bad_argument>([&] { run_local(0, nothing); }), "0 ranks; expected 1 to 64"));
  CHECK(contains(message_of<bad_argument>([&] { run_local(-1, nothing); }), "-1 ranks"));
  CHECK(contains(message_of<bad_argument>([&] { run_local(65, nothing); }), "65 ranks; expected 1 to 64"));
  CHECK(
      contains(message_of<bad_argument>([&] { run_local(3, {.devices = {0, 0}}, nothing); }), "2 devices for 3 ranks"));
  CHECK(contains(message_of<bad_argument>([&] { run_local(1, {.devices = {1000}}, nothing); }), "device 1000"));
  CHECK(contains(message_of<bad_argument>([&] { run_local(2, {.devices = {0, -1}}, nothing); }), "device -1"));
  CHECK(contains(message_of<bad_argument>([&] { run_local(0, nothing); }), "world_test.cpp"));
}

TEST_CASE("run_local: devices are chosen round robin, or as told") {
  needs_threads("about run_local");
  int devices = 0;
  check_hip(hipGetDeviceCount(&devices), "hipGetDeviceCount");
  std::vector<int> placed(8, -1);
  run_local(8, [&](world& w) {
    int current = -1;
    check_hip(hipGetDevice(&current), "hipGetDevice");
    if (current == w.device()) placed[std::size_t(w.rank())] = current;
  });
  for (int r = 0; r < 8; ++r) CHECK(placed[std::size_t(r)] == r % devices);

  int const last = devices - 1;
  std::vector<std::string> summaries(3);
  run_local(3, {.devices = {last, 0, last}}, [&](world& w) {
    findings found;
    found.expect(w.device() == (w.rank() == 1 ? 0 : last), "device ", w.device());
    found.expect(w.device_of(0) == last && w.device_of(1) == 0 && w.device_of(2) == last, "devices of the others");
    found.expect(w.ranks_on_device() == (devices == 1    ? 3
                                         : w.rank() == 1 ? 1
                                                         : 2),
                 w.ranks_on_device(), " ranks on the device");
    summaries[std::size_t(w.rank())] = found.summary();
  });
  for (auto const& s : summaries) CHECK(s == "");
}

TEST_CASE("run_local: the first exception comes out, and the others are released with its text") {
  needs_threads("about run_local");
  std::string seen;
  std::string const out = message_of<bad_argument>([&] {
    run_local(4, [&](world& w) {
      if (w.rank() == 2) throw bad_argument("rank two's own reason");
      try {
        w.barrier();
      } catch (rank_mismatch const& e) {
        if (w.rank() == 0) seen = e.what();
        throw;
      }
    });
  });
  CHECK(out == "rank two's own reason");
  CHECK(contains(seen, "rank 2: rank two's own reason"));
}

TEST_CASE("run_local: why a rank failed is said while another has yet to return") {
  needs_threads("about run_local");
  said_on_stderr const listen;
  std::string said;
  std::string const thrown = message_of<error>([&] {
    run_local(2, [&](world& w) {
      if (w.rank() == 0) throw error("the reason");
      for (int i = 0; i < 1000 && said.empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10)), said = listen.text();
    });
  });
  CHECK(thrown == "the reason");
  CHECK(contains(said, "fusewire: rank 0: the reason; ranks that have yet to return: 1"));
}

TEST_CASE("run_local: collectives wait as long as FUSEWIRE_COLLECTIVE_SECONDS says") {
  needs_threads("about run_local");
  ::setenv("FUSEWIRE_COLLECTIVE_SECONDS", "1", 1);
  std::atomic<bool> told = false;
  std::string const thrown = message_of<peer_failed>([&] {
    run_local(2, [&](world& w) {
      for (int i = 0; i < 3000 && w.rank() == 1 && !told; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      try {
        w.barrier();
      } catch (...) {
        told = true;
        throw;
      }
    });
  });
  ::unsetenv("FUSEWIRE_COLLECTIVE_SECONDS");
  CHECK(contains(thrown, "rank 1 did not come to a collective in which rank 0 waited for 1 s"));
}

TEST_CASE("run_local: exceptions of other types come out too") {
  needs_threads("about run_local");
  CHECK_THROWS_AS(run_local(2,
                            [](world& w) {
                              if (w.rank() == 1) throw 42;
                              w.barrier();
                            }),
                  int);
}

TEST_CASE("run_local: a rank that throws releases those that allocate, and its memory outlives their kernels") {
  needs_threads("about run_local");
  std::string const out = message_of<error>([&] {
    run_local(3, [&](world& w) {
      heap h(w, {.bulk = 1_MiB, .signal = 64_KiB});
      auto const x = h.allocate<int>(16);
      if (w.rank() == 0) throw error("rank 0 gives up");
      launch(w, w.stream(), {1, 1}, add_rank, h.view(), x);  // touches rank 0's memory
      w.check(w.stream());
      h.allocate<int>(16);
    });
  });
  CHECK(out == "rank 0 gives up");
}

TEST_CASE("run_local: works again after a failure") {
  needs_threads("about run_local");
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(run_local(2, [](world& w) { w.rank() ? throw error("again") : w.barrier(); }), error);
    run_local(2, [](world& w) { w.barrier(); });
  }
}

TEST_CASE("run_local: a rank that returns early releases those that wait for it") {
  needs_threads("about run_local");
  std::string const out = message_of<peer_failed>([&] {
    run_local(3, [](world& w) {
      if (w.rank() != 1) w.barrier();
    });
  });
  CHECK(contains(out, "rank 1 has returned"));
}

TEST_CASE("error: a failed call is named with its error") {
  CHECK_NOTHROW(check_hip(hipSuccess, "hipNothing"));
  CHECK_THROWS_AS(check_hip(hipErrorInvalidValue, "hipSomething(7)"), runtime_failure);
  std::string const m = message_of<runtime_failure>([] { check_hip(hipErrorInvalidValue, "hipSomething(7)"); });
  CHECK(m.starts_with("hipSomething(7): "));
  CHECK(contains(m, "nvalid"));
  CHECK(contains(m, "world_test.cpp:"));
}

TEST_CASE("world: all_gather keeps rank order") {
  none_found_anything(on_worlds(4, [&](world& w) {
    findings found;
    for (int i = 0; i < 100; ++i) {
      auto const all = w.exchange().all_gather(w.rank() * 1000 + i);
      for (int r = 0; r < 4; ++r) found.expect(all[std::size_t(r)] == r * 1000 + i, "round ", i, " rank ", r);
    }
    return found.summary();
  }));
}

TEST_CASE("world: different collectives at the same time are an error, not a crash") {
  needs_threads("tests/host has the same for processes");
  std::string const out = message_of<rank_mismatch>([] {
    run_local(2, [](world& w) {
      if (w.rank() == 0) w.exchange().all_gather(std::array<char, 100>{});
      else w.exchange().all_gather(1);
    });
  });
  CHECK(contains(out, "different collectives"));
}

TEST_CASE("world: subgroups have ranks, heaps and kernels of their own") {
  none_found_anything(on_worlds(6, [&](world& w) {
    findings found;
    found.rank = w.rank();
    world part = w.split(w.rank() % 2);
    found.expect(part.size() == 3 && part.rank() == w.rank() / 2, "rank ", part.rank(), " of ", part.size(),
                 " in the subgroup");
    found.expect(part.device() == w.device(), "device ", part.device());
    {
      rank_of_test r(part, {.bulk = 1_MiB, .signal = 128_KiB});
      auto const sum = r.heap.allocate<int>(1);
      r.fill(sum, 0);
      r.meet();
      r.launch({1, 1}, add_rank, r.view(), sum);
      r.meet();
      found.expect(r.download(sum)[0] == 6, "sum over the subgroup is ", r.download(sum)[0]);
      auto const extra = r.heap.allocate<int>(w.rank() % 2 ? 10 : 20);  // groups need not agree with each other
      found.expect(extra.count > 0, "allocation in a subgroup");
    }
    world again = part.split(part.rank() == 0);
    found.expect(again.size() == (part.rank() == 0 ? 1 : 2), "size of the second subgroup is ", again.size());
    w.barrier();
    return found.summary();
  }));
}

TEST_CASE("world: a rank that returns, or leaves a subgroup, releases those that wait for it there, and no others") {
  needs_threads("tests/host has the same for processes");
  auto const told = [](bool leaves) {
    std::string to_rank_2;
    run_local(5, [&](world& w) {
      try {
        world pair = w.split(w.rank() / 2), again = pair.split(0);
        if (w.rank() == 3 && !leaves)
          throw bad_argument("caught by the rank itself, so nobody is told that it leaves these groups");
        for (int i = 0; i < 50 && w.rank() != 3; ++i) again.barrier();
      } catch (bad_argument const&) {
      } catch (peer_failed const& e) {
        if (w.rank() != 2) throw;
        to_rank_2 = e.what();
      }
      if (leaves) w.barrier();  // rank 3 has not returned when rank 2 is told
    });
    return to_rank_2;
  };
  CHECK(contains(told(false), "rank 3 has returned"));
  CHECK(contains(told(true), "rank 3 has left the group"));
}

TEST_CASE("world: an exception releases ranks that wait in a subgroup") {
  needs_threads("tests/host has the same for processes");
  std::string const out = message_of<error>([] {
    run_local(4, [](world& w) {
      world part = w.split(w.rank() / 2);
      if (w.rank() == 3) throw error("rank 3 gives up");
      for (;;) part.barrier(), w.barrier();
    });
  });
  CHECK(out == "rank 3 gives up");
}
