// Runs HIP programs under fusewire-sim and checks what they print.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runs.hpp"

using Catch::Matchers::ContainsSubstring;

namespace {

/// The names of a producer and a consumer, and "pull" when the data stays with the producer.
int wrong_runs(std::string const& memory, int seed, std::string const& producer_and_consumer, int runs) {
  bool const pull = producer_and_consumer.ends_with(" pull");
  std::string const versions =
      pull ? producer_and_consumer.substr(0, producer_and_consumer.size() - 5) : producer_and_consumer;
  result const r = sim("--gpus 2 --memory " + memory + " --seed " + std::to_string(seed),
                       "sim_races " + versions + " " + std::to_string(runs) + (pull ? " pull" : ""));
  INFO(r.output);
  REQUIRE(r.status == 0);
  return std::stoi(r.output);
}

}  // namespace

TEST_CASE("every family of HIP calls does what HIP says") {
  auto const memory = GENERATE("weak", "strong");
  auto const name =
      GENERATE("calls devices", "calls peers", "calls memory", "calls copies", "calls symbols", "calls launches",
               "calls attributes", "calls modules", "order streams", "order default_stream", "order events",
               "order host_functions", "order async_memory", "order graphs", "order capture_errors", "order two_gpus",
               "order threads", "order host_polls", "order device_timeout");
  result const r = sim(std::string("--gpus 4 --memory ") + memory, std::string("sim_hip_") + name);
  INFO(name << " " << memory << "\n" << r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("done"));
}

TEST_CASE("a wait does not end early while a thread may be woken from outside") {
  result const r = sim("--gpus 1 --patience 100", "sim_hip_order outside");
  INFO(r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("done"));
}

TEST_CASE("the simulator refuses on the host what HIP refuses") {
  auto const name =
      GENERATE("captures rules", "captures the_stream", "captures ending", "captures outside", "handles streams",
               "handles events", "handles graphs", "handles arguments", "handles modules");
  result const r = sim("--gpus 2", std::string("sim_hip_") + name);
  INFO(name << "\n" << r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("done"));
}

TEST_CASE("a call that ends a capture and the capture are named") {
  result const r = sim("--gpus 2", "sim_hip_captures both_calls");
  INFO(r.output);
  CHECK(r.status == 0);
  std::string const capture = "the thread-local capture that hipStreamBeginCapture of thread 1 (GPU 0) began (captured "
                              "last: hipLaunchKernel) is invalid";
  CHECK_THAT(r.output,
             ContainsSubstring(
                 "fusewire-sim: hipMemcpy of thread 2 (GPU 1): hipErrorStreamCaptureImplicit: " + capture + " now\n"));
  CHECK_THAT(r.output, ContainsSubstring("fusewire-sim: hipStreamEndCapture of thread 1 (GPU 0): "
                                         "hipErrorStreamCaptureInvalidated: " +
                                         capture + " since hipMemcpy of thread 2 (GPU 1)\n"));
}

TEST_CASE("a module that is used on another device ends the program") {
  result const r = shell("USE_ELSEWHERE=1 timeout 60 " LAUNCHER " --gpus 2 " PROGRAMS "/sim_hip_handles modules");
  INFO(r.output);
  CHECK(r.status == 86);
  CHECK_THAT(r.output, ContainsSubstring("hipModuleGetFunction: the module was loaded on GPU 0, and GPU 1 is current"));
}

