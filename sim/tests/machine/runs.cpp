// Runs HIP programs under fusewire-sim and checks what they print.
#include <sys/wait.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;

namespace {

struct result {
  int status;
  std::string output;  // standard output and error
};

result shell(std::string const& command) {
  result r{};
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  std::array<char, 4096> block;
  while (size_t const n = fread(block.data(), 1, block.size(), pipe)) r.output.append(block.data(), n);
  int const status = pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  return r;
}

result sim(std::string const& options, std::string const& program) { return shell("timeout 60 " LAUNCHER " " + options + " " PROGRAMS "/" + program); }

/// The names of a producer and a consumer, and "pull" when the data stays with the producer.
int wrong_runs(std::string const& memory, int seed, std::string const& producer_and_consumer, int runs) {
  bool const pull = producer_and_consumer.ends_with(" pull");
  std::string const versions = pull ? producer_and_consumer.substr(0, producer_and_consumer.size() - 5) : producer_and_consumer;
  result const r = sim("--gpus 2 --memory " + memory + " --seed " + std::to_string(seed), "sim_races " + versions + " " + std::to_string(runs) + (pull ? " pull" : ""));
  INFO(r.output);
  REQUIRE(r.status == 0);
  return std::stoi(r.output);
}

}  // namespace

TEST_CASE("every family of HIP calls does what HIP says") {
  auto const memory = GENERATE("weak", "strong");
  auto const name = GENERATE("calls devices", "calls peers", "calls memory", "calls copies", "calls symbols", "calls launches", "calls attributes", "order streams", "order default_stream",
                             "order events", "order host_functions", "order async_memory", "order graphs", "order capture_errors", "order two_gpus", "order threads", "order host_polls",
                             "order device_timeout");
  result const r = sim(std::string("--gpus 4 --memory ") + memory, std::string("sim_hip_") + name);
  INFO(name << " " << memory << "\n" << r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("done"));
}

TEST_CASE("a compressed fat binary is read") {
  result const r = sim("--gpus 4", "sim_hip_calls_compressed compressed");
  INFO(r.output);
  CHECK(r.status == 0);
}

TEST_CASE("a fault is reported with what, where and who") {
  struct expected {
    char const* name;
    std::vector<char const*> texts;
  };
  auto const e = GENERATE(
      expected{"out_of_bounds_write", {"out-of-bounds global write of 4 bytes", "0 bytes past the end of allocation 1 (4000 bytes", "hipMalloc, GPU 0", "kernel fill(int*, int)", "workgroup (3,0,0), wave 3 of 4", "global_store_dword", "faults.hip:10"}},
      expected{"out_of_bounds_read", {"out-of-bounds global read of 4 bytes", "4 bytes before allocation", "read_at(int const*, long, int*)"}},
      expected{"wild_read", {"out-of-bounds global read", "0x10", "far from every allocation"}},
      expected{"host_pointer", {"out-of-bounds global read", "host memory must be pinned"}},
      expected{"use_after_free", {"use after free", "40 bytes into freed allocation"}},
      expected{"no_peer_access", {"no peer access from GPU 0 to GPU 1", "kernel fill"}},
      expected{"misaligned_atomic", {"misaligned atomic of 4 bytes", "2 bytes into allocation"}},
      expected{"agent_atomic_on_peer", {"atomic with agent scope on memory of another GPU", "global_atomic_add"}},
      expected{"barrier_left", {"a wave waits at a barrier that 2 of 4 waves of its workgroup left by ending", "early_exit", "s_barrier"}},
      expected{"trapped", {"s_trap 2", "kernel trap()"}},
      expected{"failed_assert", {"a failed assert, or printf", "kernel check(int const*)"}},
      expected{"nobody_raises", {"deadlock", "wait_for(unsigned int*, unsigned int)", "and 7 waves like it", "32 bytes into allocation", "memory holds 0x0", "faults.hip:22"}},
      expected{"waits_behind_a_barrier", {"deadlock", "polls", "(and 2 waves like it) waits at a barrier"}},
      expected{"not_co_resident", {"deadlock", "2 of 6 workgroups have not started", "not co-resident"}},
      expected{"waits_in_lds", {"deadlock", "wait_in_lds", "runs on without touching global memory"}},
      expected{"threads_wait", {"deadlock", "GPU 0, kernel wait_for", "GPU 1, kernel wait_for"}},
      expected{"sleeper_does_not_help", {"deadlock", "kernel wait_for"}},
      expected{"not_implemented", {"hipMemAdvise is not implemented"}});
  result const r = sim("--gpus 2 --cus 4", std::string("sim_faults ") + e.name);
  INFO(e.name << "\n" << r.output);
  CHECK(r.status == 86);
  for (char const* text : e.texts) CHECK_THAT(r.output, ContainsSubstring(text));
}

