// The clock (fusewire-sim --time): kernels whose simulated time follows from the machine's rates. The times are
// simulated, so they are the same wherever the tests run; the bounds leave room for calibration of what is assumed.
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "machine/event_wheel.hpp"
#include "machine/random.hpp"
#include "machine/resource.hpp"
#include "runs.hpp"

using namespace fusewire::sim;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What a case of timed.hip prints.
double timed(std::string const& name, std::string const& options = "") {
  result const r = sim("--gpus 2 --time " + options, "sim_timed " + name);
  INFO(name << "\n" << r.output);
  REQUIRE(r.status == 0);
  return std::stod(r.output);
}

std::string contents(std::string const& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool within(double x, double low, double high) {
  UNSCOPED_INFO(x);
  return x >= low && x <= high;
}

}  // namespace

TEST_CASE("a device outside of the machine answers at the machine's time") {
  result const r = sim("--gpus 1 --time", "sim_outside device");
  INFO(r.output);
  double took = 0, waited = 0, found = 0;
  REQUIRE(std::sscanf(r.output.c_str(), "%lf %lf %lf", &took, &waited, &found) == 3);
  CHECK(within(took, 7, 7.001));
  CHECK(within(waited - found, 7, 10));  // a store and polls of memory of the host, besides
  CHECK(sim("--gpus 1", "sim_outside device").output == "no clock\n");
}