TEST_CASE("a process sees the devices that the environment leaves") {
  struct row {
    char const *environment, *sees;
    char const* says = "";
  };
  auto const x = GENERATE(
      values<row>({{"", "sees 4: 10 11 12 13"},
                   {"HIP_VISIBLE_DEVICES=", "sees 4: 10 11 12 13"},
                   {"HIP_VISIBLE_DEVICES=2", "sees 1: 12"},
                   {"HIP_VISIBLE_DEVICES=3,1", "sees 2: 13 11"},
                   {"HIP_VISIBLE_DEVICES=3,3,1", "sees 2: 13 11"},
                   {"HIP_VISIBLE_DEVICES=1,7,0", "sees 1: 11", "HIP_VISIBLE_DEVICES=1,7,0: entry '7' names no GPU"},
                   {"HIP_VISIBLE_DEVICES=-1", "sees 0:", "entry '-1' names no GPU of the 4 there are"},
                   {"HIP_VISIBLE_DEVICES='0, 1'", "sees 1: 10", "entry ' 1' names no GPU"},
                   {"HIP_VISIBLE_DEVICES=GPU-51a0000000000002,0", "sees 2: 12 10"},
                   {"CUDA_VISIBLE_DEVICES=1", "sees 1: 11"},
                   {"HIP_VISIBLE_DEVICES=0,2 CUDA_VISIBLE_DEVICES=1", "sees 2: 10 12"},
                   {"GPU_DEVICE_ORDINAL=1", "sees 4: 10 11 12 13"},
                   {"ROCR_VISIBLE_DEVICES=", "sees 0:"},
                   {"ROCR_VISIBLE_DEVICES=3,0x1", "sees 2: 13 11"},
                   {"ROCR_VISIBLE_DEVICES=2,2,1", "sees 1: 12", "entry '2' names a GPU again"},
                   {"ROCR_VISIBLE_DEVICES='1, gpu-51A0000000000003,0'", "sees 3: 11 13 10"},
                   {"ROCR_VISIBLE_DEVICES=GPU-51a", "sees 0:", "entry 'GPU-51a' names no GPU"},
                   {"ROCR_VISIBLE_DEVICES=3,2 HIP_VISIBLE_DEVICES=1", "sees 1: 12"}}));
  result const r =
      shell(std::string(x.environment) + " timeout 60 " LAUNCHER " --gpus 4 " PROGRAMS "/sim_hip_handles visible");
  INFO(x.environment << "\n" << r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring(std::string(x.sees) + "\n"));
  CHECK_THAT(r.output, ContainsSubstring(x.says));
}

TEST_CASE("a partitioned GPU shows itself as devices with one PCI address") {
  result const r = sim("--gpus 2 --partitions 4", "sim_hip_calls partitions");
  INFO(r.output);
  CHECK(r.status == 0);
  CHECK_THAT(sim("--gpus 8 --partitions 4", "sim_hip_calls partitions").output,
             ContainsSubstring("8 GPUs of 304 CUs in 4 partitions each: expected 1, 2, 4 or 8 partitions"));
  CHECK_THAT(sim("--gpus 1 --partitions 3", "sim_hip_calls partitions").output,
             ContainsSubstring("in 3 partitions each"));
  CHECK_THAT(sim("--gpus 1 --cus 20 --partitions 2", "sim_hip_calls partitions").output,
             ContainsSubstring("CUs in eights"));
}

TEST_CASE("masks of compute units are those of streams and of the environment") {
  auto const mask = GENERATE("", "ROC_GLOBAL_CU_MASK=0xffff ", "ROC_GLOBAL_CU_MASK=ffff ");
  result const r = shell(std::string(mask) + "timeout 60 " LAUNCHER " " PROGRAMS "/sim_hip_calls masks");
  INFO(mask << r.output);
  CHECK(r.status == 0);
}

TEST_CASE("a compressed fat binary is read") {
  auto const name = GENERATE("compressed", "modules");
  result const r = sim("--gpus 4", std::string("sim_hip_calls_compressed ") + name);
  INFO(r.output);
  CHECK(r.status == 0);
}

