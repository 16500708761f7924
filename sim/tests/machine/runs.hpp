// Runs programs under fusewire-sim, for tests that check what they print.
#pragma once
#include <sys/wait.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <string>

struct result {
  int status;
  std::string output;  // standard output and error
};

inline result shell(std::string const& command) {
  result r{};
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  std::array<char, 4096> block;
  while (size_t const n = fread(block.data(), 1, block.size(), pipe)) r.output.append(block.data(), n);
  int const status = pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  return r;
}

inline result sim(std::string const& options, std::string const& program) {
  return shell("timeout 60 " LAUNCHER " " + options + " " PROGRAMS "/" + program);
}
