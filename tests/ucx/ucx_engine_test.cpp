// The UCX engine keeps an engine's promises on the transports that one host has. They do not reorder, so this says
// nothing of networks with several lanes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fusewire/nodes/ucx_engine.hpp>
#include <fusewire/ranks/error.hpp>

#include <cstdlib>

#include "../engine_conformance.hpp"

using namespace fusewire;

namespace {

/// An environment variable that has a value while this exists.
class variable {
 public:
  variable(char const* name, char const* value) : name_(name) { setenv(name, value, 1); }
  ~variable() { unsetenv(name_); }

 private:
  char const* name_;
};

bool is_old() {
  unsigned major = 0, minor = 0;
  std::sscanf(ucx_version().c_str(), "%u.%u", &major, &minor);
  return std::pair(major, minor) < std::pair(1u, 16u);
}

}  // namespace

TEST_CASE("ucx: promises over tcp") {
  variable const transport("UCX_TLS", "tcp"), device("UCX_NET_DEVICES", "lo");
  std::size_t const words = GENERATE(1, 1000, 50000);
  auto const found =
      conformance::check([](int) { return make_ucx_engine(); }, {.rounds = words > 10000 ? 8 : 40, .words = words});
  CHECK(found.wrong_flags == 0);
  CHECK(found.wrong_order == 0);
}

TEST_CASE("ucx: promises over shared memory") {
  variable const transport("UCX_TLS", "posix"), lanes("UCX_MAX_RMA_LANES", "1");
  auto const found = conformance::check([](int) { return make_ucx_engine({.peer_failures = false}); }, {});
  CHECK(found.wrong_flags == 0);
  CHECK(found.wrong_order == 0);
}

TEST_CASE("ucx: a version that orders one lane only is refused where there may be several") {
  if (!is_old()) SKIP("UCX " << ucx_version() << " orders all lanes");
  for (char const* transports : {"", "all", "rc,tcp", "^tcp"}) {
    variable const transport("UCX_TLS", transports);
    CHECK_THROWS_AS(make_ucx_engine(), runtime_failure);
  }
  variable const transport("UCX_TLS", "tcp"), lanes("UCX_MAX_RMA_LANES", "2");
  CHECK_THROWS_AS(make_ucx_engine(), runtime_failure);
}
