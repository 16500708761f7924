// What FUSEWIRE_LOG and FUSEWIRE_RANGES show of a running program.
//
//   FUSEWIRE_LOG=1      standard error: heaps with their peers, channels with their first epoch, plans when they are
//   made FUSEWIRE_RANGES=1   a profiler: a range around each launch, with the name in its header (roctx on AMD, NVTX on
//   CUDA)
#pragma once
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include <fusewire/platform/ranges.hpp>
#include <fusewire/ranks/environment.hpp>

namespace fusewire::detail {

/// Whether the variable is set to something else than 0.
inline bool is_on(char const* name) { return variable(name).value_or("0") != "0"; }

/// Prints the line that line() makes, if FUSEWIRE_LOG is on; otherwise it is not made.
template <class Line>
void log(int rank, Line const& line) {
  static bool const on = is_on("FUSEWIRE_LOG");
  if (on) std::fprintf(stderr, "fusewire: rank %d: %s\n", rank, line().c_str());
}

/// Bytes in words: "3 MiB", "1000 bytes".
inline std::string in_bytes(std::size_t n) {
  int unit = 0;
  for (; unit < 3 && n >= 1024 && n % 1024 == 0; ++unit) n /= 1024;
  return text(n, std::array{" bytes", " KiB", " MiB", " GiB"}[std::size_t(unit)]);
}

/// A range in a profiler's timeline, from here to the end of the scope; nothing unless FUSEWIRE_RANGES is on.
class profiler_range {
 public:
  /// `name`: up to 8 letters in a word, as name_table::word_of_name() makes them; 0 is no name.
  explicit profiler_range(std::uint64_t name) : open_(name != 0 && on()) {
    if (!open_) return;
    char letters[9] = {};
    std::memcpy(letters, &name, 8);
    platform::push_range(letters);
  }
  profiler_range(profiler_range const&) = delete;
  ~profiler_range() {
    if (open_) platform::pop_range();
  }

 private:
  static bool on() {
    static bool const yes = [] {
      if (!is_on("FUSEWIRE_RANGES")) return false;
      if (!platform::has_ranges())
        std::fprintf(stderr, "fusewire: FUSEWIRE_RANGES is set, but %s; launches are not marked\n",
                     platform::why_no_ranges);
      return platform::has_ranges();
    }();
    return yes;
  }

  bool open_;
};

}  // namespace fusewire::detail