TEST_CASE("events come in the order of their times, and those of one time in the order in which they were put") {
  random_source chance(5);
  event_wheel wheel;
  std::deque<timed_event> events;
  std::vector<timed_event*> taken;
  auto const put = [&] {
    u64 const ahead = chance.one_in(8) ? chance.below(100'000) : chance.below(200);
    events.emplace_back(timed_event::kind::operation);
    wheel.put(events.back(), wheel.now() + ahead);
  };
  for (int i = 0; i < 500; ++i) put();
  while (!wheel.empty()) {
    u64 const head = wheel.head();
    timed_event* const e = wheel.take();
    REQUIRE(e->time == head);
    taken.push_back(e);
    if (events.size() < 5000) put();
  }
  REQUIRE(taken.size() == events.size());
  std::vector<timed_event*> sorted;
  for (timed_event& e : events) sorted.push_back(&e);
  std::ranges::stable_sort(sorted, {}, &timed_event::time);
  CHECK(taken == sorted);
}

TEST_CASE("a resource serves one request at a time") {
  resource r;
  CHECK(r.take(0, 0, 10) == 0);
  CHECK(r.take(0, 0, 10) == 10);
  CHECK(r.take(0, 1000, 10) == 1000);  // much later
  CHECK(r.take(0, 5, 10) == 20);       // a request that is late finds what lies there now, not what is for later
  CHECK(r.busy() == 40);
  CHECK(r.take(100'000, 100'000, 1) == 100'000);
  double last = 0;
  for (int i = 0; i < 10'000; ++i) last = r.take(100'000, 100'000, 10);
  CHECK(within(last, 199'800, 200'200));                          // behind all the others
  CHECK(within(r.take(150'000, 150'000, 10), 199'800, 200'300));  // half of it is done
  CHECK(r.take(300'000, 300'000, 10) == 300'000);                 // all is
}

TEST_CASE("a cache's tags know what they hold, and give dirty lines back once") {
  tag_array<2048, 2> tags;
  std::set<u64> written, back;
  for (u64 i = 0; i < 10'000; ++i) {
    u64 const line = (u64{1} << 38) + i * 7;
    auto const first = tags.touch(line, true);
    CHECK_FALSE(first.hit);
    auto const again = tags.touch(line, false);
    CHECK(again.hit);
    CHECK(again.was_dirty);
    written.insert(line);
    if (first.evicted_dirty) CHECK(back.insert(first.victim).second);
  }
  CHECK(std::ranges::includes(written, back));
  for (u64 const line : written) CHECK(tags.clean(line) == !back.contains(line));
  CHECK(back.size() >= 10'000 - 4096);
  for (u64 const line : written) CHECK_FALSE(tags.clean(line));
}

TEST_CASE("a matrix unit takes one product of 16x16x16 in 16 cycles") {
  CHECK(timed("independent_products") == 16);
  CHECK(timed("accumulated_products") == 16);  // into the same registers: no wait
  CHECK(timed("independent_products", "--timing matrix_half=128") == 32);
}

TEST_CASE("a product that multiplies another's result waits for it") {
  CHECK(timed("dependent_products") == 32);  // 4 passes, and 3 wait states more
  CHECK(timed("dependent_products", "--timing matrix_result=32") == 48);
}

TEST_CASE("a SIMD issues one vector instruction of its waves in four cycles") {
  CHECK(timed("adds") == 4);
  CHECK(within(timed("adds_two_waves_a_simd"), 7, 8));
  // The wave that comes last to a barrier goes on beside those that it lets go, not before them
  CHECK(within(timed("adds_behind_a_barrier"), 0, 1));
}

TEST_CASE("lanes that meet in a bank of the LDS take their turns") {
  CHECK(timed("lds_reads") == 4);          // two turns, behind the issue of one instruction in four cycles
  CHECK(timed("lds_conflicts_4") == 8);    // 8 banks: 8 turns
  CHECK(timed("lds_conflicts_32") == 64);  // one bank
}

TEST_CASE("loads take as long as they were measured to take, from where the line is") {
  CHECK(within(timed("l1_latency"), 116, 140));
  CHECK(within(timed("l2_latency"), 288, 312));
  CHECK(within(timed("mall_latency"), 480, 530));
  CHECK(within(timed("l2_latency", "--timing l2_latency=500"), 500, 530));
}

TEST_CASE("a copy stays below what the HBM can do, and is not far from it") {
  auto const name = GENERATE("copy", "copy_wide");
  double const rate = timed(name);
  CHECK(within(rate, 0.6 * 5300, 0.92 * 5300));
}

TEST_CASE("a link carries what it was measured to carry, either way") {
  CHECK(within(timed("push"), 44, 48));
  CHECK(within(timed("pull"), 44, 48));
  CHECK(within(timed("push", "--timing link_gbs=32"), 22, 24));
}

TEST_CASE("a link carries less while its GPU sends over another too") {
  CHECK(within(timed("push_to_two", "--gpus 3"), 0.8 * 44, 0.8 * 48));
  CHECK(within(timed("push_to_two", "--gpus 3 --timing link_beside=1"), 44, 48));
}

TEST_CASE("a flag reaches a peer's wave after the way there and the poll") { CHECK(within(timed("flag"), 400, 1500)); }

TEST_CASE("a kernel that does nothing takes a launch") { CHECK(within(timed("empty"), 2, 8)); }

TEST_CASE("the engine clock changes what the engine does and not what the memory does") {
  CHECK(timed("adds", "--mhz 1050") == 4);
  CHECK(within(timed("push", "--mhz 1400"), 44, 48));
  CHECK(within(timed("mall_latency", "--mhz 1050"), 240, 310));  // 237 ns
}

TEST_CASE("the same program takes the same time again") {
  auto const name = GENERATE("copy_wide", "flag");
  CHECK(timed(name) == timed(name));
}

TEST_CASE("which host thread comes first makes no difference") {
  auto const trace = [](std::string const& name) {
    std::string const file = "clock_tests_" + name + ".json";
    result const r = sim("--gpus 8 --time --trace " + file, "sim_timed " + name);
    INFO(r.output);
    REQUIRE(r.status == 0);
    return contents(file);
  };
  std::string const first = trace("pulls_of_all");
  CHECK(first.size() > 10'000);
  bool const same = trace("pulls_of_all_last_first") == first;  // without the texts, which are long
  CHECK(same);
}

/// Also in a process whose heap lies elsewhere, as it does in every run.
TEST_CASE("where the time went is the same again") {
  auto const json = [](int run) {
    std::string const file = "clock_tests_" + std::to_string(run) + ".json";
    result const r = sim("--gpus 2 --time --stats-json " + file, "sim_timed copy_wide");
    INFO(r.output);
    REQUIRE(r.status == 0);
    return contents(file);
  };
  std::string const first = json(0);
  CHECK_THAT(first, ContainsSubstring("\"simulated_us\""));
  for (int run = 1; run < 4; ++run) CHECK(json(run) == first);
}

TEST_CASE("a trace shows the spans that the first waves of blocks mark, one within the other") {
  std::string const file = "clock_tests_trace.json";
  CHECK(timed("spans", "--trace " + file) == 0);
  std::string const text = contents(file);
  INFO(text);
  /// Time and duration of each span of this name.
  auto const found = [&](std::string const& name) {
    std::vector<std::pair<double, double>> all;
    std::string const begin = "{\"name\": \"" + name + "\", \"ph\": \"X\", \"ts\": ";
    for (std::size_t at = 0; (at = text.find(begin, at)) != text.npos; ++at) {
      std::size_t const ts = at + begin.size();
      all.emplace_back(std::stod(text.substr(ts)), std::stod(text.substr(text.find("\"dur\": ", ts) + 7)));
    }
    return all;
  };
  auto const all = found("all of it"), quiet = found("a \\\"quiet\\\" while");
  REQUIRE(all.size() == 2);  // blocks, not waves
  REQUIRE(quiet.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(within(quiet[i].second, 6400 / 2100.0, 6600 / 2100.0));  // s_sleep 100
    CHECK(all[i].first < quiet[i].first);
    CHECK(all[i].first + all[i].second > quiet[i].first + quiet[i].second);
  }
}

TEST_CASE("HIP does under the clock what it does without") {
  auto const name = GENERATE("calls copies", "calls launches", "order streams", "order default_stream", "order events",
                             "order host_functions", "order graphs", "order two_gpus", "order threads");
  result const r = sim("--gpus 4 --time --patience 50", std::string("sim_hip_") + name);  // "threads" spins on the host
  INFO(name << "\n" << r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("done"));
}

TEST_CASE("results under the clock are right") {
  result const r = sim("--gpus 1 --time --stats", "sim_gemm_speed 256");
  INFO(r.output);
  CHECK(r.status == 0);
  CHECK_THAT(r.output, ContainsSubstring("right"));
  CHECK_THAT(r.output, ContainsSubstring("simulated us each; 4 workgroups, 16 waves"));
  CHECK_THAT(r.output, ContainsSubstring("v_mfma_f32_32x32x8_bf16"));
  CHECK_THAT(r.output, ContainsSubstring("gemm_speed.hip:"));
}

TEST_CASE("a deadlock is reported under the clock") {
  auto const name = GENERATE("nobody_raises", "not_co_resident", "threads_wait");
  result const r = sim("--gpus 2 --cus 4 --time", std::string("sim_faults ") + name);
  INFO(r.output);
  CHECK(r.status == 86);
  CHECK_THAT(r.output, ContainsSubstring("deadlock"));
}

TEST_CASE("a constant that does not exist is an error, and so are several processes") {
  CHECK_THAT(sim("--time --timing warp_speed=9", "sim_timed empty").output,
             ContainsSubstring("warp_speed: no such constant"));
  CHECK_THAT(sim("--time --timing l2_latency=much", "sim_timed empty").output,
             ContainsSubstring("expected name=value"));
  CHECK_THAT(sim("--time --processes 2", "sim_timed empty").output, ContainsSubstring("exclude each other"));
}
