// Errors: their texts, their types, and where they say the caller stands.
#include <catch2/catch_test_macros.hpp>
#include <fusewire/ranks/bootstrap.hpp>
#include <fusewire/launch/channel.hpp>
#include <fusewire/ranks/thread_bootstrap.hpp>

#include <thread>

using namespace fusewire;

namespace {
std::source_location here(std::source_location where = std::source_location::current()) { return where; }

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (error const& e) {
    return e.what();
  }
  return "";
}
}  // namespace

TEST_CASE("error: require says what is wrong and where") {
  CHECK_NOTHROW(require(true, here(), "never"));
  int const line = __LINE__ + 1;
  std::string const m = message_of([] { require(false, here(), "m = ", 7, "; expected at most ", 4); });
  CHECK(m.starts_with("m = 7; expected at most 4"));
  CHECK(m.find("error_test.cpp:") != m.npos);
  CHECK(m.find(std::to_string(line)) != m.npos);
  CHECK_THROWS_AS(require(false, here(), ""), bad_argument);
  CHECK_THROWS_AS(require<out_of_space>(false, here(), ""), out_of_space);
}

TEST_CASE("error: everything thrown is a fusewire::error, and consequences are of the type of their cause") {
  STATIC_CHECK(std::is_base_of_v<std::runtime_error, error>);
  STATIC_CHECK(std::is_base_of_v<error, bad_argument>);
  STATIC_CHECK(std::is_base_of_v<error, out_of_space>);
  STATIC_CHECK(std::is_base_of_v<error, runtime_failure>);
  STATIC_CHECK(std::is_base_of_v<rank_mismatch, peer_failed>);
  STATIC_CHECK(std::is_base_of_v<wait_timeout, launch_abandoned>);
}

TEST_CASE("launch_header: name, variant, extents") {
  launch_header const h = make_header("ag_gemm", 5, 1, 2, 3, 4);
  CHECK(std::memcmp(&h.what[0], "ag_gemm\0", 8) == 0);
  CHECK(h.what[1] == 5);
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(h.what[2 + i] == i + 1);
  for (char const* refused : {"a_long_name", "nineletrs", "", static_cast<char const*>(nullptr)})
    CHECK_THROWS_AS(make_header(refused, 0), bad_argument);
  CHECK(std::memcmp(make_header("eightlet", 0).what, "eightlet", 8) == 0);
}

TEST_CASE("sizes in binary units") {
  CHECK(3_KiB == 3072);
  CHECK(2_MiB == 2097152);
  CHECK(5_GiB == 5368709120);
}

TEST_CASE("thread_bootstrap: a thousand rounds, splits in between") {
  auto const hub = std::make_shared<thread_bootstrap::hub>(4);
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 4; ++r)
      threads.emplace_back([&, r] {
        thread_bootstrap b(hub, r);
        for (int i = 0; i < 1000; ++i) {
          auto const all = b.all_gather(r + 10 * i);
          for (int p = 0; p < 4; ++p) wrong[std::size_t(r)] += all[std::size_t(p)] != p + 10 * i;
          if (i % 100 == 50) {
            auto const part = b.split((r + i / 100) % 2);
            wrong[std::size_t(r)] += part->size() != 2;
            auto const members = part->all_gather(r);
            wrong[std::size_t(r)] += members[std::size_t(part->rank())] != r || members[0] >= members[1];
          }
        }
      });
  }
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("thread_bootstrap: failing releases those who wait, now and later") {
  auto const hub = std::make_shared<thread_bootstrap::hub>(3);
  std::vector<std::string> messages(3);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        thread_bootstrap b(hub, r);
        messages[std::size_t(r)] = message_of([&] { b.barrier(); });
      });
    hub->fail("the reason");
  }
  CHECK(messages[0].find("the reason") != std::string::npos);
  CHECK(messages[1].find("the reason") != std::string::npos);
  CHECK_THROWS_AS(thread_bootstrap(hub, 2).barrier(), peer_failed);
}
