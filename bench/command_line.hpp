// Options of a benchmark program in addition to Google Benchmark's.
#pragma once
#include <benchmark/benchmark.h>
#include <fusewire/ranks/error.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace fusewire::bench {

/// Takes --name and --name=value out of the arguments; the rest is for Google Benchmark. Ends the program after --help,
/// which prints `usage`, and with status 2 after a value that is not accepted.
class command_line {
 public:
  command_line(int& argc, char** argv, char const* usage) : argc_(argc), argv_(argv) {
    if (!take("help")) return;
    std::printf(
        "usage: %s\n"
        "--benchmark_filter=REGEX chooses by name. After --budget seconds nothing more is begun, and what was not is "
        "neither\nprinted nor filed. Standard error says how far the run is, and the time left.\n"
        "Google Benchmark's options:\n",
        usage);
    benchmark::PrintDefaultHelp();
    std::exit(0);
  }
  std::optional<std::string> take(std::string const& name) {
    for (int i = 1; i < argc_; ++i) {
      std::string const a = argv_[i], want = "--" + name;
      if (a != want && a.rfind(want + "=", 0) != 0) continue;
      for (int j = i; j < argc_; ++j) argv_[j] = argv_[j + 1];
      --argc_;
      return a == want ? "" : a.substr(want.size() + 1);
    }
    return std::nullopt;
  }
  bool flag(std::string const& name) { return take(name).has_value(); }
  /// `accepted`: a pattern for each word.
  std::vector<std::string> words(std::string const& name, char const* accepted, std::vector<std::string> otherwise) {
    auto const given = take(name);
    if (!given) return otherwise;
    std::vector<std::string> all;
    std::stringstream s(*given);
    for (std::string word; std::getline(s, word, ',');) {
      if (!std::regex_match(word, std::regex(accepted, std::regex::extended))) refuse(name, word, accepted);
      all.push_back(word);
    }
    if (all.empty()) refuse(name, "", accepted);
    return all;
  }
  std::vector<int> numbers(std::string const& name, std::vector<int> otherwise,
                           char const* accepted = "[1-9][0-9]{0,8}") {
    std::vector<int> all;
    for (auto const& word : words(name, accepted, {})) all.push_back(std::stoi(word));
    return all.empty() ? otherwise : all;
  }
  int number(std::string const& name, int otherwise, char const* accepted = "[1-9][0-9]{0,8}") {
    return std::stoi(words(name, accepted, {text(otherwise)})[0]);
  }

 private:
  [[noreturn]] static void refuse(std::string const& name, std::string const& word, char const* accepted) {
    std::fprintf(stderr, "--%s=%s is not accepted; what matches %s is; --help shows all options\n", name.c_str(),
                 word.c_str(), accepted);
    std::exit(2);
  }

  int& argc_;
  char** argv_;
};

/// Whether --benchmark_filter chooses a benchmark of this name, without the suffixes that Google Benchmark appends.
inline bool selected(std::string const& name) {
  std::string filter = benchmark::GetBenchmarkFilter();
  bool const inverse = !filter.empty() && filter[0] == '-';
  if (inverse) filter.erase(0, 1);
  return filter.empty() || filter == "all" ||
         std::regex_search(name, std::regex(filter, std::regex::extended)) != inverse;
}

}  // namespace fusewire::bench