TEST_CASE("what only looks like a deadlock goes on") {
  auto const name = GENERATE("co_resident", "works_long", "late_help");
  result const r = sim("--cus 4", std::string("sim_faults ") + name);
  INFO(name << "\n" << r.output);
  CHECK(r.status == 0);
}

TEST_CASE("a store that is never released hangs its reader with some seeds, and the report says why") {
  int seen = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    result const r = sim("--gpus 2 --seed " + std::to_string(seed), "sim_faults never_written_back");
    CHECK(r.status == 86);
    seen += r.output.find("holds a newer value that was never written back") != std::string::npos;
  }
  CHECK(seen > 0);
}

TEST_CASE("right synchronisation is right in every run") {
  auto const versions = GENERATE("right right", "right acquire_load", "drained_scoped_stores right", "right right pull", "drained_scoped_stores right pull");
  for (int seed = 1; seed <= 6; ++seed) CHECK(wrong_runs("weak", seed, versions, 500) == 0);
  CHECK(wrong_runs("strong", 1, versions, 500) == 0);
}

TEST_CASE("a planted bug is caught") {
  auto const versions = GENERATE("no_drain right", "no_barrier right", "relaxed right", "agent_release right", "right relaxed", "right no_barrier", "no_drain right pull", "relaxed right pull",
                                 "right relaxed pull", "right agent_acquire pull");
  int wrong = 0;
  for (int seed = 1; seed <= 6; ++seed) wrong += wrong_runs("weak", seed, versions, 200);
  INFO(versions);
  CHECK(wrong > 20);
}

TEST_CASE("a run repeats with its seed") {
  auto const once = [](int seed) { return wrong_runs("weak", seed, "no_drain right", 300); };
  CHECK(once(5) == once(5));
  CHECK(once(6) == once(6));
}

TEST_CASE("a GEMM is right") {
  auto const memory = GENERATE("weak", "strong");
  result const r = sim(std::string("--memory ") + memory, "sim_gemm_speed 256 2");
  INFO(r.output);
  CHECK(r.status == 0);
}

TEST_CASE("totals") {
  result const r = sim("--stats --gpus 3", "sim_statistics");
  INFO(r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("GPU 0 on memory of GPU 1: 1024 bytes loaded, 0 stored, 4 by atomics"));
}

TEST_CASE("processes share the node's memory") {
  auto const memory = GENERATE("weak", "strong");
  auto const name = GENERATE("atomics", "messages");
  result const r = sim(std::string("--gpus 4 --processes 4 --memory ") + memory, std::string("sim_processes ") + name);
  INFO(name << " " << memory << "\n" << r.output);
  CHECK(r.status == 0);
}

TEST_CASE("handles of memory are refused where hardware would refuse them") {
  result const r = sim("--gpus 2 --processes 2", "sim_processes refusals");
  INFO(r.output);
  CHECK(r.status == 0);
}

TEST_CASE("processes that make a mistake get a report") {
  result r = sim("--gpus 2 --processes 2", "sim_processes closed");
  INFO(r.output);
  CHECK(r.status == 86);
  CHECK_THAT(r.output, ContainsSubstring("use after free: global read of 4 bytes"));
  r = sim("--gpus 2 --processes 2", "sim_processes deadlock");
  CHECK(r.status == 86);
  CHECK_THAT(r.output, ContainsSubstring("deadlock"));
}

TEST_CASE("the launcher of processes reports the first that fails, and ends the others") {
  CHECK(sim("--processes 3", "sim_faults out_of_bounds_write").status == 86);
  CHECK(shell(LAUNCHER " --processes 3 /bin/sh -c 'test $RANK = 1 && exit 7; exit 0'").status == 7);
  CHECK(shell(LAUNCHER " --processes 0 true").status == 2);
}

TEST_CASE("the launcher says what is wrong") {
  CHECK_THAT(shell(LAUNCHER " --help").output, ContainsSubstring("--memory weak|strong"));
  CHECK(shell(LAUNCHER).status == 2);
  result r = shell(LAUNCHER " /no/such/program");
  CHECK(r.status == 127);
  CHECK_THAT(r.output, ContainsSubstring("no such program"));
  r = shell(LAUNCHER " --gpus 17 true");
  CHECK(r.status == 2);
  CHECK_THAT(r.output, ContainsSubstring("expected a number from 1 to 16"));
  CHECK_THAT(shell(LAUNCHER " --memory strange true").output, ContainsSubstring("weak or strong"));
  CHECK_THAT(shell(LAUNCHER " --what true").output, ContainsSubstring("unknown option --what"));
  CHECK_THAT(shell(LAUNCHER " /etc/passwd").output, ContainsSubstring("cannot be executed"));
  CHECK(shell("FUSEWIRE_SIM_GPUS=0 " LAUNCHER " " PROGRAMS "/sim_hip_calls devices").status == 86);
}
