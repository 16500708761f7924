// The command line of the examples: [ranks].
#pragma once
#include <fusewire/core/world_view.hpp>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

/// The number of ranks on the command line, up to `most`, if there is one. Ends the program after --help, and with 2
/// after anything else; needs no HIP runtime for it.
inline std::optional<int> ranks_of(int argc, char** argv, int most = fusewire::max_ranks) {
  if (argc < 2) return {};
  std::string_view const given = argv[1];
  int ranks = 0;
  auto const [end, failure] = std::from_chars(given.data(), given.data() + given.size(), ranks);
  if (argc == 2 && failure == std::errc() && end == given.data() + given.size() && ranks >= 1 && ranks <= most)
    return ranks;
  bool const help = given == "--help" || given == "-h";
  std::fprintf(
      help ? stdout : stderr,
      "usage: %s [ranks]\nranks: 1 to %d threads; a launcher that starts a process per rank says itself how many\n",
      argv[0], most);
  std::exit(help ? 0 : 2);
}