TEST_CASE("a fault is reported with what, where and who") {
  struct expected {
    char const* name;
    std::vector<char const*> texts;
  };
  auto const e = GENERATE(
      expected{"out_of_bounds_write",
               {"out-of-bounds global write of 4 bytes", "0 bytes past the end of allocation 1 (4000 bytes",
                "hipMalloc, GPU 0", "kernel fill(int*, int)", "workgroup (3,0,0), wave 3 of 4", "global_store_dword",
                "faults.hip:10"}},
      expected{
          "out_of_bounds_read",
          {"out-of-bounds global read of 4 bytes", "4 bytes before allocation", "read_at(int const*, long, int*)"}},
      expected{"wild_read", {"out-of-bounds global read", "0x10", "far from every allocation"}},
      expected{"host_pointer", {"out-of-bounds global read", "host memory must be pinned"}},
      expected{"use_after_free", {"use after free", "40 bytes into freed allocation"}},
      expected{"no_peer_access", {"no peer access from GPU 0 to GPU 1", "kernel fill"}},
      expected{"misaligned_atomic", {"misaligned atomic of 4 bytes", "2 bytes into allocation"}},
      expected{"agent_atomic_on_peer", {"atomic with agent scope on memory of another GPU", "global_atomic_add"}},
      expected{
          "barrier_left",
          {"a wave waits at a barrier that 2 of 4 waves of its workgroup left by ending", "early_exit", "s_barrier"}},
      expected{"trapped", {"s_trap 2", "kernel trap()"}},
      expected{"failed_assert",
               {"faults.hip:60: void check(const int *): Device-side assertion `*p == 5' failed.", "s_trap 2",
                "kernel check(int const*)"}},
      expected{"device_malloc",
               {"malloc, free, new or delete, which are not implemented for device code", "kernel allocate(int**)"}},
      expected{"nobody_raises",
               {"deadlock", "wait_for(unsigned int*, unsigned int)", "and 7 waves like it", "32 bytes into allocation",
                "memory holds 0x0", "faults.hip:22"}},
      expected{"waits_behind_a_barrier", {"deadlock", "polls", "(and 2 waves like it) waits at a barrier"}},
      expected{"not_co_resident", {"deadlock", "2 of 6 workgroups have not started", "not co-resident"}},
      expected{"masked_out",
               {"deadlock",
                "1 of 9 workgroups have not started, because the 8 CUs of the GPU that its mask leaves are full"}},
      expected{"masked_out_of_an_xcd",
               {"deadlock",
                "1 of 2 workgroups have not started, because the 2 CUs of the GPU that its mask leaves are full"}},
      expected{"waits_in_lds", {"deadlock", "wait_in_lds", "runs on without touching global memory"}},
      expected{"threads_wait", {"deadlock", "GPU 0, kernel wait_for", "GPU 1, kernel wait_for"}},
      expected{"sleeper_does_not_help", {"deadlock", "kernel wait_for"}},
      expected{"not_implemented", {"hipMemAdvise is not implemented"}});
  result const r = sim(std::string("--gpus 2 --cus ") + (std::string(e.name).starts_with("masked") ? "16" : "4"),
                       std::string("sim_faults ") + e.name);
  INFO(e.name << "\n" << r.output);
  CHECK(r.status == 86);
  for (char const* text : e.texts) CHECK_THAT(r.output, ContainsSubstring(text));
}

TEST_CASE("printf on the device prints what the host's does") {
  auto const kind = GENERATE("hostcall", "buffered");
  auto const options =
      GENERATE("--memory strong", "--memory weak --seed 1", "--memory weak --seed 2", "--memory weak --seed 3 --cus 8");
  result const r = sim(std::string("--gpus 2 ") + options, std::string("sim_printf_") + kind);
  INFO(kind << " " << options);
  REQUIRE(r.status == 0);
  std::multiset<std::string> device, host;
  std::istringstream lines(r.output);
  for (std::string line; std::getline(lines, line);) {
    REQUIRE((line.starts_with("device ") || line.starts_with("host ")));
    auto const space = line.find(' ');
    (line[0] == 'd' ? device : host).insert(line.substr(space));
  }
  CHECK(device == host);
  CHECK(host.size() > 3000);
}

