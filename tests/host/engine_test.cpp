// The loopback engine keeps an engine's two promises, whatever it delays; and one that breaks them is noticed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/nodes/loopback_engine.hpp>

#include "../engine_conformance.hpp"

using namespace fusewire;

namespace {

conformance::shape check(loopback_options const& o, conformance::shape const& s = {}) {
  auto const wires = std::make_shared<loopback_network>();
  return conformance::check([&](int rank) { return std::make_unique<loopback_engine>(wires, rank, o); }, s);
}

}  // namespace

TEST_CASE("engine: the loopback engine keeps its promises") {
  unsigned const seed = GENERATE(1u, 2u, 3u, 4u);
  int const delay = GENERATE(0, 3, 50), hold = GENERATE(0, 500);
  auto const found = check({.seed = seed, .delay = delay, .hold = hold});
  CHECK(found.wrong_flags == 0);
  CHECK(found.wrong_order == 0);
}

// The threads of both ends decide when they look, so one seed may notice nothing.
TEST_CASE("engine: a flag before its bytes is noticed") {
  std::uint64_t noticed = 0;
  for (unsigned seed = 1; seed <= 40 && noticed == 0; ++seed)
    noticed = check({.seed = seed, .delay = 2000, .flag_first = true}, {.rounds = 5}).wrong_flags;
  CHECK(noticed > 0);
}

TEST_CASE("engine: a put that overtakes one that has left is noticed") {
  std::uint64_t noticed = 0;
  for (unsigned seed = 1; seed <= 40 && noticed == 0; ++seed)
    noticed = check({.seed = seed, .delay = 300, .overtakes_done = true}, {.rounds = 20}).wrong_order;
  CHECK(noticed > 0);
}

TEST_CASE("engine: the loopback engine refuses what does not fit") {
  auto const wires = std::make_shared<loopback_network>();
  loopback_engine a(wires, 0), b(wires, 1);
  std::uint64_t word[4] = {};
  CHECK(b.expose(word, sizeof word) == 0);
  std::vector<std::uint64_t> done;
  CHECK(a.put({.peer = 1, .flag = 32, .value = 1}));
  CHECK_THROWS_AS(a.progress(done), out_of_space);
}
