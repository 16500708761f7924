// The clock (fusewire-sim --time): kernels whose simulated time follows from the machine's rates. The times are simulated, so they are the same wherever
// the tests run; the bounds leave room for calibration of what is assumed.
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runs.hpp"

using Catch::Matchers::ContainsSubstring;

namespace {

/// What a case of timed.hip prints.
double timed(std::string const& name, std::string const& options = "") {
  result const r = sim("--gpus 2 --time " + options, "sim_timed " + name);
  INFO(name << "\n" << r.output);
  REQUIRE(r.status == 0);
  return std::stod(r.output);
}

bool within(double x, double low, double high) {
  INFO(x);
  return x >= low && x <= high;
}

}  // namespace

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
}

TEST_CASE("lanes that meet in a bank of the LDS take their turns") {
  CHECK(timed("lds_reads") == 4);         // two turns, behind the issue of one instruction in four cycles
  CHECK(timed("lds_conflicts_4") == 8);   // 8 banks: 8 turns
  CHECK(timed("lds_conflicts_32") == 64); // one bank
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

TEST_CASE("HIP does under the clock what it does without") {
  auto const name = GENERATE("calls copies", "calls launches", "order streams", "order default_stream", "order events", "order host_functions", "order graphs", "order two_gpus", "order threads");
  result const r = sim("--gpus 4 --time", std::string("sim_hip_") + name);
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
  CHECK_THAT(sim("--time --timing warp_speed=9", "sim_timed empty").output, ContainsSubstring("warp_speed: no such constant"));
  CHECK_THAT(sim("--time --timing l2_latency=much", "sim_timed empty").output, ContainsSubstring("expected name=value"));
  CHECK_THAT(sim("--time --processes 2", "sim_timed empty").output, ContainsSubstring("exclude each other"));
}