TEST_CASE("what fits into the buffer of a launch is printed") {
  result const r = sim("--cus 8", "sim_printf_buffered much");
  CHECK(r.status == 0);
  auto const lines = std::count(r.output.begin(), r.output.end(), '\n');
  CHECK(lines > 100'000);  // 28 bytes each of 4 MiB
  CHECK(lines < 4000 * 64);
  CHECK(r.output.ends_with('\n'));
}

TEST_CASE("parts that a program names have bounds, and tickets, of their own") {
  auto const memory = GENERATE("weak", "strong");
  result const right = sim(std::string("--memory ") + memory, "sim_parts right");
  INFO(right.output);
  CHECK(right.status == 0);
  CHECK_THAT(right.output, ContainsSubstring("done"));
  struct expected {
    char const* name;
    std::vector<char const*> texts;
  };
  auto const e = GENERATE(
      expected{"gap",
               {"out-of-bounds global write of 4 bytes", "0 bytes past the end of the first (100 bytes)",
                "1124 bytes into allocation 1 (65536 bytes", "parts.hip:10"}},
      expected{
          "before",
          {"8 bytes before the second, named again (256 bytes)", "below it is the first (100 bytes), 916 bytes away"}},
      expected{"nothing_there",
               {"35160 bytes past the end of row 2 of 1 of 1, of 40 (40 bytes)",
                "below it is the second, named again (256 bytes), 37696 bytes away",
                "below it is the first (100 bytes), 38876 bytes away"}},
      expected{"past_all",
               {"100 bytes past the end of allocation 1 (65536 bytes",
                "below it is row 2 of 1 of 1, of 40 (40 bytes), 60796 bytes away"}},
      expected{"row_gap", {"8 bytes past the end of row 2 of 1 of 0, of 40 (40 bytes)"}},
      expected{"row_straddle", {"the last 8 of them past the end of row 1 of 0 of 1, of 40 (40 bytes)"}},
      expected{"past_rows", {"24 bytes past the end of row 2 of 1 of 1, of 40 (40 bytes)"}},
      expected{"straddle", {"out-of-bounds global write of 16 bytes", "the last 12 of them past the end of the first"}},
      expected{"given_back", {"use after free: global write", "0 bytes into the first (100 bytes; given back)"}},
      expected{"replaced", {"2 bytes past the end of a smaller one (50 bytes)"}},
      expected{"twice",
               {"this workgroup calls take() for the second time in one launch on the second", "kernel take_tickets"}},
      expected{
          "missing",
          {"1 of 3 workgroups ended without take() on the second, named again; the first of them is workgroup (2,0,0)",
           "kernel take_tickets"}},
      expected{"few",
               {"this launch has 3 workgroups, and calls begin() on the second, named again, which takes at least 4",
                "kernel take_tickets"}},
      expected{"two_launches", {"the second, named again is used by two launches at once"}});
  result const r = sim(std::string("--memory ") + memory, std::string("sim_parts ") + e.name);
  INFO(e.name << "\n" << r.output);
  CHECK(r.status == 86);
  for (char const* text : e.texts) CHECK_THAT(r.output, ContainsSubstring(text));
}

TEST_CASE("SIGINT and a livelock say where waves stand") {
  result const r = shell("timeout -s INT 5 " LAUNCHER " --livelock 1000000 " PROGRAMS "/sim_parts never_ends");
  INFO(r.output);
  CHECK_THAT(r.output, ContainsSubstring("no workgroup has begun or ended for 1"));
  CHECK_THAT(r.output, ContainsSubstring("instructions, which may be a livelock; it goes on"));
  CHECK_THAT(r.output, ContainsSubstring("fusewire-sim: interrupted"));
  CHECK_THAT(r.output, ContainsSubstring("kernel never_ends(unsigned int*), workgroup ("));
  CHECK_THAT(r.output, ContainsSubstring("parts.hip:"));
  CHECK_THAT(r.output, !ContainsSubstring("amd_device_functions.h:"));
}

TEST_CASE("what only looks like a deadlock goes on") {
  auto const name = GENERATE("co_resident", "co_resident_in_mask", "works_long", "late_help");
  result const r = sim(std::string(name).ends_with("mask") ? "--cus 16" : "--cus 4", std::string("sim_faults ") + name);
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
  auto const versions = GENERATE("right right", "right acquire_load", "drained_scoped_stores right", "right right pull",
                                 "drained_scoped_stores right pull");
  for (int seed = 1; seed <= 6; ++seed) CHECK(wrong_runs("weak", seed, versions, 500) == 0);
  CHECK(wrong_runs("strong", 1, versions, 500) == 0);
}

TEST_CASE("a planted bug is caught") {
  auto const versions =
      GENERATE("no_wait right", "no_wait right pull", "agent_release right pull", "no_drain right", "no_barrier right",
               "relaxed right", "agent_release right", "right relaxed", "right no_barrier", "no_drain right pull",
               "relaxed right pull", "right relaxed pull", "right agent_acquire pull", "right block_acquire");
  int wrong = 0;
  for (int seed = 1; seed <= 6; ++seed) wrong += wrong_runs("weak", seed, versions, 200);
  INFO(versions);
  CHECK(wrong > 20);
}

TEST_CASE("what no source promises is not so in some run") {
  auto const name =
      GENERATE("load_without_wait", "scalar_load_without_wait", "lds_without_wait", "kernel_start", "memset");
  int weak = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    result const r = sim("--gpus 2 --seed " + std::to_string(seed), std::string("sim_promises ") + name);
    INFO(name << "\n" << r.output);
    REQUIRE(r.status == 0);
    weak += std::stoi(r.output);
  }
  INFO(name);
  CHECK(weak > 0);
}

TEST_CASE("the outside sees what was released at system scope, and kernels what they acquired") {
  auto const wrong = [](std::string const& what, std::string const& options) {
    int runs = 0;
    for (int seed = 1; seed <= 4; ++seed) {
      result const r = sim("--gpus 1 " + options + " --seed " + std::to_string(seed), "sim_outside " + what);
      INFO(what << " " << options << "\n" << r.output);
      REQUIRE(r.status == 0);
      runs += std::stoi(r.output);
    }
    return runs;
  };
  for (char const* right :
       {"to_host system device", "to_host system host", "to_host system uncached", "to_host none host",
        "to_host none uncached", "to_kernel system device", "to_kernel system host", "to_kernel system uncached",
        "to_kernel none host", "unreleased system"}) {
    INFO(right);
    CHECK(wrong(right, "--memory weak") == 0);
    CHECK(wrong(right, "--memory strong") == 0);
  }
  for (char const* planted : {"to_host device device", "to_host none device", "unreleased device", "unreleased none"}) {
    INFO(planted);
    CHECK(wrong(planted, "--memory weak") > 0);
  }
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

TEST_CASE("memory that a dead process had open can be freed") {
  result const r = sim("--gpus 2 --processes 2", "sim_processes freed_of_dead");
  INFO(r.output);
  CHECK(r.status == 0);
}

TEST_CASE("processes that make a mistake get a report") {
  result r = sim("--gpus 2 --processes 2", "sim_processes closed");
  INFO(r.output);
  CHECK(r.status == 86);
  CHECK_THAT(r.output, ContainsSubstring("use after free: global read of 4 bytes"));
  for (char const* const name : {"freed_open", "freed_open_in_stream"}) {
    r = sim("--gpus 2 --processes 2", std::string("sim_processes ") + name);
    INFO(r.output);
    CHECK(r.status == 86);
    CHECK_THAT(r.output, ContainsSubstring("free of open memory: hipFree"));
    CHECK_THAT(r.output, ContainsSubstring("(4096 bytes on GPU 1) of process "));
    CHECK_THAT(r.output, ContainsSubstring("has open: hipIpcCloseMemHandle comes first"));
  }
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

TEST_CASE("--races reports what nothing orders, whatever the run reads") {
  auto const memory = GENERATE("weak", "strong");
  auto const seed = GENERATE(1, 2, 3, 4, 5);
  auto const races = [&](std::string const& versions) {
    return sim(std::string("--races --gpus 2 --memory ") + memory + " --seed " + std::to_string(seed),
               "sim_races " + versions);
  };
  for (char const* right : {"right right 3", "right right 3 pull", "right acquire_load 3"}) {
    result const r = races(right);
    INFO(right << "\n" << r.output);
    CHECK(r.status == 0);
  }
  for (char const* wrong : {"no_drain right 1", "no_wait right 1", "relaxed right 1", "right no_wait 1",
                            "right relaxed 1", "relaxed right 1 pull"}) {
    result const r = races(wrong);
    INFO(wrong << "\n" << r.output);
    CHECK(r.status == 86);
    CHECK_THAT(r.output, ContainsSubstring("race: nothing orders this"));
    for (char const* text : {"GPU 0, kernel void producer<", "GPU 1, kernel void consumer<", "workgroup (0,0,0), wave ",
                             "bytes into allocation", "(1024 bytes at", "races.hip:", "missing: "})
      CHECK_THAT(r.output, ContainsSubstring(text));
  }
  result const agent = races("agent_release right 1 pull");
  INFO(agent.output);
  CHECK(agent.status == 86);
  CHECK_THAT(agent.output, ContainsSubstring("has not released the write at system scope"));
}

TEST_CASE("--patience excludes several processes") {
  result const r = sim("--patience 50 --processes 2", "sim_processes deadlock");
  CHECK(r.status == 2);
  CHECK_THAT(r.output, ContainsSubstring("--patience has no effect with --processes"));
}

TEST_CASE("--races excludes several processes and the clock") {
  CHECK_THAT(sim("--races --time", "sim_races right right 1").output,
             ContainsSubstring("it excludes --processes and --time"));
  CHECK_THAT(sim("--races --processes 2", "sim_races right right 1").output,
             ContainsSubstring("it excludes --processes and --time"));
}
